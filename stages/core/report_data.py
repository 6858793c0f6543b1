"""The report's account of the data: where every record went, what the gates said, what overlaps, how training went."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stages.core.figures import Stop, flow_chart, line_chart
from stages.core.page import Block, Figure, Table, Text
from stages.core.results import MISSING, NAMES, Metrics, Results

_TITLES = {
    "prepare": "read upstream",
    "label": "labelled",
    "filter": "consistent",
    "validate": "past the gates",
    "build": "training trees",
}


def accounting(results: Results) -> list[Block]:
    """A drawing and a table: read = kept + dropped + quarantined at every stage."""
    rows: list[tuple[str, ...]] = []
    stops, unbalanced = [], []
    for name, metrics in results.stages.items():
        if metrics is None:
            rows.append((name, MISSING, MISSING, MISSING, MISSING, ""))
            continue
        dropped, quarantined = metrics["dropped"], metrics["quarantined"]
        lost = {**dropped, **{f"{reason} (quarantined)": count for reason, count in quarantined.items()}}
        stops.append(Stop(_TITLES[name], metrics["kept"], lost))
        if metrics["read"] != metrics["kept"] + sum(lost.values()):
            unbalanced.append(name)
        counts = (metrics["read"], metrics["kept"], sum(dropped.values()), sum(quarantined.values()))
        rows.append((name, *(f"{count:,}" for count in counts), _reasons(lost)))
    blocks: list[Block] = []
    if unbalanced:
        blocks.append(Text(f"The books do not balance at: {', '.join(unbalanced)}.", is_notice=True))
    if (prepare := results.stages["prepare"]) is not None and "lines" in prepare:
        read, bad = prepare["lines"]["read"], prepare["lines"]["quarantined"]
        blocks.append(
            Text(f"{read:,} upstream lines were read, {bad:,} of them quarantined; they hold the records below.")
        )
    words = "; ".join(f"{stop.name}: {stop.kept:,} kept, {sum(stop.left.values()):,} left" for stop in stops)
    blocks.append(Figure(flow_chart(stops), words or "No stage has run.", "Records from stage to stage."))
    headers = ("stage", "read", "kept", "dropped", "quarantined", "reasons")
    blocks.append(Table("read = kept + dropped + quarantined, in records (rated steps).", headers, rows))
    if (build := results.stages["build"]) is not None:
        blocks.append(_split(build))
    return blocks


def validation(outcome: Mapping[str, Any] | None) -> list[Block]:
    """How many gates passed, by table."""
    if outcome is None:
        return [Text(f"{MISSING}: run the validate stage.")]
    suites: dict[tuple[str, str], list[bool]] = {}
    for gate in outcome["gates"]:
        suites.setdefault((gate["suite"], gate["file"]), []).append(gate["passed"])
    rows = [(name, file, str(len(passed)), str(sum(passed))) for (name, file), passed in suites.items()]
    failed = sum(not gate["passed"] for gate in outcome["gates"])
    verdict = f"{failed} gates failed." if failed else f"All {len(outcome['gates'])} gates passed."
    return [
        Text(f"{verdict} Each of them: reports/validation/index.html.", is_notice=bool(failed)),
        Table("Gates by suite.", ("suite", "file", "gates", "passed"), rows),
    ]


def overlap(build: Metrics | None) -> list[Block]:
    """Training data that the benchmarks hold too."""
    if build is None:
        return [Text(f"{MISSING}: run the build stage.")]
    rows = []
    for name, found in build["overlap"].items():
        counts = (
            found["items"],
            found["exact_problems"],
            found["near_problems"],
            found["steps"],
            found["exact_steps"],
        )
        share = 100 * found["exact_steps"] / found["steps"] if found["steps"] else 0.0
        rows.append((name, *(f"{count:,}" for count in counts), f"{share:.1f}"))
    headers = ("benchmark", "items", "same problem", "near problem", "steps", "same steps", "same steps, %")
    removed = {reason: count for reason, count in build["dropped"].items() if reason.startswith("overlap")}
    said = f"{sum(removed.values()):,} records were removed for it." if removed else "Nothing was removed for it."
    return [
        Text(f"Items of each benchmark whose problem, and steps whose text, stands in the training data too. {said}"),
        Table("Equal after normalisation (“same”), or similar by word 3-shingles (“near”).", headers, rows),
    ]


def training(results: Results) -> list[Block]:
    """Loss curves and the figures of each variant."""
    if not results.train and not results.logs:
        return [Text(f"{MISSING}: run the train stage.")]
    series = {NAMES[v]: [(float(row["step"]), float(row["loss"])) for row in rows] for v, rows in results.logs.items()}
    ends = "; ".join(f"{name}: from {line[0][1]:.3f} to {line[-1][1]:.3f}" for name, line in series.items() if line)
    drawing = line_chart(series, "optimiser step", "loss a label")
    rows = []
    for variant, found in results.train.items():
        labels = found.get("test_labels", {})
        said = ", ".join(f"{name} {_label(figures)}" for name, figures in labels.items()) if labels else NOT_MEASURED
        steps, loss = found.get("optimiser_steps", 0), found.get("final_loss", float("nan"))
        rows.append((NAMES[variant], f"{found.get('train_records', 0):,}", f"{steps:,}", f"{loss:.3f}", said))
    headers = ("variant", "training records", "optimiser steps", "final loss", "held-out labels")
    return [
        Figure(drawing, f"Training loss by optimiser step. {ends}.", "Training loss."),
        Table("Training, by variant.", headers, rows),
    ]


NOT_MEASURED = "not measured"


def _label(figures: Any) -> str:
    if isinstance(figures, Mapping):
        return " ".join(f"{key} {value:.3f}" for key, value in figures.items() if isinstance(value, float))
    return f"{figures:.3f}" if isinstance(figures, float) else str(figures)


def _split(build: Metrics) -> Table:
    rows = []
    for side in ("train", "test"):
        found = build[side]
        sources = ", ".join(f"{name} {count:,}" for name, count in sorted(found["sources"].items()))
        rows.append((side, *(f"{found[key]:,}" for key in ("records", "trees", "problems")), sources))
    headers = ("side", "records", "trees", "problems", "records by source")
    return Table("The split is by problem; near-duplicate problems fall on one side.", headers, rows)


def _reasons(lost: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in sorted(lost.items(), key=lambda item: (-item[1], item[0])))
