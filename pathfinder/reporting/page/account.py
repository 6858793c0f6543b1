"""The report's account of the data and the work: gates, overlap, judge, training and costs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pathfinder.core.labels import CORRECTNESS, OPTIMALITY
from pathfinder.core.prompts import FIRST_LABELS
from pathfinder.data.metrics import Build, Judged, Overlap, Shared, Truth
from pathfinder.pages.origins import Origin, Sourced
from pathfinder.pages.page import Block, Figure, Fold, Table, Text
from pathfinder.pages.svg import Points, line_chart
from pathfinder.policy.metrics import Details
from pathfinder.reporting.cells import chart, figures, folded, percent
from pathfinder.reporting.names import CAPTIONS, CONTROL, MISSING, NOT_APPLICABLE, PRMBENCH, PROCESSBENCH, name_of
from pathfinder.reporting.origins import MEAN, in_percent, made, said
from pathfinder.reporting.page.record_flow import source_name
from pathfinder.reporting.results import Results


def validation(folder: str, outcome: Mapping[str, Any] | None) -> list[Block]:
    """The number of gates that passed per suite; ``outcome`` is the content of the folder's validation.json."""
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


def overlap(build: Build | None) -> list[Block]:
    """Training data that also occur in the benchmarks, in total and by source, and how much was removed."""
    if build is None:
        return [Text(f"{MISSING}: run the build stage.")]
    if removed := build.removed:
        each = (f"{name} {row.problems:,} problems, {row.records:,} records" for name, row in removed.items())
        text = f"Removed: {'; '.join(each)} (a problem in several benchmarks counts for each)."
        removal = said(text, [count for row in removed.values() for count in (row.problems, row.records)])
    else:
        removal = said("No overlap was removed (build.remove_overlap).", [])
    columns = ("items", "same problem", "near problem", "steps", "same steps", "near steps", "same or near, %")
    found = build.overlap
    whole = [(name, *_overlap_row(bench, bench)) for name, bench in found.items()]
    parts = [
        (name, source_name(source), *_overlap_row(shared, bench))
        for name, bench in found.items()
        for source, shared in bench.sources.items()
    ]
    table = Table(CAPTIONS["overlap_table"], ("benchmark", *columns), whole)
    parts = parts if len({source for _, source, *_ in parts}) > 1 else []
    by_source = "Overlap by source"
    return [
        Text(Sourced(CAPTIONS["overlap"] + removal, removal.origin)),
        table,
        *folded(by_source, by_source, ("benchmark", "source", *columns), parts),
    ]


def _overlap_row(shared: Shared, bench: Overlap) -> list[str]:
    exact, near, steps = shared.exact_steps, shared.near_steps, bench.steps
    counts = [bench.items, shared.exact_problems, shared.near_problems, steps, exact, near]
    share = made("percentage", 100 * (exact + near) / steps, [exact, near, steps]) if steps else None
    return [*figures(counts, ","), *figures([share])]


def curves_of(results: Results) -> list[dict[str, Any]]:
    """The learning curves of each system's first run as rows: held-out loss (nats per label) and accuracy."""
    return [
        {"system": name_of(members[0]), "label": label, "step": row.step, "loss": loss, "accuracy": accuracy}
        for members in results.systems
        for row in results.logs.get(members[0].name, ())
        for label in (*FIRST_LABELS, OPTIMALITY, CORRECTNESS)
        if (loss := row.held_out("loss", label)) is not None
        and (accuracy := row.held_out("accuracy", label)) is not None
    ]


def training(results: Results) -> list[Block]:
    """Training loss and learning curves of each system's first run, and the figures of every run."""
    if not results.train and not results.logs:
        return [Text(f"{MISSING}: run the train stage.")]
    series = {
        name_of(members[0]): [(float(row.step), row.loss) for row in results.logs[members[0].name]]
        for members in results.systems
        if members[0].name in results.logs
    }
    rows = [
        (
            run,
            *figures([found.train_records, found.optimiser_steps, found.tokens_an_epoch], ","),
            *figures([found.final_loss], ".3f"),
        )
        for run, found in results.train.items()
    ]
    headers = ("run", "training records", "optimiser steps", "tokens per epoch", "final loss")
    labels = [
        (
            run,
            label,
            *figures([of.n], ","),
            *figures(map(in_percent, (of.accuracy, of.majority_accuracy))),
            *figures([of.auc], ".3f"),
        )
        for run, metrics in results.train.items()
        for label, of in metrics.test_labels.items()
    ]
    label_headers = ("run", "label", "steps", "accuracy, %", "majority accuracy, %", "area under ROC")
    return [
        _curves("Training loss of each system's first run.", series, "loss per label"),
        *_learning(results),
        Table(CAPTIONS["training_runs"], headers, rows),
        *folded("Held-out labels", CAPTIONS["held_out_labels"], label_headers, labels),
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
        name: [(step, made(MEAN, sum(v) / len(v), v)) for step, v in line.items()] for name, line in losses.items()
    }
    caption = CAPTIONS["learning_accuracy"]
    folded = [_curves(caption.format(system=name), lines, "percent", 1) for name, lines in accuracies.items()]
    shown = _curves(CAPTIONS["learning_curves"], means, "loss per label")
    return [shown, Fold("Held-out accuracy by optimiser step", folded)]


def _curves(caption: str, series: Mapping[str, Points], y_label: str, digits: int = 3) -> Figure:
    """A chart by optimiser step; its words are the first and last value of each curve."""
    ends = {name: (line[0][1], line[-1][1]) for name, line in series.items() if line}
    words = (f"{n}: from {first:.{digits}f} to {last:.{digits}f}" for n, (first, last) in ends.items())
    # with spans, the axis starts near the values
    spans = {name: [(x, y, y) for x, y in line] for name, line in series.items()} if y_label == "percent" else None
    drawing = line_chart(series, "optimiser step", y_label, spans)
    return chart(drawing, words, [value for pair in ends.values() for value in pair], caption)


def truth_lines(truth: Truth | None) -> list[str]:
    """Two sentences about the judge and the filter; empty if no ground truth is known."""
    if truth is None or not truth.all.steps:
        return []
    found = truth.all
    wrong, recall = percent(found.wrong), percent(found.error_recall)
    precision, alarms = percent(found.error_precision), percent(found.false_alarms)
    right, kept, dropped = map(percent, (found.labels_right, found.labels_right_kept, found.labels_right_dropped))
    errors = (
        f"On {found.steps:,} steps with known ground truth, {wrong} % of them incorrect, the judge finds "
        f"{recall} % of the errors at a precision of {precision} % and flags {alarms} % of the correct steps."
    )
    labels = (
        f"{right} % of its labels are correct: {kept} % of the {found.kept:,} "
        f"that the consistency filter kept, {dropped} % of those it dropped."
    )
    return [
        said(errors, [found.steps, wrong, recall, precision, alarms], "copies"),
        said(labels, [found.kept, right, kept, dropped], "copies"),
    ]


def truth(metrics: Truth | None) -> list[Block]:
    """Judge and filter compared with the ground truth, for each source and rating that the judge labelled."""
    if metrics is None:
        return [Text(f"{MISSING}: run the truth stage.")]
    if not metrics.all.steps:
        return [Text("These sources contain no problem with known ground truth.")]
    groups = {**metrics.groups, "all": metrics.all} if len(metrics.groups) > 1 else metrics.groups
    found = list(groups.values())
    rows: list[tuple[str, ...]] = [
        ("steps judged", *figures((of.steps for of in found), ",")),
        ("steps kept by the filter", *figures((of.kept for of in found), ",")),
    ]
    rows += [(f"{title}, %", *(percent(of.titled()[title]) for of in found)) for title in Judged.headings().values()]
    return [*map(Text, truth_lines(metrics)), Table(CAPTIONS["truth"], ("measure", *map(_group, groups)), rows)]


def _group(name: str) -> str:
    """A group's name in a heading: ``prm800k:-1`` becomes ``PRM800K -1``."""
    source, _, rating = name.partition(":")
    return f"{source_name(source)} {rating}".strip()


def costs(results: Results) -> list[Block]:
    """The judge's calls and tokens, then each stage's work."""
    blocks: list[Block] = [Text(f"{MISSING}: run the label stage.")]
    if results.label is not None:
        known = {title: count for title, count in results.label.titled().items() if count is not None}
        rows = [(title, *figures([count], ",")) for title, count in known.items()]
        blocks = [Table("The judge's work. Steps with equal prompts share a call.", ("what", "count"), rows)]
    if work := _work(results):
        blocks.append(Table("The models' work by stage.", ("stage", "work"), work))
    return [*blocks, Text(CAPTIONS["times"])]


def _work(results: Results) -> list[tuple[str, str]]:
    """The work of each stage that runs a model, in counts that do not vary between executions."""
    work: dict[str, Mapping[str, int | None]] = {
        f"train@{run}": {"optimiser steps": trained.optimiser_steps, "tokens per epoch": trained.tokens_an_epoch}
        for run, trained in results.train.items()
    }
    for bench in (PROCESSBENCH, PRMBENCH):
        measured = results.benchmarks[bench].items()
        work |= {f"{bench.key}@{run}": {"solutions scored": each.kept} for run, each in measured}
    if results.sample:
        work["sample"] = {"solutions sampled": results.sample.details.samples}
    for run, search in results.search.items():
        details, name = search.details or Details(), "control" if run == CONTROL else f"search@{run}"
        work[name] = {"sequential policy calls": details.policy_calls, "steps scored": details.candidates}
    rows: list[tuple[str, str]] = []
    for stage, amounts in work.items():
        known = {unit: amount for unit, amount in amounts.items() if amount is not None}
        text = ", ".join(f"{amount:,} {unit}" for unit, amount in known.items()) or NOT_APPLICABLE
        rows.append((stage, said(text, known.values())))
    return rows
