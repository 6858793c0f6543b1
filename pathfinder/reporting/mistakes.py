"""The worst mistakes on ProcessBench: where a PRM was surest and wrong, with the typed scores of every step."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pathfinder.benchmarks.readers import ProcessBenchItem
from pathfinder.pages.page import Block, Browser, Fold, Listing, Text

_EACH = 5
_LONGEST = 600

Row = Mapping[str, Any]
_Order = Callable[[ProcessBenchItem, Row], float]
_KINDS: tuple[tuple[str, Callable[[ProcessBenchItem, Row], bool], _Order], ...] = (
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
    (
        "Blamed too late",
        lambda item, row: 0 <= item.label < row["prediction"],
        lambda item, row: -_reward(row, item.label),
    ),
)


def worst_mistakes(items: Sequence[ProcessBenchItem], systems: Mapping[str, Sequence[Row]]) -> list[Block]:
    """Up to five of each kind and system: errors passed over, false alarms, errors blamed too early or too late.

    ``systems`` are the prediction rows of each, by its name.
    """
    known = {(item.subset, item.id): item for item in items}
    entries: list[Fold] = []
    for system, rows in systems.items():
        pairs = [(known[row["subset"], row["id"]], row) for row in rows if (row["subset"], row["id"]) in known]
        for kind, applies, order in _KINDS:
            found = sorted((p for p in pairs if applies(*p)), key=lambda p: (order(*p), p[0].subset, p[0].id))
            entries += [_shown(kind, system, item, row) for item, row in found[:_EACH]]
    if not entries:
        return [Text("No mistake was made, or no prediction is there.")]
    said = (
        f"Up to {_EACH} of each kind and system, the surest first, with every label's probability and the reward "
        "of each step as the system gave them."
    )
    return [Text(said), Browser(entries)]


def _shown(kind: str, system: str, item: ProcessBenchItem, row: Row) -> Fold:
    truth = "no step is wrong" if item.label < 0 else f"step {item.label + 1} is the first wrong one"
    said = "none" if row["prediction"] < 0 else f"step {row['prediction'] + 1}"
    notes = {row["prediction"]: " ← the PRM's"} | {item.label: " ← the first wrong one"}
    scores = [_scores(score) for score in row["steps"]]
    steps = [
        f"{_cut(text)}  ({scores[place] if place < len(scores) else 'not scored'}){notes.get(place, '')}"
        for place, text in enumerate(item.steps)
    ]
    marked = frozenset(place for place in (item.label, row["prediction"]) if place >= 0)
    return Fold(
        f"{kind}: {item.subset} {item.id}: in truth {truth}; {system} said {said}",
        [Text(_cut(item.problem)), Listing(steps, marked)],
        {"kind": kind, "subset": item.subset, "system": system},
    )


def _scores(score: Mapping[str, float | None]) -> str:
    return ", ".join(f"{name} {value:.2f}" for name, value in score.items() if value is not None)


def _reward(row: Row, place: int) -> float:
    return float(row["steps"][place]["reward"]) if place < len(row["steps"]) else 0.0


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else text[:_LONGEST] + " …"
