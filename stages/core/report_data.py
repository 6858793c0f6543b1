"""The report's account of the data: what the gates said, what overlaps, how training went."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stages.core.figures import line_chart
from stages.core.page import Block, Figure, Fold, Table, Text
from stages.core.record_flow import source_name
from stages.core.results import MISSING, NAMES, NOT_APPLICABLE, Metrics, Results


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
