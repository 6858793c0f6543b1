"""The report's account of the data: what the gates said, what overlaps, how training went."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

from pathfinder.core.prompts import Label
from pathfinder.pages.page import LINEAGE, Block, Figure, Fold, Table, Text, anchor_of
from pathfinder.pages.svg import line_chart
from pathfinder.reporting.record_flow import source_name
from pathfinder.reporting.results import (
    CONTROL,
    MISSING,
    NOT_APPLICABLE,
    Metrics,
    Results,
    name_of,
    percent,
    truth_lines,
)

_TRUTH = {
    "wrong": "wrong in truth",
    "error_recall": "error recall",
    "error_precision": "error precision",
    "false_alarms": "right steps called wrong",
    "labels_right": "labels right",
    "labels_right_kept": "of those kept",
    "labels_right_dropped": "of those dropped",
}


def validation(outcomes: Mapping[str, Mapping[str, Any] | None]) -> list[Block]:
    """How many gates passed, by table, before the build and before the training."""
    return [block for folder, outcome in outcomes.items() for block in _gates(folder, outcome)]


def _gates(folder: str, outcome: Mapping[str, Any] | None) -> list[Block]:
    if outcome is None:
        return [Text(f"{MISSING}: reports/{folder}, which its validate stage makes.")]
    suites: dict[tuple[str, str], list[bool]] = {}
    for gate in outcome["gates"]:
        suites.setdefault((gate["suite"], gate["file"]), []).append(gate["passed"])
    rows = [(name, file, str(len(passed)), str(sum(passed))) for (name, file), passed in suites.items()]
    failed = sum(not gate["passed"] for gate in outcome["gates"])
    verdict = f"{failed} gates failed." if failed else f"All {len(outcome['gates'])} gates passed."
    return [
        Text(f"{verdict} Each of them: reports/{folder}/index.html.", is_notice=bool(failed)),
        Table("Gates by suite.", ("suite", "file", "gates", "passed"), rows),
    ]


def overlap(build: Metrics | None) -> list[Block]:
    """Training data that the benchmarks hold too: in all, by source, and what was removed for it."""
    if build is None:
        return [Text(f"{MISSING}: run the build stage.")]
    if removed := build.get("removed"):
        each = (f"{name} {row['problems']:,} problems, {row['records']:,} records" for name, row in removed.items())
        said = "; ".join(each)
        said = f"Removed for it: {said} (a problem that several benchmarks hold counts for each)."
    else:
        said = "Nothing was removed for it; build.remove_overlap does."
    names = {source: source_name(source) for found in build["overlap"].values() for source in found["sources"]}
    whole = [(name, *_overlap_row(found, found)) for name, found in build["overlap"].items()]
    parts = [
        (name, names[source], *_overlap_row(counts, found))
        for name, found in build["overlap"].items()
        for source, counts in found["sources"].items()
    ]
    columns = ("items", "same problem", "near problem", "steps", "same steps", "near steps", "same or near, %")
    blocks: list[Block] = [
        Text(
            "Items of each benchmark whose problem, and steps whose text, stands in the training data too. Each item "
            f"and step counts once: the same after normalisation, or near by word 3-shingles. {said}"
        ),
        Table("Overlap by benchmark and class, all sources, before any removal.", ("benchmark", *columns), whole),
    ]
    if len(names) > 1:
        caption = "The same by source."
        blocks.append(Fold(caption, [Table(caption, ("benchmark", "source", *columns), parts)]))
    return blocks


def _overlap_row(counts: Mapping[str, int], found: Mapping[str, Any]) -> tuple[str, ...]:
    shared = counts["exact_steps"] + counts["near_steps"]
    share = f"{100 * shared / found['steps']:.1f}" if found["steps"] else NOT_APPLICABLE
    figures = (
        found["items"],
        counts["exact_problems"],
        counts["near_problems"],
        found["steps"],
        counts["exact_steps"],
        counts["near_steps"],
    )
    return *(f"{figure:,}" for figure in figures), share


def curves_of(results: Results) -> list[dict[str, Any]]:
    """The learning curves of each system's first seed as rows: loss (nats a label) and accuracy on held-out trees."""
    return [
        {"system": name_of(members[0]), "label": label, "step": row["step"]}
        | {figure: row[f"held_out_{figure}_{label}"] for figure in ("loss", "accuracy")}
        for members in results.systems.values()
        for row in results.logs.get(members[0].name, ())
        for label in get_args(Label)
        if f"held_out_loss_{label}" in row
    ]


def _learning(results: Results) -> list[Block]:
    """Held-out loss of every system, the mean over its labels, and in a fold each label's accuracy."""
    losses: dict[str, dict[float, list[float]]] = {}
    accuracies: dict[str, dict[str, list[tuple[float, float]]]] = {}
    for row in curves_of(results):
        losses.setdefault(row["system"], {}).setdefault(float(row["step"]), []).append(row["loss"])
        line = accuracies.setdefault(row["system"], {}).setdefault(row["label"], [])
        line.append((float(row["step"]), 100 * row["accuracy"]))
    if not losses:
        return []
    means = {name: [(step, sum(v) / len(v)) for step, v in line.items()] for name, line in losses.items()}
    ends = "; ".join(f"{name}: from {line[0][1]:.3f} to {line[-1][1]:.3f}" for name, line in means.items())
    caption = "Learning curves: loss a label on held-out problems, the mean over a system's labels."
    blocks: list[Block] = [Figure(line_chart(means, "optimiser step", "loss a label"), f"{caption} {ends}.", caption)]
    folded = []
    for name, lines in accuracies.items():
        said = "; ".join(f"{label}: from {line[0][1]:.1f} to {line[-1][1]:.1f}" for label, line in lines.items())
        title = f"{name}: accuracy of each label on held-out problems."
        spans = {label: [(x, y, y) for x, y in line] for label, line in lines.items()}  # its axis starts at the values
        folded.append(Figure(line_chart(lines, "optimiser step", "percent", spans), f"{title} {said}.", title))
    return [*blocks, Fold("Held-out accuracy by optimiser step", folded)]


def training(results: Results) -> list[Block]:
    """Loss and learning curves of each system's first seed, and the figures of each run."""
    if not results.train and not results.logs:
        return [Text(f"{MISSING}: run the train stage.")]
    series = {
        name_of(members[0]): [(float(row["step"]), float(row["loss"])) for row in results.logs[members[0].name]]
        for members in results.systems.values()
        if members[0].name in results.logs
    }
    ends = "; ".join(f"{name}: from {line[0][1]:.3f} to {line[-1][1]:.3f}" for name, line in series.items() if line)
    drawing = line_chart(series, "optimiser step", "loss a label")
    rows = []
    for run in results.runs:
        if (found := results.train.get(run.name)) is not None:
            counts = (found.get(key) for key in ("train_records", "optimiser_steps", "tokens_an_epoch"))
            shown = (NOT_APPLICABLE if count is None else f"{count:,}" for count in counts)
            rows.append((run.name, *shown, f"{found.get('final_loss', float('nan')):.3f}"))
    headers = ("run", "training records", "optimiser steps", "tokens an epoch", "final loss")
    caption = (
        "Training. One tree holds all steps of a problem; the published samples would be several times the tokens."
    )
    blocks: list[Block] = [
        Figure(drawing, f"Training loss by optimiser step. {ends}.", "Training loss, first seed of each system."),
        *_learning(results),
        Table(caption, headers, rows, origin="metrics/train/full.json"),
    ]
    labels = [
        (run.name, label, *_label_cells(figures))
        for run in results.runs
        for label, figures in results.train.get(run.name, {}).get("test_labels", {}).items()
    ]
    if labels:
        said = ("run", "label", "n", "accuracy", "majority's accuracy", "area under ROC")
        table = Table("Labels of held-out problems, read where the loss is read.", said, labels)
        blocks.append(Fold("Held-out labels", [table]))
    return blocks


def _label_cells(figures: Mapping[str, Any]) -> list[str]:
    shares = (figures.get(key) for key in ("accuracy", "majority_accuracy", "auc"))
    return [f"{figures.get('n', 0):,}", *(NOT_APPLICABLE if share is None else f"{share:.3f}" for share in shares)]


def truth(metrics: Metrics | None) -> list[Block]:
    """The judge and the filter where the truth is known, for each source and rating that the judge was asked about."""
    if metrics is None:
        return [Text(f"{MISSING}: run the truth stage.")]
    if not metrics["all"]["steps"]:
        return [Text("No problem of these sources is a story whose truth is known.")]
    groups = {**metrics["groups"], "all": metrics["all"]} if len(metrics["groups"]) > 1 else metrics["groups"]
    rows = [
        (name, f"{found['steps']:,}", f"{found['kept']:,}", *(percent(found[key]) for key in _TRUTH))
        for name, found in groups.items()
    ]
    caption = (
        "What the judge said of steps whose truth the generated world's oracle knows, by source and rating. Percent of "
        "the steps; intervals by problem. Calling every step wrong has recall 100 and the precision under “wrong in "
        "truth”. A label is right where its math and its consistency score are the truth."
    )
    table = Table(
        caption, ("source:rating", "judged", "kept by the filter", *_TRUTH.values()), rows, origin="metrics/truth.json"
    )
    return [*map(Text, truth_lines(metrics)), table]


def costs(results: Results) -> list[Block]:
    """What was asked of the judge (calls, tokens and, where a price is known, money), and each stage's work."""
    label = results.stages["label"]
    blocks: list[Block] = [Text(f"{MISSING}: run the label stage.")]
    if label is not None:
        names = {
            "calls": "calls of the judge",
            "answers": "its answers",
            "prompt_tokens": "prompt tokens",
            "tokens": "answer tokens",
            "cost": "cost",
        }
        rows = [(said, f"{label[key]:,}") for key, said in names.items() if label.get(key) is not None]
        blocks = [Table("The judge.", ("what", "count"), rows, origin="metrics/label.json")]
    if work := _work(results):
        links = {stage: f"{LINEAGE}#{anchor_of(stage)}" for stage, _ in work}
        blocks.append(Table("What the models did, by stage.", ("stage", "work"), work, links=links))
    told = (
        "Times and memory differ from run to run and are kept apart from what must not: each stage above leads to the "
        "page that has them, .pathfinder/stages.html, for every stage as it last ran here."
    )
    return [*blocks, Text(told)]


def _work(results: Results) -> list[tuple[str, str]]:
    """The work of each stage that runs a model, in counts that do not differ from run to run."""
    kinds: list[tuple[str, Mapping[str, Metrics], dict[str, str]]] = [
        ("train", results.train, {"optimiser_steps": "optimiser steps", "tokens_an_epoch": "tokens an epoch"}),
        ("processbench", results.processbench, {"kept": "solutions scored"}),
        ("prmbench", results.prmbench, {"kept": "solutions scored"}),
        ("sample", {"": results.sample} if results.sample else {}, {"samples": "solutions drawn"}),
        ("search", results.search, {"policy_calls": "calls of the policy in sequence", "candidates": "steps scored"}),
    ]
    rows = []
    for stage, metrics, names in kinds:
        for run, found in metrics.items():
            counts = {**found, **found.get("details", {})}
            said = ", ".join(f"{counts[key]:,} {text}" for key, text in names.items() if counts.get(key) is not None)
            name = "control" if run == CONTROL else f"{stage}@{run}" if run else stage
            rows.append((name, said or NOT_APPLICABLE))
    return rows
