"""The formats of upstream data: PRM800K, conversations and pairs rated by roll-outs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pathfinder.core.io import DataError
from pathfinder.core.records import QUARANTINE
from pathfinder.data.conversion import Counts, _check, convert_batch, open_source
from tests.faults.inputs.documents import MISSING, Document, Field, View, is_some_text

_ROWS = 2


def _line(number: int) -> dict[str, Any]:
    return {
        "labeler": f"rater-{number}",
        "timestamp": "2022-07-30T14:38:03",
        "generation": None,
        "is_quality_control_question": False,
        "is_initial_screening_question": False,
        "question": {"problem": f"Problem {number}?", "ground_truth_answer": "2"},
        "label": {
            "steps": [
                {
                    "completions": [
                        {"text": "A first step.", "rating": 1, "flagged": None},
                        {"text": "Another one.", "rating": -1, "flagged": None},
                    ],
                    "human_completion": None,
                    "chosen_completion": 0,
                },
                {
                    "completions": [{"text": "The last step.", "rating": 0, "flagged": None}],
                    "human_completion": None,
                    "chosen_completion": 0,
                },
            ],
            "total_time": 1,
            "finish_reason": "solution",
        },
    }


def _read(path: Path, source: str) -> list[tuple[Any, ...]]:
    """The tables' rows per line of a file; a quarantined line or record raises ``DataError`` as the stage's list says.

    Each is ``(problem, trunk, records)`` with records as (position, completion, text, rating).
    """
    opened = open_source(path.parent)
    found: dict[int, tuple[Any, ...]] = {}
    for batch in opened.batches(path, "repaired"):
        tables = convert_batch(batch).tables
        for row in tables["quarantine"].to_pylist():
            said = {key: row[key] for key in QUARANTINE}
            raise DataError(f"{path}:{said['line']}: {said['reason']}: {said['detail']!a}; look at the list")
        steps = tables["steps"].to_pylist()
        for line in tables["lines"].to_pylist():
            named = [row for row in tables["trajectories"].to_pylist() if row["trajectory_id"] == line["line_id"]]
            mine = [
                (row["step_index"], row["completion"], row["step"], row["rating"])
                for row in steps
                if row["trajectory_id"] == line["line_id"]
            ]
            found[line["line"]] = (
                (named[0]["problem"], named[0]["steps"], mine, line["rater"]) if named else (None, [], mine, None)
            )
    if not found:
        _check(opened.folder, Counts(), 0.0)
    return [found[number] for number in sorted(found)]


def _prm800k(path: Path) -> View:
    view: View = []
    for problem, trunk, records, rater in _read(path, "prm800k"):
        first = {(step, completion): (text, rating) for step, completion, text, rating in records}
        view.append(
            {
                ("question", "problem"): problem,
                ("label", "steps", 0, "completions", 0, "text"): trunk[0] if trunk else first[0, 0][0],
                ("label", "steps", 0, "completions", 1, "text"): first[0, 1][0],
                ("label", "steps", 0, "completions", 1, "rating"): first[0, 1][1],
                ("labeler",): rater,
            }
        )
    return view


def is_rating(value: Any) -> bool:
    """Whether PRM800K has such a rating; a step without one is unrated."""
    return value is MISSING or value is None or (value in (-1, 0, 1) and not isinstance(value, bool | str))


PRM800K = Document(
    "PRM800K",
    "prm800k/phase1_train.jsonl",
    tuple(map(_line, range(_ROWS))),
    {
        ("question", "problem"): Field(is_some_text),
        ("label", "steps", 0, "completions", 0, "text"): Field(is_some_text),
        ("label", "steps", 0, "completions", 1, "text"): Field(is_some_text),
        ("label", "steps", 0, "completions", 1, "rating"): Field(
            is_rating, lambda value: None if value in (MISSING, None) else int(value)
        ),
        ("labeler",): Field(
            lambda _: True,
            lambda value: None if value in (MISSING, None) else str(value).encode("utf-8", "backslashreplace").decode(),
        ),
    },
    _prm800k,
)
