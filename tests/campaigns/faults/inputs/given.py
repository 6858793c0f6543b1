"""The formats of files that a person gives to a command: solutions, candidates and predictions."""

from __future__ import annotations

import json
import shutil
from functools import partial
from pathlib import Path
from typing import Any

from pathfinder.benchmarks.grade import predicted_answers, predicted_labels, predicted_steps
from pathfinder.benchmarks.readers import is_answer
from pathfinder.core.given import read_given
from pathfinder.policy.rerank import read_candidates
from pathfinder.prm.results import read_solutions
from tests.campaigns.faults.inputs.benchmarks import PRM_ROW, PROCESS_ROW
from tests.campaigns.faults.inputs.documents import (
    MISSING,
    Document,
    Field,
    Keys,
    View,
    is_whole,
    null_as_missing,
    or_nothing,
)


def _is_str(value: Any) -> bool:
    return isinstance(value, str)


def _is_id(value: Any) -> bool:
    return value is MISSING or is_whole(value) or (_is_str(value) and bool(value.strip()))


def _are_steps(value: Any) -> bool:
    return isinstance(value, list) and all(map(_is_str, value))


def _with_text(value: Any) -> Any:
    """The steps that are scored: none if no step has a text."""
    return value if any(map(str.strip, value)) else []


def _as_text(value: Any) -> Any:
    return MISSING if value is MISSING else str(value)


def _solutions(path: Path) -> View:
    return [
        {("id",): one.id, ("problem",): one.problem, ("steps",): list(one.steps)}
        for one in read_solutions(read_given(str(path)))
    ]


_SOLUTION: dict[Keys, Field] = {
    ("id",): Field(_is_id, _as_text),
    ("problem",): Field(_is_str),
    ("steps",): Field(_are_steps, _with_text),
}
SOLUTIONS = Document("solutions", "given.jsonl", (PROCESS_ROW, PROCESS_ROW | {"id": 7}), _SOLUTION, _solutions)
SOLUTIONS_LIST = Document("solutions, one list", "given.json", SOLUTIONS.rows, _SOLUTION, _solutions, "list")


def _prmbench_solutions(path: Path) -> View:
    return [
        {("id",): one.id, ("modified_question",): one.problem, ("modified_process",): list(one.steps)}
        for one in read_solutions(read_given(str(path)))
    ]


def _with_its_class(view: View) -> View:
    """The id of a solution begins with the class of its row."""
    return [row | {("id",): f"{row['classification',]}_{row['idx',]}", **_NOT_READ} for row in view]


_NOT_READ: dict[Keys, Any] = {("idx",): MISSING, ("classification",): MISSING}


PRMBENCH_SOLUTIONS = Document(
    "solutions, PRMBench",
    "given.jsonl",
    (PRM_ROW, PRM_ROW | {"idx": "a-1"}),
    {
        ("idx",): Field(_is_str),
        ("classification",): Field(_is_str),
        ("modified_question",): Field(_is_str),
        ("modified_process",): Field(_are_steps, _with_text),
    },
    _prmbench_solutions,
    together=_with_its_class,
)


def _candidates(path: Path) -> View:
    return [
        {
            ("id",): one.id,
            ("problem",): one.problem,
            ("solutions",): [list(steps) for steps in one.steps],
            ("answers",): list(one.answers),
        }
        for one in read_candidates(read_given(str(path)))
    ]


def _is_solution(value: Any) -> bool:
    return _is_str(value) or (isinstance(value, list) and all(map(_is_str, value)))


def _is_answer(value: Any) -> bool:
    return value is None or _is_str(value) or is_whole(value) or isinstance(value, float)


def _same_length(view: View) -> View | None:
    pairs = [(row["solutions",], row["answers",]) for row in view]
    return view if all(answers is MISSING or len(steps) == len(answers) for steps, answers in pairs) else None


CANDIDATES = Document(
    "candidates of rerank",
    "given.jsonl",
    tuple(
        {
            "id": number,
            "problem": "What is 1 + 1?",
            "solutions": [["It is two.", "So 2."], ["So 3."]],
            "answers": answers,
        }
        for number, answers in enumerate((["2", "3"], ["2", None]))
    ),
    {
        ("id",): Field(_is_id, _as_text),
        ("problem",): Field(_is_str),
        ("solutions",): Field(
            lambda value: isinstance(value, list) and bool(value) and all(map(_is_solution, value)),
            lambda value: [([one] if one.strip() else []) if _is_str(one) else _with_text(one) for one in value],
        ),
        ("answers",): Field(
            lambda value: value is MISSING or (isinstance(value, list) and all(map(_is_answer, value))),
            lambda value: MISSING if value is MISSING else [None if one is None else str(one) for one in value],
        ),
    },
    _candidates,
    together=_same_length,
)


def _steps_predicted(path: Path) -> View:
    found, _ = predicted_steps(path)
    return [
        {("subset",): subset, ("id",): identity, ("prediction",): prediction}
        for (subset, identity), prediction in found.items()
    ]


def _first_of_each(view: View, keys: tuple[str, ...]) -> View:
    """Without the rows that repeat an id, which are counted."""
    return list({tuple(row[key,] for key in keys): row for row in reversed(view)}.values())[::-1]


def _is_prediction(value: Any) -> bool:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value is None or is_whole(value)


STEP_PREDICTIONS = Document(
    "predictions, ProcessBench",
    "predictions.jsonl",
    tuple({"subset": "gsm8k", "id": f"gsm8k-{number}", "prediction": number - 1} for number in range(2)),
    {
        ("subset",): Field(
            or_nothing(_is_str),
            null_as_missing,  # the published runner's ids contain it
        ),
        ("id",): Field(lambda value: is_whole(value) or _is_str(value), str),
        ("prediction",): Field(_is_prediction, lambda value: None if value is None else int(value)),
    },
    _steps_predicted,
    together=partial(_first_of_each, keys=("subset", "id")),
)


def _labels_predicted(path: Path) -> View:
    found, _ = predicted_labels(path, {})
    return [
        {("idx",): idx, ("scores", "step_level_validity_labels"): labels, ("validity",): labels is not None}
        for idx, labels in found.items()
    ]


def _are_labels(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(one, int | float) and one in (0, 1) for one in value)


LABEL_PREDICTIONS = Document(
    "predictions, PRMBench",
    "predictions.jsonl",
    tuple(
        {"idx": f"circular_a-{number}", "scores": {"step_level_validity_labels": [True, False]}} for number in range(2)
    ),
    {
        ("idx",): Field(_is_str),
        ("scores", "step_level_validity_labels"): Field(_are_labels, lambda value: [bool(one) for one in value]),
    },
    lambda path: [{keys: row[keys] for keys in row if keys != ("validity",)} for row in _labels_predicted(path)],
    together=partial(_first_of_each, keys=("idx",)),
)


def _is_key(value: Any) -> bool:
    parts = value if isinstance(value, list) and value else [value]
    return all(map(is_answer, parts))


_ASKED = {"unique_id": "test/0", "problem": "What is 1 + 1?", "answer": "2"}


def _searched(path: Path) -> View:
    data = path.parent / "data"
    data.mkdir()
    (data / "math.jsonl").write_text(json.dumps(_ASKED) + "\n", encoding="utf-8")
    try:
        rows = predicted_answers(path, data)
    finally:
        shutil.rmtree(data)
    return [
        {
            ("question",): question,
            ("pred_answer",): row.get("pred_answer", MISSING),
            ("gt_answer",): row.get("gt_answer", MISSING),
            ("set",): name,
        }
        for (name, question), found in rows.items()
        for row in found
    ]


SEARCH_PREDICTIONS = Document(
    "predictions, search",
    "predictions.jsonl",
    tuple(
        {"question": "What is 1 + 1?", "pred_answer": answer, "gt_answer": "2", "set": "math"} for answer in ("2", None)
    ),
    {
        ("question",): Field(_is_str),
        ("pred_answer",): Field(or_nothing(_is_str), null_as_missing),
        ("gt_answer",): Field(or_nothing(_is_key), null_as_missing),
        ("set",): Field(lambda value: value in (MISSING, None, "math"), lambda _: "math"),
    },
    _searched,
    may_refuse=True,
)
