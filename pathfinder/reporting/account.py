"""The report's account of the data and the work: gates, overlap, judge, training and costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import nan
from typing import Any, get_args

from pathfinder.core.prompts import Label
from pathfinder.pages.origins import Origin, Sourced
from pathfinder.pages.page import Block, Figure, Fold, Table, Text
from pathfinder.pages.svg import line_chart
from pathfinder.reporting.cells import figures, folded, percent
from pathfinder.reporting.names import CONTROL, MISSING, NOT_APPLICABLE, PRMBENCH, PROCESSBENCH, SEARCH, TEXTS, name_of
from pathfinder.reporting.origins import in_percent, made, said
from pathfinder.reporting.record_flow import source_name
from pathfinder.reporting.results import Metrics, Results

Curves = Mapping[str, Sequence[tuple[float, float]]]


def validation(folder: str, outcome: Mapping[str, Any] | None) -> list[Block]:
    """How many gates passed per suite; ``outcome`` is the content of the folder's validation.json."""
    if outcome is None:
        return [Text(f"{MISSING}: reports/{folder}, written by its validate stage.")]
    suites: dict[tuple[str, str], list[bool]] = {}
    for gate in outcome["gates"]:
        suites.setdefault((gate["suite"], gate["file"]), []).append(gate["passed"])
    origin = Origin("count", (f"reports/{folder}/validation.json#/gates",))
    rows = [
        (name, file, *(Sourced(str(count), origin) for count in (len(passed), sum(passed))))
        for (name, file), passed in suites.items()
    ]
    failed = sum(not gate["passed"] for gate in outcome["gates"])
    verdict = f"{failed} gates failed." if failed else f"All {len(outcome['gates'])} gates passed."
    return [
        Text(Sourced(f"{verdict} Details: reports/{folder}/index.html.", origin), is_notice=bool(failed)),
        Table(
            f"Gates of {folder} by suite. A gate is a rule about a file. If one is broken, the pipeline stops.",
            ("suite", "file", "gates", "passed"),
            rows,
        ),
    ]


def overlap(build: Metrics | None) -> list[Block]:
    """Training data that also occur in the benchmarks, in total and by source, and how much was removed."""
    if build is None:
        return [Text(f"{MISSING}: run the build stage.")]
    if removed := build.get("removed"):
        each = (f"{name} {row['problems']:,} problems, {row['records']:,} records" for name, row in removed.items())
        text = f"Removed: {'; '.join(each)} (a problem in several benchmarks counts for each)."
        removal = said(text, [row[key] for row in removed.values() for key in ("problems", "records")])
    else:
        removal = said("No overlap was removed (build.remove_overlap).", [])
    lead = (
        "Benchmark items whose problem also occurs in the training data, and steps whose text does. Each item and step "
        "counts once: as the same if it is equal after normalisation, otherwise as near "
        "if it shares enough runs of three words (build.near_duplicate_jaccard). "
    )
    columns = ("items", "same problem", "near problem", "steps", "same steps", "near steps", "same or near, %")
    found = build["overlap"]
    whole = [(name, *_overlap_row(bench, bench)) for name, bench in found.items()]
    parts = [
        (name, source_name(source), *_overlap_row(shared, bench))
        for name, bench in found.items()
        for source, shared in bench["sources"].items()
    ]
    caption = "Overlap by benchmark and class over all sources, before any removal."
    table = Table(caption, ("benchmark", *columns), whole)
    parts = parts if len({source for _, source, *_ in parts}) > 1 else []
    by_source = "Overlap by source"
    return [
        Text(Sourced(lead + removal, removal.origin)),
        table,
        *folded(by_source, by_source, ("benchmark", "source", *columns), parts),
    ]


def _overlap_row(shared: Mapping[str, int], bench: Mapping[str, Any]) -> list[str]:
    exact, near, steps = shared["exact_steps"], shared["near_steps"], bench["steps"]
    counts = [bench["items"], shared["exact_problems"], shared["near_problems"], steps, exact, near]
    share = made("percentage", 100 * (exact + near) / steps, [exact, near, steps]) if steps else None
    return [*figures(counts, ","), *figures([share])]


def curves_of(results: Results) -> list[dict[str, Any]]:
    """The learning curves of each system's first run as rows: held-out loss (nats per label) and accuracy."""
    return [
        {"system": name_of(members[0]), "label": label, "step": row["step"]}
        | {figure: row[f"held_out_{figure}_{label}"] for figure in ("loss", "accuracy")}
        for members in results.systems
        for row in results.logs.get(members[0].name, ())
        for label in get_args(Label)
        if {f"held_out_loss_{label}", f"held_out_accuracy_{label}"} <= row.keys()
    ]


def training(results: Results) -> list[Block]:
    """Training loss and learning curves of each system's first run, and the figures of every run."""
    if not results.train and not results.logs:
        return [Text(f"{MISSING}: run the train stage.")]
    series = {
        name_of(members[0]): [(float(row["step"]), row["loss"]) for row in results.logs[members[0].name]]
        for members in results.systems
        if members[0].name in results.logs
    }
    columns = ("train_records", "optimiser_steps", "tokens_an_epoch")
    rows = [
        (run, *figures([found.get(key) for key in columns], ","), *figures([found.get("final_loss", nan)], ".3f"))
        for run, found in results.train.items()
    ]
    headers = ("run", "training records", "optimiser steps", "tokens per epoch", "final loss")
    caption = "Training runs. One tree holds all steps of a problem; separate samples, as published, need more tokens."
    shares = ("accuracy", "majority_accuracy", "auc")
    labels = [
        (run, label, *figures([found.get("n", 0)], ","), *figures([found.get(key) for key in shares], ".3f"))
        for run, metrics in results.train.items()
        for label, found in metrics.get("test_labels", {}).items()
    ]
    label_headers = ("run", "label", "steps", "accuracy", "majority accuracy", "area under ROC")
    label_caption = (
        "Labels of held-out problems, predicted at the positions of the loss. Majority accuracy is that of always "
        "predicting the more frequent value."
    )
    return [
        _losses("Training loss of each system's first run.", series),
        *_learning(results),
        Table(caption, headers, rows),
        *folded("Held-out labels", label_caption, label_headers, labels),
    ]


def _learning(results: Results) -> list[Block]:
    """Every system's held-out loss, the mean over its labels, and each label's accuracy."""
    losses: dict[str, dict[float, list[float]]] = {}
    accuracies: dict[str, dict[str, list[tuple[float, float]]]] = {}
    for row in curves_of(results):
        name, step = row["system"], float(row["step"])
        losses.setdefault(name, {}).setdefault(step, []).append(row["loss"])
        share = in_percent(row["accuracy"]) or 0.0
        accuracies.setdefault(name, {}).setdefault(row["label"], []).append((step, share))
    if not losses:
        return []
    means = {
        name: [(step, made("mean", sum(v) / len(v), v)) for step, v in line.items()] for name, line in losses.items()
    }
    folded = []
    for name, lines in accuracies.items():
        # with spans, the axis starts near the values
        spans = {label: [(x, y, y) for x, y in line] for label, line in lines.items()}
        chart = line_chart(lines, "optimiser step", "percent", spans)
        folded.append(Figure(chart, _ends(lines, 1), f"{name}: accuracy of each label on held-out problems."))
    caption = "Learning curves: loss per label on held-out problems, the mean over a system's labels."
    return [_losses(caption, means), Fold("Held-out accuracy by optimiser step", folded)]


def _losses(caption: str, series: Curves) -> Figure:
    return Figure(line_chart(series, "optimiser step", "loss per label"), _ends(series, 3), caption)


def _ends(series: Curves, digits: int) -> str:
    """The first and last value of each curve in words."""
    ends = {name: (line[0][1], line[-1][1]) for name, line in series.items() if line}
    text = "; ".join(f"{n}: from {first:.{digits}f} to {last:.{digits}f}" for n, (first, last) in ends.items()) + "."
    return said(text, [value for pair in ends.values() for value in pair])


def truth_lines(truth: Metrics | None) -> list[str]:
    """Two sentences about the judge and the filter; empty if no ground truth is known."""
    found = truth["all"] if truth else {"steps": 0}
    if not found["steps"]:
        return []
    rate = {name: percent(figure) for name, figure in found.items() if isinstance(figure, Mapping)}
    lines = [
        f"On {found['steps']:,} steps with known ground truth, {rate['wrong']} % of them incorrect, the judge finds "
        f"{rate['error_recall']} % of the errors at a precision of {rate['error_precision']} % and flags "
        f"{rate['false_alarms']} % of the correct steps.",
        f"{rate['labels_right']} % of its labels are correct: {rate['labels_right_kept']} % of the {found['kept']:,} "
        f"that the consistency filter kept, {rate['labels_right_dropped']} % of those it dropped.",
    ]
    used = [
        [found["steps"], *(rate[name] for name in ("wrong", "error_recall", "error_precision", "false_alarms"))],
        [found["kept"], *(rate[name] for name in ("labels_right", "labels_right_kept", "labels_right_dropped"))],
    ]
    return [said(line, values, "copies") for line, values in zip(lines, used, strict=True)]


def truth(metrics: Metrics | None) -> list[Block]:
    """Judge and filter compared with the ground truth, for each source and rating that the judge labelled."""
    if metrics is None:
        return [Text(f"{MISSING}: run the truth stage.")]
    if not metrics["all"]["steps"]:
        return [Text("These sources contain no problem with known ground truth.")]
    groups = {**metrics["groups"], "all": metrics["all"]} if len(metrics["groups"]) > 1 else metrics["groups"]
    counts = {"steps": "steps judged", "kept": "steps kept by the filter"}
    rows = [(title, *figures((found[key] for found in groups.values()), ",")) for key, title in counts.items()]
    rows += [(f"{title}, %", *(percent(g[key]) for g in groups.values())) for key, title in TEXTS["truth"].items()]
    caption = (
        "The judge on steps that the generated world's oracle can verify, by source and rating, with 95 % intervals "
        "over problems. Flagging every step has recall 100 and, as precision, the share of incorrect steps. "
        "A label is correct if both its math and its consistency score are."
    )
    return [*map(Text, truth_lines(metrics)), Table(caption, ("measure", *map(_group, groups)), rows)]


def _group(name: str) -> str:
    """A group's name in a heading: ``prm800k:-1`` becomes ``PRM800K -1``."""
    source, _, rating = name.partition(":")
    return f"{source_name(source)} {rating}".strip()


def costs(results: Results) -> list[Block]:
    """The judge's calls, tokens and, if a price is known, cost; then each stage's work."""
    label = results.stages["label"]
    blocks: list[Block] = [Text(f"{MISSING}: run the label stage.")]
    if label is not None:
        titles = {key: title for key, title in TEXTS["judge"].items() if label.get(key) is not None}
        rows = [(title, *figures([label[key]], ",")) for key, title in titles.items()]
        blocks = [Table("The judge's work. Steps with equal prompts share a call.", ("what", "count"), rows)]
    if work := _work(results):
        blocks.append(Table("The models' work by stage.", ("stage", "work"), work))
    times = (
        "Times and memory vary between executions, so this page leaves them out. The file .pathfinder/stages.html in "
        "the run's folder lists them for every stage's latest execution there."
    )
    return [*blocks, Text(times)]


def _work(results: Results) -> list[tuple[str, str]]:
    """The work of each stage that runs a model, in counts that do not vary between executions."""
    measured = results.benchmarks
    kinds: list[tuple[str, Mapping[str, Metrics], dict[str, str]]] = [
        ("train", results.train, {"optimiser_steps": "optimiser steps", "tokens_an_epoch": "tokens per epoch"}),
        ("processbench", measured[PROCESSBENCH], {"kept": "solutions scored"}),
        ("prmbench", measured[PRMBENCH], {"kept": "solutions scored"}),
        ("sample", {"": results.sample} if results.sample else {}, {"samples": "solutions sampled"}),
        ("search", measured[SEARCH], {"policy_calls": "sequential policy calls", "candidates": "steps scored"}),
    ]
    rows: list[tuple[str, str]] = []
    for stage, metrics, names in kinds:
        for run, found in metrics.items():
            amounts = {**found, **found.get("details", {})}
            known = {unit: amounts[key] for key, unit in names.items() if amounts.get(key) is not None}
            text = ", ".join(f"{amount:,} {unit}" for unit, amount in known.items()) or NOT_APPLICABLE
            name = "control" if run == CONTROL else f"{stage}@{run}" if run else stage
            rows.append((name, said(text, known.values())))
    return rows
