"""The worst mistakes on ProcessBench: the most confident ones, with the typed scores of every step."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from pathfinder.benchmarks.readers import ProcessBenchItem
from pathfinder.core.steps import StepScore
from pathfinder.pages.origins import Origin
from pathfinder.pages.page import Block, Browser, Fold, Text
from pathfinder.pages.picture import picture_of
from pathfinder.reporting.calibration import paired
from pathfinder.reporting.names import CAPTIONS, MISSING
from pathfinder.reporting.origins import from_files
from pathfinder.reporting.page.opening import typed

_EACH = 3
_LONGEST = 600

Row = Mapping[str, Any]
_KINDS: dict[str, Callable[[int, int], bool]] = {  # of the first incorrect step and the flagged step, -1 for none
    "Missed error": lambda truth, flagged: truth >= 0 > flagged,
    "False alarm": lambda truth, flagged: truth < 0 <= flagged,
    "Flagged too early": lambda truth, flagged: 0 <= flagged < truth,
    "Flagged too late": lambda truth, flagged: 0 <= truth < flagged,
}


def worst_mistakes(
    items: Sequence[ProcessBenchItem], systems: Mapping[str, Sequence[Row]], files: Mapping[str, Sequence[str]]
) -> list[Block]:
    """Up to three mistakes of each kind per system; ``systems`` are prediction rows by name, ``files`` their origin.

    The worst one of each kind of the first system is open.
    """
    if not any(systems.values()):
        return [Text(f"{MISSING}: run the processbench stage.")]
    entries: list[Fold] = []
    for number, (system, rows) in enumerate(systems.items()):
        scored = [row for row in rows if row["prediction"] is not None]  # a solution can be too long for the model
        pairs = [*paired(items, scored)]
        for kind, applies in _KINDS.items():
            found = [(item, row) for item, row in pairs if applies(item.label, row["prediction"])]
            found.sort(key=lambda pair: (_order(*pair), pair[0].key))
            origin = from_files("one item", files.get(system, ()))
            cards = [_entry(kind, system, item, row, origin) for item, row in found[:_EACH]]
            entries += [replace(card, is_open=number == place == 0) for place, card in enumerate(cards)]
    if not entries:
        return [Text("There are no mistakes.")]
    return [Text(CAPTIONS["mistakes"].format(each=_EACH)), Browser(entries)]


def _order(item: ProcessBenchItem, row: Row) -> float:
    """The most confident mistakes first: high soundness of a missed error, low soundness of a flagged correct step."""
    is_missed = item.label >= 0 and not 0 <= row["prediction"] < item.label
    place = item.label if is_missed else row["prediction"]
    sound = StepScore.of_row(row["steps"][place]).read("soundness") if place < len(row["steps"]) else 0.0
    return -sound if is_missed else sound


def _entry(kind: str, system: str, item: ProcessBenchItem, row: Row, origin: Origin | None) -> Fold:
    truth, flagged = (str(place + 1) if place >= 0 else "none" for place in (item.label, row["prediction"]))
    notes: dict[int, list[str]] = {}
    for place, note in ((item.label, "true first error"), (row["prediction"], "flagged")):
        notes.setdefault(place, []).append(note)
    steps = typed([_cut(text) for text in item.steps], row["steps"])
    return Fold(
        f"{kind}: {item.id} (first incorrect step: {truth}; flagged: {flagged}; system: {system})",
        [picture_of(_cut(item.problem), steps, notes, origin)],
        {"kind": kind, "subset": item.subset, "system": system},
    )


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else text[:_LONGEST] + " …"
