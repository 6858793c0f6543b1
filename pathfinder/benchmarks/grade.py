"""The table's row from anyone's prediction file, in the shapes that the field's runners write.

``grade`` scores a file against a benchmark folder; ``render`` prints the result. Numbers are unrounded percent in
JSON and one decimal in the tables.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, get_args

from pathfinder.benchmarks import prmbench, processbench
from pathfinder.benchmarks.grading import Grader, GradingPreset, gold_of
from pathfinder.benchmarks.readers import (
    CLASSES,
    read_prmbench,
    read_processbench,
    read_search,
    search_set_named,
    search_sets,
)
from pathfinder.core.io import DataError, read_json, read_jsonl
from pathfinder.core.params import SearchSet

Kind = Literal["processbench", "prmbench", "search"]
Format = Literal["table", "json", "latex", "markdown"]
_PARTS: dict[Kind, tuple[str, ...]] = {
    "processbench": ("*_error.jsonl", "*_correct.jsonl"),
    "prmbench": (),
    "search": ("*/result-*.json",),
}
"""Files that a published runner leaves in its output folder."""
_COUNTED = {
    "without_prediction": "items without a row ({lacking})",
    "without_row": "problems without a row ({without})",
    "nothing_said": "items of which nothing was said (missed)",
    "without_answer": "rows without an answer (wrong)",
    "invalid": "answers declared invalid (left out)",
    "repeated": "repeated rows ({repeated})",
    "unknown_id": "ids that the data do not have (left out)",
    "unknown_question": "questions that the data do not have ({unknown})",
    "other_key": "rows whose gt_answer is not the data's key (the row's is used)",
    "steps_without_label": "steps without a label (left out)",
    "labels_without_step": "labels without a step ({beyond})",
    "grading_failures": "answers without a verdict (not right)",
}
"""Counts in ``details`` as ``notes`` says them."""
_CELLS = ("TP", "FP", "TN", "FN")


def grade(kind: Kind, file: Path, data: Path, preset: GradingPreset = "repaired") -> dict[str, Any]:
    """The benchmark's figures for a prediction file, or for a folder as the published ProcessBench and search runners
    leave it. Raises ``DataError`` that names file and row for a bad one."""
    match kind:
        case "processbench":
            return grade_processbench(file, data, preset)
        case "prmbench":
            return grade_prmbench(file, data, preset)
        case "search":
            return grade_search(file, data, preset)


def grade_processbench(file: Path, data: Path, preset: GradingPreset) -> dict[str, Any]:
    """Rows ``{"subset", "id", "prediction"}``: first wrong step from 0, -1 none, null nothing said.

    The first row of an item stands. Items without a row are missed, and counted in ``details``. Subsets are those
    that the file names.
    """
    found: dict[processbench.Key, int | None] = {}
    repeated = 0
    for _, at, row in _rows("processbench", file):
        subset, identity, said = (row.get(key) for key in ("subset", "id", "prediction"))
        if subset is None and isinstance(identity, str):
            subset = identity.rpartition("-")[0]  # the published runner writes a file a subset, without its name
        if isinstance(said, float) and said.is_integer():
            said = int(said)  # a table with gaps was written by a library that has no whole number beside a null
        whole = "prediction" in row and (said is None or (isinstance(said, int) and not isinstance(said, bool)))
        if not isinstance(subset, str) or identity is None or not whole:
            raise DataError(
                f"{at}: expected subset, id and a whole or null prediction, found {str(row)[:120]}; "
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


def grade_prmbench(file: Path, data: Path, preset: GradingPreset) -> dict[str, Any]:
    """Rows ``{"idx", "scores": {"step_level_validity_labels": […]}[, "validity"]}`` with the evaluator's ids
    (``<class>_<idx>``). The first row of an id stands; a false ``validity`` gives no answer."""
    loaded = read_prmbench(data)
    classes = {item.idx: item.classification for item in loaded.items}
    found: dict[str, prmbench.Labels | None] = {}
    repeated = 0
    for _, at, row in _rows("prmbench", file):
        idx = row.get("idx")
        if not isinstance(idx, str):
            raise DataError(f"{at}: idx is {idx!r}; expected <class>_<id>. Mend or remove the row")
        repeated += idx in found
        if idx not in found:
            found[idx] = prmbench.labels_of(at, row, classes.get(idx, ""))
    if not classes.keys() & found:
        raise DataError(f"{file}: no row's idx is one of {data}; expected <class>_<id>, as the evaluator writes them")
    result = prmbench.evaluate(loaded.items, found, preset)
    result["details"]["defects"]["repeated"] = repeated
    result["details"]["data"] = {"dropped": loaded.dropped, "defects": loaded.defects}
    return result


def grade_search(file: Path, data: Path, preset: GradingPreset) -> dict[str, Any]:
    """Rows as the published search writes them: ``question``, ``pred_answer``, ``gt_answer`` and perhaps ``set``.

    Without ``set`` (a published file holds one set) the file or its folder is named after it, or the question tells.
    Repaired: each problem once, against the data's key; one without a row is wrong, and problems of one text take
    their rows in turn. Official: every row and only rows, against its own ``gt_answer``, as published.
    """
    set_of = {problem.problem: problem.set for problem in read_search(data, search_sets(data)).items}
    rows: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for path, at, row in _rows("search", file):
        question, said = row.get("question"), row.get("pred_answer")
        names = (row["set"],) if row.get("set") else (path.stem, path.parent.name)
        name = next(filter(None, (search_set_named(str(name)) for name in names)), None)
        if not row.get("set"):
            name = name or set_of.get(str(question))
        if name is None or not isinstance(question, str) or not (said is None or isinstance(said, str)):
            raise DataError(
                f"{at}: expected question, pred_answer (text or null) and a set of "
                f"{', '.join(get_args(SearchSet))}; add them or mend the row"
            )
        rows[name, question].append(row)
    problems = read_search(data, sorted({name for name, _ in rows})).items
    keys = {(problem.set, problem.problem): problem.key for problem in problems}
    pairs: list[tuple[str, Any, str | None]] = []  # set, key, answer
    if preset == "official":
        for key, mine in rows.items():
            found = [(row, row["gt_answer"] if row.get("gt_answer") is not None else keys.get(key)) for row in mine]
            pairs += [(key[0], gold, row.get("pred_answer")) for row, gold in found if gold is not None]
    else:
        waiting = {key: iter(mine) for key, mine in rows.items()}
        for problem in problems:
            row = next(waiting.get((problem.set, problem.problem), iter(())), {})
            pairs.append((problem.set, problem.key, row.get("pred_answer")))
    if not pairs or (preset == "repaired" and not keys.keys() & rows.keys()):
        raise DataError(f"{file}: no row's question is one of {data}; give the folder with the same problems")
    right: dict[str, list[bool]] = defaultdict(list)
    with Grader() as grader:
        for name, gold, said in pairs:
            right[name].append(grader.is_right(gold_of(name, gold, preset), said, preset))
    sets = {name: 100 * sum(hits) / len(hits) for name, hits in sorted(right.items())}
    asked = Counter((problem.set, problem.problem) for problem in problems)
    given = [(key, row) for key, mine in rows.items() for row in mine]
    details = {
        "n": {name: len(hits) for name, hits in sorted(right.items())},
        "repeated": sum(max(0, len(mine) - asked[key]) for key, mine in rows.items() if key in asked),
        "without_row": sum(max(0, count - len(rows.get(key, ()))) for key, count in asked.items()),
        "without_answer": sum(row.get("pred_answer") is None for _, row in given),
        "unknown_question": sum(key not in asked for key, _ in given),
        "other_key": sum(key in keys and row.get("gt_answer") not in (None, keys[key]) for key, row in given),
        "grading_failures": dict(sorted(grader.failures.items())),
    }
    return {"sets": sets, "average": sum(sets.values()) / len(sets), "details": details}


def _rows(kind: Kind, file: Path) -> Iterator[tuple[Path, str, dict[str, Any]]]:
    """File, place for messages ("FILE: row 1") and row, of a JSON list or of JSON lines; at least one."""
    paths = [file]
    if file.is_dir():
        paths = sorted(path for part in _PARTS[kind] for path in file.glob(part))
        if not paths:
            raise DataError(f"{file}: a folder without {' or '.join(_PARTS[kind]) or 'a use here'}; give a file")
    elif not file.is_file():
        raise DataError(f"{file}: no such file; give a prediction file (.json or .jsonl)")
    is_empty = True
    for path in paths:
        with path.open("rb") as handle:
            is_list = handle.read(64).lstrip()[:1] == b"["
        for number, row in enumerate(read_json(path), start=1) if is_list else read_jsonl(path):
            at, is_empty = f"{path}: row {number}", False
            if not isinstance(row, dict):
                raise DataError(f"{at}: expected an object, found {str(row)[:80]}; mend or remove the row")
            yield path, at, row
    if is_empty:
        raise DataError(f"{file}: holds no row; give a file with predictions")


def notes(kind: Kind, result: Mapping[str, Any], preset: GradingPreset) -> list[str]:
    """What a reader of the figures must know of the file, one sentence each: what lacks, repeats or is unknown."""
    is_official = preset == "official"
    meant = {
        "lacking": "left out" if kind == "prmbench" else "missed",
        "without": "left out" if is_official else "wrong",
        "repeated": "each counts" if kind == "search" and is_official else "the first stands",
        "unknown": "graded by gt_answer" if is_official else "left out",
        "beyond": "counted as of sound steps" if is_official else "left out",
    }
    details = result["details"]
    counts = {**details, **details.get("defects", {})}
    said = []
    for name, text in _COUNTED.items():
        found = counts.get(name, 0)
        if count := sum(found.values()) if isinstance(found, dict) else found:
            said.append(f"{text.format(**meant)}: {count:,}")
    silent = [name for name, tally in details.get("classes", {}).items() if not any(map(tally.get, _CELLS))]
    if kind == "prmbench" and silent:
        said.append(f"no answer in {', '.join(silent)}, whose scores are those of nothing")
    return said


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
