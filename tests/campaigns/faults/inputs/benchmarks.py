"""The formats of the benchmarks: ProcessBench, PRMBench and the six search sets."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from pathfinder.benchmarks.readers import (
    ANSWER_KEYS,
    CLASSES,
    read_prmbench,
    read_processbench,
    read_search,
)
from tests.campaigns.faults.inputs.documents import MISSING, Document, Field, Keys, View, is_whole

PROCESS_ROW = {
    "id": "gsm8k-0",
    "generator": "a model",
    "problem": "What is 1 + 1?",
    "steps": ["It is two.", "So 2."],
    "final_answer_correct": True,
    "label": -1,
}
PRM_ROW = {
    "original_question": "What is 1 + 1?",
    "modified_question": "What is one and one?",
    "original_process": ["It is two.", "So 2."],
    "modified_process": ["It is two.", "That is two.", "So 2."],
    "error_steps": [2],
    "classification": "redundency",
    "idx": "a-0",
}
_SEARCH_ROW = {"unique_id": "test/0", "problem": "What is 1 + 1?", "level": 1}


def replaced(value: Any) -> Any:
    """A text as the readers give it: lone surrogates are replaced, because no tokenizer reads them."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        return {replaced(key): replaced(item) for key, item in value.items()}
    return [replaced(item) for item in value] if isinstance(value, list) else value


def _is_str(value: Any) -> bool:
    return isinstance(value, str)


def _are_str(value: Any) -> bool:
    return isinstance(value, list) and all(map(_is_str, value))


def _is_id(value: Any) -> bool:
    return value in (MISSING, None) or is_whole(value) or (_is_str(value) and bool(value.strip()))


def _id_read(value: Any) -> Any:
    return MISSING if value in (MISSING, None) else replaced(str(value))


def _different(view: View, key: str) -> View | None:
    """The view if the ids of its rows differ."""
    ids = [row[key,] for row in view if row[key,] is not MISSING]
    return view if len(set(ids)) == len(ids) else None


def _first_of_each(view: View) -> View:
    """Without the rows that repeat an id, which the reader counts."""
    return list({row["idx",]: row for row in reversed(view)}.values())[::-1]


def _processbench(path: Path) -> View:
    return [
        {("id",): item.id, ("problem",): item.problem, ("steps",): list(item.steps), ("label",): item.label}
        for item in read_processbench(path.parent).items
    ]


PROCESSBENCH = Document(
    "ProcessBench",
    "gsm8k.json",
    (PROCESS_ROW, PROCESS_ROW | {"id": "gsm8k-1", "label": 1}),
    {
        ("id",): Field(_is_id, _id_read),
        ("problem",): Field(_is_str, replaced),
        ("steps",): Field(lambda value: _are_str(value) and bool(value), replaced),
        ("label",): Field(lambda value: is_whole(value) and -1 <= value < 2**31),
    },
    _processbench,
    "list",
    together=partial(_different, key="id"),
)
PROCESSBENCH_LINES = Document(
    "ProcessBench, JSON lines",
    "gsm8k.jsonl",
    PROCESSBENCH.rows,
    PROCESSBENCH.fields,
    _processbench,
    together=partial(_different, key="id"),
)


def _prmbench(path: Path) -> View:
    items = iter(read_prmbench(path.parent).items)
    view: View = []
    for correct, item in zip(items, items, strict=True):
        view.append(
            {
                ("idx",): item.idx.removeprefix("redundency_"),
                ("classification",): item.classification,
                ("modified_question",): item.problem,
                ("modified_process",): list(item.steps),
                ("error_steps",): list(item.error_steps),
                ("original_question",): correct.problem,
                ("original_process",): list(correct.steps),
            }
        )
    return view


PRMBENCH = Document(
    "PRMBench",
    "prmbench.jsonl",
    (PRM_ROW, PRM_ROW | {"idx": "a-1"}),
    {
        ("idx",): Field(lambda value: _is_str(value) and bool(value.strip()), replaced),
        ("classification",): Field(lambda value: value in CLASSES if _is_str(value) else False),
        ("modified_question",): Field(_is_str, replaced),
        ("modified_process",): Field(lambda value: _are_str(value) and bool(value), replaced),
        ("error_steps",): Field(lambda value: isinstance(value, list) and all(is_whole(step) for step in value)),
        ("original_question",): Field(_is_str, replaced),
        ("original_process",): Field(lambda value: _are_str(value) and bool(value), replaced),
    },
    _prmbench,
    together=_first_of_each,
)


def _search(path: Path, name: str) -> View:
    key = ANSWER_KEYS.get(name, "answer")
    return [
        {("unique_id",): item.id, ("problem",): item.problem, (key,): item.key}
        for item in read_search(path.parent, [name]).items
    ]


def _search_set(name: str, answer: Any, accepts: Callable[[Any], bool]) -> Document:
    key = ANSWER_KEYS.get(name, "answer")
    rows = tuple(_SEARCH_ROW | {"unique_id": f"test/{number}", key: answer} for number in range(2))
    fields: dict[Keys, Field] = {
        ("unique_id",): Field(_is_id, _id_read),
        ("problem",): Field(_is_str, replaced),
        (key,): Field(accepts, replaced),
    }
    read, together = partial(_search, name=name), partial(_different, key="unique_id")
    return Document(f"search set {name}", f"{name}.jsonl", rows, fields, read, together=together)


def _is_answer(value: Any) -> bool:
    if isinstance(value, int | float):
        return not isinstance(value, bool) and math.isfinite(value)
    return _is_str(value) and bool(value.strip())


def _are_answers(value: Any) -> bool:
    return _is_answer(value) or (isinstance(value, list) and bool(value) and all(map(_is_answer, value)))


SEARCH = (
    *(_search_set(name, "2", _are_answers) for name in ("math", "aime24", "amc23", "college_math")),
    _search_set("olympiadbench", ["$2$"], _are_answers),
    _search_set("minerva_math", r"So $\boxed{2}$.", _is_answer),
)
