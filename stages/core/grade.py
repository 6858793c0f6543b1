"""The table's row from anyone's prediction file, in the shapes that the field's runners write.

``grade`` scores a file against a benchmark folder; ``render`` prints the result. Numbers are unrounded percent in
JSON and one decimal in the tables.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, get_args

from stages.core import prmbench, processbench
from stages.core.benchmarks import CLASSES, read_prmbench, read_processbench, read_search
from stages.core.grading import Grader, Preset, gold_of
from stages.core.io import DataError, read_json, read_jsonl
from stages.core.params import SearchSet

Kind = Literal["processbench", "prmbench", "search"]
Format = Literal["table", "json", "latex", "markdown"]


def grade(kind: Kind, file: Path, data: Path, preset: Preset = "repaired") -> dict[str, Any]:
    """The benchmark's figures for a prediction file. Raises ``DataError`` that names file and row for a bad one."""
    match kind:
        case "processbench":
            return grade_processbench(file, data, preset)
        case "prmbench":
            return grade_prmbench(file, data, preset)
        case "search":
            return grade_search(file, data, preset)


def grade_processbench(file: Path, data: Path, preset: Preset) -> dict[str, Any]:
    """Rows ``{"subset", "id", "prediction"}``: first wrong step from 0, -1 none, null nothing said.

    The first row of an item stands. Items without a row are missed, and counted in ``details``. Subsets are those
    that the file names.
    """
    found: dict[processbench.Key, int | None] = {}
    repeated = 0
    for number, row in _rows(file):
        subset, identity, said = (row.get(key) for key in ("subset", "id", "prediction"))
        if subset is None and isinstance(identity, str):
            subset = identity.rpartition("-")[0]  # the published runner writes a file a subset, without its name
        if isinstance(said, float) and said.is_integer():
            said = int(said)  # a table with gaps was written by a library that has no whole number beside a null
        whole = "prediction" in row and (said is None or (isinstance(said, int) and not isinstance(said, bool)))
        if not isinstance(subset, str) or identity is None or not whole:
            raise DataError(
                f"{file}: row {number}: expected subset, id and a whole or null prediction, found {str(row)[:120]}; "
                "mend or remove the row"
            )
        repeated += (subset, str(identity)) in found
        found.setdefault((subset, str(identity)), said)
    loaded = read_processbench(data)
    items = [i for i in loaded.items if i.subset in {subset for subset, _ in found}]
    if not items:
        raise DataError(f"{file}: no row names a subset of {data}; check the column 'subset'")
    known = {(item.subset, item.id) for item in items}
    details = {
        "rows": len(found) + repeated,
        "repeated": repeated,
        "without_prediction": len(known - set(found)),
        "nothing_said": sum(found.get(key, 0) is None for key in known),
        "unknown_id": len(set(found) - known),
        "data": {"dropped": loaded.dropped, "defects": loaded.defects},
    }
    return processbench.evaluate(items, found, preset) | {"details": details}


def grade_prmbench(file: Path, data: Path, preset: Preset) -> dict[str, Any]:
    """Rows ``{"idx", "scores": {"step_level_validity_labels": […]}[, "validity"]}`` with the evaluator's ids
    (``<class>_<idx>``). The first row of an id stands; a false ``validity`` gives no answer."""
    loaded = read_prmbench(data)
    classes = {item.idx: item.classification for item in loaded.items}
    found: dict[str, prmbench.Labels | None] = {}
    repeated = 0
    for number, row in _rows(file):
        idx = row.get("idx")
        if not isinstance(idx, str):
            raise DataError(f"{file}: row {number}: idx is {idx!r}; expected <class>_<id>. Mend or remove the row")
        repeated += idx in found
        if idx not in found:
            found[idx] = prmbench.labels_of(f"{file}: row {number}", row, classes.get(idx, ""))
    result = prmbench.evaluate(loaded.items, found, preset)
    result["details"]["defects"]["repeated"] = repeated
    result["details"]["data"] = {"dropped": loaded.dropped, "defects": loaded.defects}
    return result


def grade_search(file: Path, data: Path, preset: Preset) -> dict[str, Any]:
    """Rows as the published search writes them: ``question``, ``pred_answer`` and, where it is there, ``set``.

    Without ``set`` (a published file holds one set) the file's name or its folder's must be the set's. Answers are
    graded against the data's key. Problems without a row are counted in ``details`` and wrong (official: left out, as
    published).
    """
    answers: dict[tuple[str, str], str | None] = {}
    repeated = 0
    for number, row in _rows(file):
        name = row.get("set") or _set_of(file)
        question, said = row.get("question"), row.get("pred_answer")
        wanted = isinstance(question, str) and (said is None or isinstance(said, str))
        if not wanted or name not in get_args(SearchSet):
            raise DataError(
                f"{file}: row {number}: expected question, pred_answer (text or null) and a set of "
                f"{', '.join(get_args(SearchSet))}; add them or mend the row"
            )
        repeated += (str(name), str(question)) in answers
        answers.setdefault((str(name), str(question)), said)
    problems = read_search(data, sorted({name for name, _ in answers})).items
    right: dict[str, list[bool]] = {}
    with Grader() as grader:
        for problem in problems:
            said = answers.get((problem.set, problem.problem))
            if preset == "official" and (problem.set, problem.problem) not in answers:
                continue
            gold = gold_of(problem.set, problem.key, preset)
            right.setdefault(problem.set, []).append(grader.is_right(gold, said, preset))
    if not right:
        raise DataError(f"{file}: no row's question is one of {data}; give the folder with the same problems")
    sets = {name: 100 * sum(hits) / len(hits) for name, hits in right.items()}
    asked = {(problem.set, problem.problem) for problem in problems}
    details = {
        "n": {name: len(hits) for name, hits in right.items()},
        "repeated": repeated,
        "without_row": len(asked - set(answers)),
        "without_answer": sum(said is None for said in answers.values()),
        "unknown_question": len(set(answers) - asked),
        "grading_failures": dict(sorted(grader.failures.items())),
    }
    return {"sets": sets, "average": sum(sets.values()) / len(sets), "details": details}


def _set_of(file: Path) -> str | None:
    return next((name for name in (file.stem, file.parent.name) if name in get_args(SearchSet)), None)


def _rows(file: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Rows of a JSON list or of JSON lines, counted from 1; at least one."""
    if not file.is_file():
        raise DataError(f"{file}: no such file; give a prediction file (.json or .jsonl)")
    with file.open("rb") as handle:
        is_list = handle.read(64).lstrip()[:1] == b"["
    rows = list(enumerate(read_json(file), start=1)) if is_list else list(read_jsonl(file))
    if not rows:
        raise DataError(f"{file}: holds no row; give a file with predictions")
    for number, row in rows:
        if not isinstance(row, dict):
            raise DataError(f"{file}: row {number}: expected an object, found {str(row)[:80]}; mend or remove the row")
        yield number, row


def render(kind: Kind, result: dict[str, Any], form: Format) -> str:
    """The result as text: ``json`` whole, the others as a table of one decimal."""
    if form == "json":
        return json.dumps(result, indent=2, ensure_ascii=False)
    head, rows = _TABLES[kind](result)
    cells = [[_cell(value) for value in row] for row in rows]
    if form == "latex":
        lines = [" & ".join(map(_escape, row)) + r" \\" for row in [list(head), *cells]]
        return "\n".join(
            [f"\\begin{{tabular}}{{l{'r' * (len(head) - 1)}}}", lines[0], r"\hline", *lines[1:], r"\end{tabular}"]
        )
    if form == "markdown":
        rule = ["---"] + ["---:"] * (len(head) - 1)
        return "\n".join("| " + " | ".join(row) + " |" for row in [list(head), rule, *cells])
    widths = [max(len(row[i]) for row in [list(head), *cells]) for i in range(len(head))]
    lines = [row[0].ljust(widths[0]) + "".join(f"  {c.rjust(w)}" for c, w in zip(row[1:], widths[1:], strict=True)) for row in [list(head), *cells]]  # fmt: skip # noqa: E501
    return "\n".join(lines)


def _processbench_table(result: dict[str, Any]) -> tuple[Sequence[str], list[list[Any]]]:
    keys = ("error_acc", "correct_acc", "f1")
    rows = [[name, *(figures[key] for key in keys)] for name, figures in result["subsets"].items()]
    return ("subset", "error", "correct", "F1"), [*rows, ["mean", "", "", result["mean_f1"]]]


def _prmbench_table(result: dict[str, Any]) -> tuple[Sequence[str], list[list[Any]]]:
    rows = [[name, result["classes"][name]] for name in CLASSES if name in result["classes"]]
    rows += [[f"average {name}", score] for name, score in result["categories"].items()]
    return ("class", "PRMScore"), [*rows, ["overall", result["overall"]]]


def _search_table(result: dict[str, Any]) -> tuple[Sequence[str], list[list[Any]]]:
    return ("set", "accuracy"), [*map(list, result["sets"].items()), ["average", result["average"]]]


_TABLES = {"processbench": _processbench_table, "prmbench": _prmbench_table, "search": _search_table}


def _cell(value: Any) -> str:
    return "undefined" if value is None else value if isinstance(value, str) else f"{value:.1f}"


def _escape(text: str) -> str:
    return text.replace("_", r"\_")
