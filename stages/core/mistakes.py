"""The worst mistakes on ProcessBench: where the PRM was surest and wrong, with the scores of every step."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from stages.core.benchmarks import ProcessBenchItem
from stages.core.page import Block, Fold, Listing, Text

_EACH = 3
_LONGEST = 600

Row = Mapping[str, Any]


def worst_mistakes(items: Sequence[ProcessBenchItem], rows: Sequence[Row]) -> list[Block]:
    """Up to three of each kind: errors passed over, false alarms, errors blamed on an earlier step."""
    known = {(item.subset, item.id): item for item in items}
    pairs = [(known[row["subset"], row["id"]], row) for row in rows if (row["subset"], row["id"]) in known]
    kinds: list[tuple[str, Callable[[ProcessBenchItem, Row], bool], Callable[[ProcessBenchItem, Row], float]]] = [
        (
            "Error passed over",
            lambda item, row: item.label >= 0 > row["prediction"],
            lambda item, row: -_reward(row, item.label),
        ),
        (
            "False alarm",
            lambda item, row: item.label < 0 <= row["prediction"],
            lambda item, row: _reward(row, row["prediction"]),
        ),
        (
            "Blamed too early",
            lambda item, row: 0 <= row["prediction"] < item.label,
            lambda item, row: _reward(row, row["prediction"]),
        ),
    ]
    blocks: list[Block] = []
    for title, applies, order in kinds:
        found = sorted((p for p in pairs if applies(*p)), key=lambda p: (order(*p), p[0].subset, p[0].id))
        blocks += [_shown(title, item, row) for item, row in found[:_EACH]]
    return blocks or [Text("No mistake was made, or no prediction is there.")]


def _shown(title: str, item: ProcessBenchItem, row: Row) -> Fold:
    truth = "no step is wrong" if item.label < 0 else f"step {item.label + 1} is the first wrong one"
    said = "none" if row["prediction"] < 0 else f"step {row['prediction'] + 1}"
    notes = {row["prediction"]: " ← the PRM's"} | {item.label: " ← the first wrong one"}
    steps = [
        f"{_cut(text)}  ({_scores(score)}){notes.get(place, '')}"
        for place, (text, score) in enumerate(zip(item.steps, row["steps"], strict=False))
    ]
    marked = frozenset(place for place in (item.label, row["prediction"]) if place >= 0)
    return Fold(
        f"{title}: {item.subset} {item.id}: in truth {truth}; the PRM said {said}",
        [Text(_cut(item.problem)), Listing(steps, marked)],
    )


def _scores(score: Mapping[str, float | None]) -> str:
    return ", ".join(f"{name} {value:.2f}" for name, value in score.items() if value is not None)


def _reward(row: Row, place: int) -> float:
    return float(row["steps"][place]["reward"]) if place < len(row["steps"]) else 0.0


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else text[:_LONGEST] + " …"
