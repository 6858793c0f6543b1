"""Readers of the benchmarks: ProcessBench, PRMBench and the six search sets.

The published files have defects (named beside each reader). What can be scored is kept and the defect counted;
a row of the wrong shape is a ``DataError`` that names file, row and remedy.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from pathfinder.core.io import DataError, read_json, read_jsonl
from pathfinder.core.records import normalise

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
"""PRMBench's classes in its own spelling and the order of its table."""
CORRECT = "correct"
_SEARCH_NAMES: dict[str, tuple[str, ...]] = {
    "aime24": ("aime24", "AIME24"),
    "amc23": ("amc23", "AMC23"),
    "math": ("math", "math500", "math_500", "MATH"),
    "olympiadbench": ("olympiadbench", "OlympiadBench"),
    "college_math": ("college_math", "College_Math"),
    "minerva_math": ("minerva_math", "Minerva-MATH"),
}
"""Names under which each search set is found, as a file or as a folder with one file."""
ANSWER_KEYS = {"olympiadbench": "final_answer", "minerva_math": "solution"}
"""Where the answer stands when it is not in ``answer`` (published ``Greedy-Seach-Zero-Shot.py``)."""
_ENDINGS = (".json", ".jsonl", ".json.gz", ".jsonl.gz")

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ProcessBenchItem:
    """A solution and its first wrong step (``label`` from 0; -1: none)."""

    subset: str
    id: str
    problem: str
    steps: tuple[str, ...]
    label: int
    final_answer_correct: bool | None
    generator: str

    @property
    def key(self) -> tuple[str, str]:
        """The key of the item's prediction: an id is unique within its subset only."""
        return self.subset, self.id


@dataclass(frozen=True, slots=True)
class PRMBenchItem:
    """A solution and its wrong steps. ``idx`` is the evaluator's: ``<class>_<row's idx>`` or ``correct_<row's idx>``.

    ``error_steps`` count from 1, as in the files, and may name steps that do not exist.
    """

    idx: str
    classification: str
    problem: str
    steps: tuple[str, ...]
    error_steps: tuple[int, ...]

    @property
    def id(self) -> str:
        """``idx``, under the name that items of both benchmarks have."""
        return self.idx

    @property
    def key(self) -> str:
        """The key of the item's prediction."""
        return self.idx


@dataclass(frozen=True, slots=True)
class SearchProblem:
    """A problem with its answer key: ``key`` is the raw value, as the set has it."""

    set: str
    id: str
    problem: str
    key: Any


@dataclass(frozen=True, slots=True)
class Loaded(Generic[T]):
    """What a reader gives: the items kept, how many there were, why the others were dropped, and the defects met."""

    items: list[T]
    read: int
    dropped: dict[str, int]
    defects: dict[str, int]

    def accounting(self) -> dict[str, Any]:
        """For a stage's metrics: read = kept + dropped."""
        return {"read": self.read, "kept": len(self.items), "dropped": self.dropped, "quarantined": {}}


def read_processbench(folder: Path, limit: int = 0) -> Loaded[ProcessBenchItem]:
    """Items of every subset found, in the files' order, ``limit`` a subset at even distances (0: all).

    Known: right answers with a wrong step, and problems repeated inside a subset. Source: Qwen/ProcessBench.
    """
    items: list[ProcessBenchItem] = []
    read = 0
    defects: Counter[str] = Counter(right_answer_wrong_step=0, repeated_problem=0, empty_step=0, label_past_end=0)
    for subset in SUBSETS:
        path = _find(folder, subset)
        if path is None:
            continue
        rows = [_processbench_item(path, number, row, subset) for number, row in _rows(path)]
        _check_unique(path, [row.id for row in rows])
        read += len(rows)
        rows = _spread(rows, limit)
        items += rows
        defects["repeated_problem"] += len(rows) - len({normalise(row.problem) for row in rows})
    if not items:
        raise DataError(f"{folder}: none of {', '.join(f'{s}.json' for s in SUBSETS)}; point at a ProcessBench folder")
    for item in items:
        defects["right_answer_wrong_step"] += item.label != -1 and item.final_answer_correct is True
        defects["empty_step"] += sum(not step.strip() for step in item.steps)
        defects["label_past_end"] += item.label >= len(item.steps)
    return Loaded(items, read, {"limit": read - len(items)}, dict(defects))


def _processbench_item(path: Path, number: int, row: Any, subset: str) -> ProcessBenchItem:
    at = f"{path}: row {number}"
    label = _typed(at, row, "label", int)
    if label < -1:
        raise DataError(f"{at}: label is {label}; expected -1 or a step's place from 0")
    given = row.get("final_answer_correct")
    return ProcessBenchItem(
        subset=subset,
        id=str(row.get("id", f"{subset}-{number - 1}")),
        problem=_typed(at, row, "problem", str),
        steps=_texts(at, row, "steps"),
        label=label,
        final_answer_correct=given if isinstance(given, bool) else None,
        generator=str(row.get("generator", "")),
    )


def read_prmbench(folder: Path, limit: int = 0) -> Loaded[PRMBenchItem]:
    """Items of every class in every ``.jsonl`` of the folder, ``limit`` a class (0: all).

    As in the published loader (``tasks/prmtest_classified/task.py``): the first row of an id stands, and each
    "redundency" row also gives its original solution as a sample of class "correct". Files go by name, where the
    loader takes the directory's order.
    """
    paths = sorted(path for path in folder.glob("*.jsonl*") if path.is_file())
    if not paths:
        raise DataError(f"{folder}: no .jsonl file; point at a PRMBench folder")
    items: dict[str, PRMBenchItem] = {}
    taken: Counter[str] = Counter()
    dropped: Counter[str] = Counter(limit=0, repeated_id=0)
    defects: Counter[str] = Counter(error_step_past_end=0, empty_step=0)
    for path in paths:
        for number, row in _rows(path):
            pair = _prmbench_items(path, number, row)
            if pair[-1].idx in items:
                dropped["repeated_id"] += len(pair)
            elif limit and taken[pair[-1].classification] == limit:
                dropped["limit"] += len(pair)
            else:
                taken[pair[-1].classification] += 1
                items.update({item.idx: item for item in pair})
    for item in items.values():
        defects["error_step_past_end"] += any(not 1 <= step <= len(item.steps) for step in item.error_steps)
        defects["empty_step"] += sum(not step.strip() for step in item.steps)
    kept = list(items.values())
    return Loaded(kept, len(kept) + sum(dropped.values()), dict(dropped), dict(defects))


def _prmbench_items(path: Path, number: int, row: Any) -> list[PRMBenchItem]:
    at = f"{path}: row {number}"
    name, idx = _typed(at, row, "classification", str), _typed(at, row, "idx", str)
    errors = row.get("error_steps")
    if not isinstance(errors, list) or not all(isinstance(step, int) for step in errors):
        raise DataError(f"{at}: error_steps is {errors!r}; expected a list of step numbers from 1")
    if name not in CLASSES:
        raise DataError(f"{at}: classification is {name!r}; expected one of {', '.join(CLASSES)}")
    question = _typed(at, row, "modified_question", str)
    item = PRMBenchItem(f"{name}_{idx}", name, question, _texts(at, row, "modified_process"), tuple(errors))
    if name != "redundency":
        return [item]
    original = _typed(at, row, "original_question", str), _texts(at, row, "original_process")
    return [PRMBenchItem(f"{CORRECT}_{idx}", CORRECT, *original, ()), item]


def read_prmbench_originals(folder: Path) -> list[PRMBenchItem]:
    """The PRM800K solutions that PRMBench's rows were made from: what a training set may hold word for word."""
    originals: dict[str, PRMBenchItem] = {}
    for path in sorted(path for path in folder.glob("*.jsonl*") if path.is_file()):
        for number, row in _rows(path):
            at, item = f"{path}: row {number}", _prmbench_items(path, number, row)[-1]
            problem, steps = _typed(at, row, "original_question", str), _texts(at, row, "original_process")
            originals.setdefault(item.idx, PRMBenchItem(item.idx, item.classification, problem, steps, ()))
    return list(originals.values())


def read_search(folder: Path, sets: Sequence[str], limit: int = 0) -> Loaded[SearchProblem]:
    """Problems of ``sets``, ``limit`` a set at even distances (0: all).

    A missing set is a ``DataError``: averages need them all.
    """
    problems: list[SearchProblem] = []
    read = repeated = 0
    for name in sets:
        path = next((found for other in _SEARCH_NAMES[name] if (found := _find(folder, other))), None)
        if path is None:
            raise DataError(f"{folder}: no file for the search set {name}; add {name}.jsonl or take it off search.sets")
        rows = [_search_problem(path, number, row, name) for number, row in _rows(path)]
        _check_unique(path, [row.id for row in rows])
        read += len(rows)
        rows = _spread(rows, limit)
        problems += rows
        repeated += len(rows) - len({normalise(row.problem) for row in rows})
    return Loaded(problems, read, {"limit": read - len(problems)}, {"repeated_problem": repeated})


def search_sets(folder: Path) -> list[str]:
    """The search sets that the folder has."""
    return [name for name, others in _SEARCH_NAMES.items() if any(_find(folder, other) for other in others)]


def search_set_named(name: str) -> str | None:
    """The search set that a file, folder or column means by ``name``, in the spellings that runners use."""
    return next((known for known, others in _SEARCH_NAMES.items() if name in others), None)


def _search_problem(path: Path, number: int, row: Any, name: str) -> SearchProblem:
    at = f"{path}: row {number}"
    key = ANSWER_KEYS.get(name, "answer")
    if not isinstance(row, dict) or row.get(key) in (None, "", []):
        raise DataError(f"{at}: no {key!r}, which is the answer key of {name}; mend or remove the row")
    problem = _typed(at, row, "problem" if "problem" in row else "question", str)
    names = [row[k] for k in ("unique_id", "id", "idx") if row.get(k) is not None]
    return SearchProblem(name, str(names[0]) if names else str(number - 1), problem, row[key])


def _find(folder: Path, name: str) -> Path | None:
    for stem in (name, f"{name}/test", f"{name}/{name}"):
        for ending in _ENDINGS:
            if (folder / f"{stem}{ending}").is_file():
                return folder / f"{stem}{ending}"
    return None


def _rows(path: Path) -> Iterator[tuple[int, Any]]:
    """Rows of a JSON list or of JSON lines, whatever the name says, counted from 1."""
    if path.name.endswith((".json", ".json.gz")):
        try:
            content = read_json(path)
        except DataError:
            yield from ((number, _clean(row)) for number, row in read_jsonl(path))  # hubs ship lines under .json
            return
        if not isinstance(content, list):
            raise DataError(f"{path}: holds {type(content).__name__}; expected a list of rows")
        yield from ((number, _clean(row)) for number, row in enumerate(content, start=1))
    else:
        yield from ((number, _clean(row)) for number, row in read_jsonl(path))


def _clean(value: Any) -> Any:
    """The value with lone surrogates, which no file and no tokenizer can hold, replaced."""
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-8", "replace").decode()
    if isinstance(value, list):
        return [_clean(item) for item in value]
    return {_clean(k): _clean(v) for k, v in value.items()} if isinstance(value, dict) else value


def _typed(at: str, row: Any, key: str, kind: type[T]) -> T:
    value = row.get(key) if isinstance(row, dict) else None
    if not isinstance(value, kind) or isinstance(value, bool):
        raise DataError(f"{at}: {key} is {value!r:.80}; expected {kind.__name__}. Mend or remove the row")
    return value


def _texts(at: str, row: Any, key: str) -> tuple[str, ...]:
    value = row.get(key) if isinstance(row, dict) else None
    if not isinstance(value, list) or not all(isinstance(step, str) for step in value):
        raise DataError(f"{at}: {key} is {value!r:.80}; expected a list of texts. Mend or remove the row")
    return tuple(value)


def _check_unique(path: Path, ids: list[str]) -> None:
    repeated = sorted(i for i, count in Counter(ids).items() if count > 1)
    if repeated:
        raise DataError(f"{path}: {len(repeated)} ids repeat ({', '.join(repeated[:3])}); give each row its own")


def _spread(rows: list[T], limit: int) -> list[T]:
    """``limit`` rows at even distances: ProcessBench's files have all wrong solutions first."""
    return [rows[place * len(rows) // limit] for place in range(limit)] if 0 < limit < len(rows) else rows
