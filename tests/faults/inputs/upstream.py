"""The formats of upstream data: PRM800K, conversations and pairs rated by roll-outs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from pathfinder.core.io import DataError
from pathfinder.core.records import QUARANTINE
from pathfinder.data.conversion import Counts, _check, convert_batch, open_source
from tests.faults.inputs.documents import MISSING, Document, Field, Keys, View, is_some_text

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


def _talk(number: int) -> dict[str, Any]:
    turns = (
        ("user", f"Question {number}? Step 1: Add."),
        ("assistant", "+"),
        ("user", "Step 2: Done."),
        ("assistant", "-"),
    )
    return {"conversations": [{"content": content, "role": role} for role, content in turns]}


_FIRST, _MARK, _SECOND = (("conversations", turn, "content") for turn in (0, 1, 2))


def _split(text: str) -> tuple[str, str]:
    question, _, step = text.partition("Step 1:")
    return question.strip(), step.strip()


def _conversations(path: Path) -> View:
    return [
        {_FIRST: (problem, trunk[0]), _MARK: records[0][3], _SECOND: trunk[1]}
        for problem, trunk, records, _ in _read(path, "mistral")
    ]


def _is_mark(value: Any) -> bool:
    return value in (MISSING, None) or (isinstance(value, str) and value.strip() in ("+", "-"))


_TURNS: dict[Keys, Field] = {
    _FIRST: Field(lambda value: is_some_text(value) and all(_split(value)), _split),
    _MARK: Field(_is_mark, lambda value: None if value in (MISSING, None) else {"+": 1, "-": -1}[value.strip()]),
    _SECOND: Field(
        lambda value: is_some_text(value) and bool(value.replace("Step 2:", "").strip()),
        lambda value: re.sub(r"^[ \t]*Step\s*\d+\s*:[ \t]*", "", value, flags=re.MULTILINE).strip(),
    ),
}
RLHFLOW = Document(
    "RLHFlow-Mistral", "mistral/a.jsonl", tuple(map(_talk, range(2))), _TURNS, _conversations, may_refuse=True
)
RLHFLOW_LIST = Document(
    "RLHFlow-Mistral, one list", "mistral/a.json", RLHFLOW.rows, _TURNS, _conversations, "list", may_refuse=True
)


def _pair(number: int) -> dict[str, Any]:
    steps = f"Question {number}? Step 1: Add. {{}}\nStep 2: Done. {{}}"
    return {"input": steps.format("ки", "ки"), "label": steps.format("+", "-"), "task": "GSM8K"}


def _pairs(path: Path) -> View:
    return [
        {("input",): [problem, *trunk], ("label",): [record[3] for record in records]}
        for problem, trunk, records, _ in _read(path, "math_shepherd")
    ]


def _of_pair(value: str) -> list[str]:
    question, _, rest = value.partition("Step 1:")
    first, _, second = rest.partition("ки\nStep 2:")
    return [question.strip(), first.strip(), second.removesuffix("ки").strip()]


SHEPHERD = Document(
    "Math-Shepherd",
    "math_shepherd/a.jsonl",
    tuple(map(_pair, range(2))),
    {
        ("input",): Field(
            lambda value: is_some_text(value) and value.count("ки") == 2 and all(_of_pair(value)), _of_pair
        ),
        ("label",): Field(
            lambda value: is_some_text(value) and "+" in value,
            lambda value: [1 if mark == "+" else -1 for mark in value if mark in "+-"],
        ),
    },
    _pairs,
    together=lambda view: view,
    may_refuse=True,
)
