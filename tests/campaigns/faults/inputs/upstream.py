"""The formats of upstream data: PRM800K, conversations and pairs rated by roll-outs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from ground.io import DataError
from pathfinder.core.records import QUARANTINE
from pathfinder.data.conversion import Counts, _check, convert_batch, open_source
from tests.campaigns.faults.inputs.documents import MISSING, Document, Field, Keys, View, is_some_text, is_whole
from tests.campaigns.faults.inputs.nested import COVERED, whole

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
    return [
        {("question", "problem"): problem, ("label",): (trunk, records), ("labeler",): rater}
        for problem, trunk, records, rater in _read(path, "prm800k")
    ]


def is_rating(value: Any) -> bool:
    """True if PRM800K has such a rating; a step without one is unrated."""
    return value is MISSING or value is None or (value in (-1, 0, 1) and not isinstance(value, bool | str))


def _label(value: Any) -> tuple[list[str], list[tuple[Any, ...]]]:
    """The chosen steps, and the records as (step, completion, text, rating); ``ValueError`` if one must be refused.

    Steps after one without a choice have no known prefix, and no records.
    """
    trunk: list[str] = []
    records: list[tuple[Any, ...]] = []
    is_known = True
    for position, step in enumerate(_part(value, "steps", list)):
        completions = _part(step, "completions", list | None) or []
        if not is_known:
            continue
        for number, one in enumerate(completions):
            if not is_some_text(_part(one, "text")) or not is_rating(_part(one, "rating")):
                raise ValueError(one)
            records.append((position, number, one["text"], None if one.get("rating") is None else int(one["rating"])))
        chosen = _part(step, "chosen_completion")
        if not (chosen is None or is_whole(chosen)):
            raise ValueError(chosen)
        is_listed = chosen is not None and 0 <= chosen < len(completions)
        followed = completions[chosen] if is_listed else _part(step, "human_completion")
        is_known = isinstance(followed, dict) and is_some_text(followed.get("text"))
        trunk += [followed["text"]] if is_known else []
    return (trunk, records) if records else ([], [])


def _part(value: Any, key: str, kind: Any = object) -> Any:
    if not isinstance(value, dict) or not isinstance(value.get(key), kind):
        raise ValueError(value)
    return value.get(key)


def _with_records(view: View) -> View:
    """A line without records has no row in a table but its own."""
    return [row if row["label",][1] else {("label",): row["label",]} for row in view]


_STEPS = ("label", "steps")
PRM800K = Document(
    "PRM800K",
    "prm800k/phase1_train.jsonl",
    tuple(map(_line, range(_ROWS))),
    {
        ("question", "problem"): Field(is_some_text),
        ("label",): whole(_label),
        _STEPS: COVERED,
        (*_STEPS, 0, "completions"): COVERED,
        (*_STEPS, 0, "completions", 0, "text"): COVERED,
        (*_STEPS, 0, "completions", 1, "text"): COVERED,
        (*_STEPS, 0, "completions", 1, "rating"): COVERED,
        (*_STEPS, 0, "human_completion"): COVERED,
        (*_STEPS, 0, "chosen_completion"): COVERED,
        (*_STEPS, 1, "completions", 0, "rating"): COVERED,
        (*_STEPS, 1, "chosen_completion"): COVERED,
        ("labeler",): Field(
            lambda _: True,
            lambda value: None if value in (MISSING, None) else str(value).encode("utf-8", "backslashreplace").decode(),
        ),
    },
    _prm800k,
    together=_with_records,
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
    question, *step = re.split(r"Step\s*1\s*:", text, maxsplit=1, flags=re.IGNORECASE)
    return question.strip(), "".join(step).strip()


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
        lambda value: re.sub(r"^[ \t]*Step\s*\d+\s*:[ \t]*", "", value, flags=re.MULTILINE | re.IGNORECASE).strip(),
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
