"""Readers of the benchmarks: ProcessBench, PRMBench and the six search sets.

The published files have defects. Rows that can be scored are kept, and their defects are counted. Every reader raises
``DataError``, which names the file, the row and the remedy, for a malformed row or a folder without the benchmark.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Generic, TypeVar

from ground.io import DataError, open_bytes
from ground.text import normalise
from pathfinder.core.given import rows_in

SUBSETS = ("gsm8k", "math", "olympiadbench", "omnimath")
CLASSES = (
    "redundency",
    "circular",
    "counterfactual",
    "step_contradiction",
    "domain_inconsistency",
    "confidence",
    "missing_condition",
    "deception",
    "multi_solutions",
)
"""PRMBench's classes as it spells them, in the order of its table."""
CORRECT = "correct"
_SEARCH_NAMES: dict[str, tuple[str, ...]] = {
    "aime24": ("aime24", "AIME24"),
    "amc23": ("amc23", "AMC23"),
    "math": ("math", "math500", "math_500", "MATH"),
    "olympiadbench": ("olympiadbench", "OlympiadBench"),
    "college_math": ("college_math", "College_Math"),
    "minerva_math": ("minerva_math", "Minerva-MATH"),
}
"""The names that each search set has, as a file or as a folder with one file."""
ANSWER_KEYS = {"olympiadbench": "final_answer", "minerva_math": "solution"}
"""The column of the answer if it is not ``answer`` (published ``Greedy-Seach-Zero-Shot.py``)."""
_REMEDY = "Correct or remove the row"
_MOST_STEPS = 1 << 31
"""Labels are stored in 64 bits; no solution has more steps."""
_ENDINGS = (".json", ".jsonl", ".json.gz", ".jsonl.gz")

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ProcessBenchItem:
    """A solution and its first incorrect step (``label``, from 0; -1: none)."""

    subset: str
    id: str
    problem: str
    steps: tuple[str, ...]
    label: int
    final_answer_correct: bool | None
    generator: str

    @property
    def key(self) -> tuple[str, str]:
        """The key of the item's prediction, because an id is unique only within its subset."""
        return self.subset, self.id


@dataclass(frozen=True, slots=True)
class PRMBenchItem:
    """A solution and its incorrect steps.

    ``idx`` follows the evaluator: ``<class>_<row's idx>`` or ``correct_<row's idx>``. ``error_steps`` count from 1, as
    in the files, and may name steps that do not exist. ``origin`` is the normalised original problem, which ``problem``
    may rewrite; empty if unknown.
    """

    idx: str
    classification: str
    problem: str
    steps: tuple[str, ...]
    error_steps: tuple[int, ...]
    origin: str = ""

    @property
    def id(self) -> str:
        """``idx``, under the name that both benchmarks' items share."""
        return self.idx

    @property
    def key(self) -> str:
        """The key of the item's prediction."""
        return self.idx


@dataclass(frozen=True, slots=True)
class SearchProblem:
    """A problem; ``key`` is the raw value of its answer in the set."""

    set: str
    id: str
    problem: str
    key: Any


Row = TypeVar("Row", ProcessBenchItem, SearchProblem)


@dataclass(frozen=True, slots=True)
class Loaded(Generic[T]):
    """The items kept, the number read, the number dropped per reason, and the defects."""

    items: list[T]
    read: int
    dropped: dict[str, int]
    defects: dict[str, int]

    def accounting(self) -> dict[str, Any]:
        """The counts for a stage's metrics: read = kept + dropped."""
        return {"read": self.read, "kept": len(self.items), "dropped": self.dropped, "quarantined": {}}


def read_processbench(folder: Path, limit: int = 0) -> Loaded[ProcessBenchItem]:
    """Items of every subset in the folder, in the files' order, ``limit`` per subset at even distances (0: all).

    Known defects: right answers with an incorrect step, and problems that repeat in a subset. Subsets without a file
    are counted with the defects, because the benchmark's mean is over all four. Raises ``DataError`` for a malformed
    row or a file without rows. Source: Qwen/ProcessBench.
    """
    paths = {subset: path for subset in SUBSETS if (path := _find(folder, subset))}
    items, read, repeated = _read_sets(paths, _processbench_item, limit)
    if not items:
        raise DataError(f"{folder}: none of {', '.join(f'{s}.json' for s in SUBSETS)}; point at a ProcessBench folder")
    defects = {
        "right_answer_wrong_step": sum(item.label != -1 and item.final_answer_correct is True for item in items),
        "repeated_problem": repeated,
        "empty_step": sum(not step.strip() for item in items for step in item.steps),
        "label_past_end": sum(item.label >= len(item.steps) for item in items),
        "missing_subset": len(SUBSETS) - len(paths),
    }
    return Loaded(items, read, {"limit": read - len(items)}, defects)


def _processbench_item(at: str, number: int, row: Any, subset: str) -> ProcessBenchItem:
    label = _typed(at, row, "label", int)
    if not -1 <= label < _MOST_STEPS:
        raise DataError(f"{at}: label is {label}; expected -1 or the index of a step. {_REMEDY}")
    given = row.get("final_answer_correct")
    return ProcessBenchItem(
        subset=subset,
        id=_id(at, row, ("id",)) or f"{subset}-{number - 1}",
        problem=_typed(at, row, "problem", str),
        steps=_texts(at, row, "steps"),
        label=label,
        final_answer_correct=given if isinstance(given, bool) else None,
        generator=str(row.get("generator", "")),
    )


def read_prmbench(folder: Path, limit: int = 0) -> Loaded[PRMBenchItem]:
    """Items of every class in every ``.jsonl`` of the folder, ``limit`` per class (0: all).

    As in the published loader (``tasks/prmtest_classified/task.py``), the first row of an id is used, and each
    "redundency" row also yields its original solution as a sample of class "correct". Files are sorted by name; the
    loader uses the directory's order. Raises ``DataError`` for a malformed row.
    """
    items: dict[str, PRMBenchItem] = {}
    taken: Counter[str] = Counter()
    dropped: Counter[str] = Counter(limit=0, repeated_id=0)
    for at, row in _prmbench_rows(folder):
        pair = _prmbench_items(at, row)
        if pair[-1].idx in items:
            dropped["repeated_id"] += len(pair)
        elif limit and taken[pair[-1].classification] == limit:
            dropped["limit"] += len(pair)
        else:
            taken[pair[-1].classification] += 1
            items.update({item.idx: item for item in pair})
    if not items:
        raise DataError(f"{folder}: no .jsonl file with rows; point at a PRMBench folder")
    kept = list(items.values())
    defects = {
        "error_step_past_end": sum(any(not 1 <= e <= len(item.steps) for e in item.error_steps) for item in kept),
        "empty_step": sum(not step.strip() for item in kept for step in item.steps),
    }
    return Loaded(kept, len(kept) + dropped.total(), dict(dropped), defects)


def read_prmbench_originals(folder: Path) -> list[PRMBenchItem]:
    """The PRM800K solutions that PRMBench's rows come from; a training set may contain them word for word."""
    originals: dict[str, PRMBenchItem] = {}
    for at, row in _prmbench_rows(folder):
        item = _prmbench_items(at, row)[-1]
        originals.setdefault(item.idx, replace(_original(at, row), idx=item.idx, classification=item.classification))
    return list(originals.values())


def _prmbench_rows(folder: Path) -> Iterator[tuple[str, Any]]:
    for path in sorted(path for path in folder.glob("*.jsonl*") if path.is_file()):
        yield from _rows(path)


def _original(at: str, row: Any) -> PRMBenchItem:
    """The solution that the row was made from, as a sample of class "correct"."""
    problem, steps = _typed(at, row, "original_question", str), _texts(at, row, "original_process")
    return PRMBenchItem(f"{CORRECT}_{row['idx']}", CORRECT, problem, steps, ())


def _prmbench_items(at: str, row: Any) -> list[PRMBenchItem]:
    name, idx = _typed(at, row, "classification", str), _typed(at, row, "idx", str)
    if not idx.strip():
        raise DataError(f"{at}: idx is empty; expected the row's name. {_REMEDY}")
    errors = row.get("error_steps")
    if not isinstance(errors, list) or not all(type(step) is int for step in errors):
        raise DataError(f"{at}: error_steps is {errors!r:.80}; expected a list of step numbers from 1. {_REMEDY}")
    if name not in CLASSES:
        raise DataError(f"{at}: classification is {name!r:.80}; expected one of {', '.join(CLASSES)}. {_REMEDY}")
    question = _typed(at, row, "modified_question", str)
    origin = normalise(str(row.get("original_question") or ""))
    item = PRMBenchItem(f"{name}_{idx}", name, question, _texts(at, row, "modified_process"), tuple(errors), origin)
    return [_original(at, row), item] if name == "redundency" else [item]


def read_search(folder: Path, sets: Sequence[str], limit: int = 0) -> Loaded[SearchProblem]:
    """Problems of ``sets``, ``limit`` per set at even distances (0: all); raises ``DataError`` if a set is missing."""
    paths = {}
    for name in sets:
        path = next((found for other in _SEARCH_NAMES[name] if (found := _find(folder, other))), None)
        if path is None:
            raise DataError(
                f"{folder}: no file for the search set {name}; add {name}.jsonl or remove it from search.sets"
            )
        paths[name] = path
    problems, read, repeated = _read_sets(paths, _search_problem, limit)
    return Loaded(problems, read, {"limit": read - len(problems)}, {"repeated_problem": repeated})


def read_problems(path: Path, limit: int = 0) -> Loaded[SearchProblem]:
    """Problems of one file in the form of the search sets (problem, answer); the set has the file's name.

    Raises ``DataError`` for a missing file or a bad row.
    """
    if not path.is_file():
        raise DataError(f'{path}: no such file; give JSON lines of {{"problem", "answer"}}')
    stem = path.name.partition(".")[0]
    name = search_set_named(stem) or stem
    problems, read, repeated = _read_sets({name: path}, _search_problem, limit)
    return Loaded(problems, read, {"limit": read - len(problems)}, {"repeated_problem": repeated})


def search_sets(folder: Path) -> list[str]:
    """The search sets in the folder."""
    return [name for name, others in _SEARCH_NAMES.items() if any(_find(folder, other) for other in others)]


def search_set_named(name: str) -> str | None:
    """The search set that has ``name`` as a spelling, or ``None``."""
    return next((known for known, others in _SEARCH_NAMES.items() if name in others), None)


def _search_problem(at: str, number: int, row: Any, name: str) -> SearchProblem:
    key = ANSWER_KEYS.get(name, "answer")
    given = row.get(key) if isinstance(row, dict) else None
    parts = given if isinstance(given, list) and name != "minerva_math" else [given]
    if not parts or not all(map(is_answer, parts)):
        raise DataError(
            f"{at}: {key}, the column of {name}'s answers, is {given!r:.80}; expected a text or a number. {_REMEDY}"
        )
    problem = _typed(at, row, "problem" if "problem" in row else "question", str)
    return SearchProblem(name, _id(at, row, ("unique_id", "id", "idx")) or str(number - 1), problem, given)


def is_answer(value: Any) -> bool:
    """True if a value can be the answer to a problem: a text or a finite number."""
    if isinstance(value, int | float):
        return not isinstance(value, bool) and math.isfinite(value)
    return isinstance(value, str) and bool(value.strip())


def _id(at: str, row: dict[str, Any], keys: Sequence[str]) -> str | None:
    """The first of these keys that the row has; raises ``DataError`` if it is neither a text nor an integer."""
    key, value = next(((key, row[key]) for key in keys if row.get(key) is not None), ("", None))
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, str | int) or not str(value).strip():
        raise DataError(f"{at}: {key} is {value!r:.80}; expected a text or an integer. {_REMEDY}")
    return str(value)


def _read_sets(
    paths: Mapping[str, Path], make: Callable[[str, int, Any, str], Row], limit: int
) -> tuple[list[Row], int, int]:
    """The rows of each set that the limit keeps, the number read, and the number of problems that repeat in a set."""
    kept: list[Row] = []
    read = repeated = 0
    for name, path in paths.items():
        rows = [make(at, number, row, name) for number, (at, row) in enumerate(_rows(path), start=1)]
        if not rows:
            raise DataError(f"{path}: contains no row; fetch the file again")
        again = sorted(i for i, count in Counter(row.id for row in rows).items() if count > 1)
        if again:
            raise DataError(f"{path}: {len(again)} ids repeat ({', '.join(again[:3])}); give each row its own id")
        read += len(rows)
        if 0 < limit < len(rows):  # at even distances, because ProcessBench's files start with all incorrect solutions
            rows = [rows[place * len(rows) // limit] for place in range(limit)]
        kept += rows
        repeated += len(rows) - len({normalise(row.problem) for row in rows})
    return kept, read, repeated


def _find(folder: Path, name: str) -> Path | None:
    for stem in (name, f"{name}/test", f"{name}/{name}"):
        for ending in _ENDINGS:
            if (folder / f"{stem}{ending}").is_file():
                return folder / f"{stem}{ending}"
    return None


def _rows(path: Path) -> Iterator[tuple[str, Any]]:
    """The place for messages and the row, of a JSON list or of JSON lines, whatever the file's name."""
    with open_bytes(path) as handle:
        yield from ((at, _clean(row)) for at, row in rows_in(str(path), handle))


def _clean(value: Any) -> Any:
    """The value with lone surrogates replaced, because neither files nor tokenizers accept them."""
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-8", "replace").decode()
    if isinstance(value, list):
        return [_clean(item) for item in value]
    return {_clean(k): _clean(v) for k, v in value.items()} if isinstance(value, dict) else value


def _typed(at: str, row: Any, key: str, kind: type[T]) -> T:
    value = row.get(key) if isinstance(row, dict) else None
    if not isinstance(value, kind) or isinstance(value, bool):
        raise DataError(f"{at}: {key} is {value!r:.80}; expected {kind.__name__}. {_REMEDY}")
    return value


def _texts(at: str, row: Any, key: str) -> tuple[str, ...]:
    value = row.get(key) if isinstance(row, dict) else None
    if not isinstance(value, list) or not value or not all(isinstance(step, str) for step in value):
        raise DataError(f"{at}: {key} is {value!r:.80}; expected a list of texts. {_REMEDY}")
    return tuple(value)
