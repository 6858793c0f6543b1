"""The kinds of mistakes on ProcessBench, and their order."""

from __future__ import annotations

from typing import Any

from pathfinder.benchmarks.readers import ProcessBenchItem
from pathfinder.pages.page import Browser, Fold, Text
from pathfinder.pages.picture import Picture
from pathfinder.reporting.page.mistakes import worst_mistakes


def _item(name: str, label: int) -> ProcessBenchItem:
    return ProcessBenchItem("math", name, "p", ("a", "b", "c"), label, None, "g")


def _row(name: str, prediction: int, *rewards: float) -> dict[str, Any]:
    return {"subset": "math", "id": name, "prediction": prediction, "steps": [{"reward": r} for r in rewards]}


def _entries(items: list[ProcessBenchItem], rows: list[dict[str, Any]]) -> list[Fold]:
    lead, browser = worst_mistakes(items, {"PRM": rows}, {"PRM": ["artifacts/predictions/processbench/full.jsonl"]})
    assert isinstance(lead, Text)
    assert isinstance(browser, Browser)
    return list(browser.entries)


def test_each_kind_of_mistake_is_named_with_both_steps() -> None:
    items = [_item("missed", 1), _item("alarm", -1), _item("early", 2), _item("late", 0), _item("right", 1)]
    rows = [
        _row("missed", -1, 0.9, 0.8, 0.9),
        _row("alarm", 0, 0.1),
        _row("early", 1, 0.9, 0.2, 0.1),
        _row("late", 2, 0.9, 0.9, 0.1),
        _row("right", 1, 0.9, 0.1, 0.9),
        _row("unknown", 1, 0.9, 0.1, 0.9),
    ]
    entries = _entries(items, rows)
    assert [entry.summary for entry in entries] == [
        "Missed error: missed (first incorrect step: 2; flagged: none; system: PRM)",
        "False alarm: alarm (first incorrect step: none; flagged: 1; system: PRM)",
        "Flagged too early: early (first incorrect step: 3; flagged: 2; system: PRM)",
        "Flagged too late: late (first incorrect step: 1; flagged: 3; system: PRM)",
    ]
    assert [entry.is_open for entry in entries] == [True] * 4
    (picture,) = entries[1].blocks
    assert isinstance(picture, Picture)
    assert picture.columns == ("useful",)
    assert [(row.figures, row.badges) for row in picture.rows] == [
        ((0.1,), ("flagged", "wrong or not useful")),
        ((None,), ()),
        ((None,), ()),
    ]
    (late,) = entries[3].blocks
    assert isinstance(late, Picture)
    assert [row.badges for row in late.rows] == [("true first error",), (), ("flagged", "wrong or not useful")]


def test_the_most_confident_mistakes_come_first_and_three_are_kept() -> None:
    rewards = [0.55, 0.95, 0.75, 0.85, 0.6, 0.7]
    items = [_item(str(place), 0) for place in range(6)]
    missed = _entries(items, [_row(str(place), -1, reward) for place, reward in enumerate(rewards)])
    assert [entry.summary.split()[2] for entry in missed] == ["1", "3", "2"]
    assert [entry.is_open for entry in missed] == [True, False, False]
    items = [_item(str(place), -1) for place in range(6)]
    alarms = _entries(items, [_row(str(place), 0, 1 - reward) for place, reward in enumerate(rewards)])
    assert [entry.summary.split()[2] for entry in alarms] == ["1", "3", "2"]


def test_no_mistakes_give_a_sentence() -> None:
    (text,) = worst_mistakes([_item("right", 1)], {"PRM": [_row("right", 1, 0.9, 0.1)]}, {})
    assert text == Text("There are no mistakes.")
    assert worst_mistakes([], {"PRM": []}, {}) == [Text("missing: run the processbench stage.")]
