"""Predictions about published systems, which were written down before any of these systems was measured here.

They follow from one assumption: the reward of the authors' checkpoint means "without an error and useful", the labels
of its first pass only "without an error". Each holds or fails by the bound that it states. A prediction about a system
without prediction files is left out; the others are about the items that the system was measured on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from pathfinder.benchmarks import prmbench, processbench
from pathfinder.benchmarks.readers import PRMBenchItem
from pathfinder.core.readings import DEFINITION
from pathfinder.core.steps import StepScore, by_reading
from pathfinder.pages.origins import Sourced
from pathfinder.pages.page import Block, Table
from pathfinder.reporting.evidence import Evidence
from pathfinder.reporting.names import CAPTIONS, TEXTS
from pathfinder.reporting.origins import from_files

AUTHORS, QWEN = "pathfinder-prm-7b", "qwen-prm800k"
LEAST_GAP, LEAST_SIMPLICITY, PUBLISHED_SCORE, NEAR_CHANCE = 3.0, 62.0, 67.7, 5.0
"""Points of F1 and of PRMBench; the third is the checkpoint's published PRMScore."""
_THRESHOLDS = tuple(percent / 100 for percent in range(5, 100, 5))
Scores = Mapping[Any, Sequence[StepScore]]
"""The scores of each item's steps."""


def scores_of(rows: Iterable[Mapping[str, Any]]) -> Scores:
    """The scores in the rows of a prediction file by the key of their item; none for an item without scores."""
    return {
        row.get("idx") or (row["subset"], row["id"]): [StepScore.of_row(step) for step in row["steps"]] for row in rows
    }


def prmbench_figures(
    items: Sequence[PRMBenchItem], scores: Scores, reading: str, threshold: float = 0.5
) -> dict[str, float]:
    """PRMScore and the categories by a reading, in percent; items without scores do not count."""
    labels = {
        item.idx: prmbench.decisive(by_reading(scores[item.idx], reading, threshold), item.classification)
        for item in items
        if scores.get(item.idx)
    }
    figures = prmbench.evaluate(items, labels)
    return {"PRMScore": figures["overall"], **figures["categories"]}


def registered(evidence: Evidence) -> list[Block]:
    """A table of the predictions whose systems were measured; empty if there are none."""
    rows: list[tuple[str, ...]] = []
    bounds = {"gap": LEAST_GAP, "simplicity": LEAST_SIMPLICITY, "published": PUBLISHED_SCORE, "chance": NEAR_CHANCE}
    for name, (file, test) in _PREDICTIONS.items():
        scores = scores_of(evidence.rows(file))
        if any(scores.values()) and (found := test(evidence, scores)):
            origin = from_files("figures", evidence.files(file))
            says = TEXTS["registered"][name].format(**bounds)
            rows.append((says, Sourced(found[0], origin), Sourced("holds" if found[1] else "fails", origin)))
    return [Table(CAPTIONS["registered"], ("prediction", "found", "verdict"), rows)] if rows else []


def _gap(evidence: Evidence, scores: Scores) -> tuple[str, bool]:
    items = [item for item in evidence.processbench_items if item.key in scores]
    labels, reward = (
        processbench.evaluate(
            items,
            {key: processbench.first_error(by_reading(steps, by).correct) for key, steps in scores.items() if steps},
        )["mean_f1"]
        for by in ("soundness", "quality")
    )
    return f"{labels:.1f} by the labels, {reward:.1f} by the reward", labels - reward >= LEAST_GAP


def _alarms(evidence: Evidence, scores: Scores) -> tuple[str, bool] | None:
    flagged = [
        step
        for item in evidence.processbench_items
        for step in scores.get(item.key, ())[: item.label if item.label >= 0 else None]
        if step.reward < 0.5
    ]
    sound = sum(not step.has_error for step in flagged)
    return (f"{sound:,} of {len(flagged):,} flagged correct steps", 2 * sound > len(flagged)) if flagged else None


def _by_definition(evidence: Evidence, scores: Scores) -> tuple[str, bool]:
    found = prmbench_figures(evidence.prmbench_items, scores, DEFINITION)
    holds = found.get("simplicity", 0.0) >= LEAST_SIMPLICITY and found["PRMScore"] > PUBLISHED_SCORE
    return ", ".join(f"{name} {value:.1f}" for name, value in found.items()), holds


def _at_chance(evidence: Evidence, scores: Scores) -> tuple[str, bool]:
    items = [item for item in evidence.prmbench_items if item.key in scores]
    found = {at: prmbench_figures(items, scores, "quality", at).get("simplicity", 0.0) for at in _THRESHOLDS}
    best = max(found, key=lambda at: found[at])
    trivial = prmbench.trivial_predictors(items, evidence.report).values()
    chance = max(figures["categories"].get("simplicity", 0.0) for figures in trivial)
    text = f"simplicity {found[best]:.1f} at threshold {best:g}, {chance:.1f} without a model"
    return text, found[best] <= chance + NEAR_CHANCE


_PREDICTIONS: Mapping[str, tuple[str, Callable[[Evidence, Scores], tuple[str, bool] | None]]] = {
    "P1": (f"processbench/{AUTHORS}.jsonl", _gap),
    "P2": (f"processbench/{AUTHORS}.jsonl", _alarms),
    "P3": (f"prmbench/{AUTHORS}.jsonl", _by_definition),
    "P4": (f"prmbench/{QWEN}.jsonl", _at_chance),
}
"""For each prediction, the file of a system's predictions, and its test: words, and whether it holds."""
