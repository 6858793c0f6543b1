"""Grade any prediction file in the forms that published runners write.

``grade`` scores a file against a benchmark folder; ``render`` makes a table of the result. Numbers are percent, with
one decimal in the tables.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, get_args

from ground.io import DataError
from ground.show import aligned
from pathfinder.benchmarks import prmbench, processbench
from pathfinder.benchmarks.grading import Grader, GradingPreset, gold_of
from pathfinder.benchmarks.readers import (
    CLASSES,
    SUBSETS,
    is_answer,
    read_prmbench,
    read_processbench,
    read_search,
    search_set_named,
    search_sets,
)
from pathfinder.core.given import open_given, rows_in
from pathfinder.core.params import SearchSet

Kind = Literal["processbench", "prmbench", "search"]
Format = Literal["table", "latex", "markdown"]
_PARTS: dict[Kind, tuple[str, ...]] = {
    "processbench": ("*_error.jsonl", "*_correct.jsonl"),
    "prmbench": (),
    "search": ("*/result-*.json",),
}
"""The files in a published runner's output folder."""
_COUNTED = {
    "without_prediction": "items without a row ({missing})",
    "without_row": "problems without a row ({unanswered})",
    "nothing_said": "items with a null prediction (missed)",
    "no_step": "predictions that name no step (wrong)",
    "without_answer": "rows without an answer (wrong)",
    "invalid": "answers declared invalid (left out)",
    "repeated": "repeated rows ({repeated})",
    "unknown_id": "ids that are not in the data (left out)",
    "subsets_left_out": "subsets missing in the file or the data (the mean is over the others)",
    "sets_left_out": "folders of sets beyond the six (left out)",
    "unknown_question": "questions that are not in the data ({unknown})",
    "other_key": "rows whose gt_answer differs from the data's answer ({differing})",
    "steps_without_label": "steps without a label (left out)",
    "labels_without_step": "labels without a step ({extra})",
    "grading_failures": "answers that could not be graded (not right)",
    "sets_missing": "sets missing in the file (the average is over the others)",
}
"""The counts in ``details``, as ``notes`` words them."""
_COLUMNS: dict[Kind, tuple[str, ...]] = {
    "processbench": ("subset", "error", "correct", "F1"),
    "prmbench": ("class", "PRMScore"),
    "search": ("set", "accuracy"),
}
_CELLS = ("TP", "FP", "TN", "FN")
_REMEDY = "Correct or remove the row"


def grade(kind: Kind, file: Path, data: Path, preset: GradingPreset = "repaired") -> dict[str, Any]:
    """The benchmark's figures for a prediction file or the output folder of a published runner.

    ``data`` is the benchmark's folder, or the folder that holds it.
    Raises ``DataError``, which names the file and the row, for malformed predictions or data.
    """
    grade_kind = {"processbench": grade_processbench, "prmbench": grade_prmbench, "search": grade_search}[kind]
    return grade_kind(file, data / kind if (data / kind).is_dir() else data, preset)


def grade_processbench(file: Path, data: Path, preset: GradingPreset) -> dict[str, Any]:
    """Grade rows ``{"subset", "id", "prediction"}``: the first incorrect step from 0, -1 for none, null for no answer.

    The first row of an item is used. Items without a row are missed and counted in ``details``. Only subsets that the
    file names are graded. Raises ``DataError`` for a malformed row.
    """
    found, repeated = predicted_steps(file)
    loaded = read_processbench(data)
    named = {subset for subset, _ in found}
    items = [item for item in loaded.items if item.subset in named]
    if not items:
        raise DataError(f"{_shown(file)}: no row names a subset of {data}; check the column 'subset'")
    known = {item.key for item in items}
    if not known & found.keys():
        raise DataError(f"{_shown(file)}: no row's id is one of {data}; give the folder with the same items")
    details = {
        "rows": len(found) + repeated,
        "repeated": repeated,
        "without_prediction": len(known - set(found)),
        "nothing_said": sum(found.get(key, 0) is None for key in known),
        "no_step": sum(found.get(item.key) not in {None, *range(-1, len(item.steps))} for item in items),
        "unknown_id": len(set(found) - known),
        "subsets_left_out": sorted({*SUBSETS} - {item.subset for item in items}),
        "data": {"dropped": loaded.dropped, "defects": loaded.defects},
    }
    return processbench.evaluate(items, found, preset) | {"details": details}


def predicted_steps(file: Path) -> tuple[dict[processbench.Key, int | None], int]:
    """The predictions of a ProcessBench file by subset and id, and the number of rows that repeat one.

    A published runner copies any number from a judge's box, so a number that names no paragraph is wrong, not
    malformed. Raises ``DataError`` for a malformed row.
    """
    found: dict[processbench.Key, int | None] = {}
    repeated = 0
    for _, at, row in _rows("processbench", file):
        subset, identity, prediction = (row.get(key) for key in ("subset", "id", "prediction"))
        if subset is None and isinstance(identity, str):
            subset = identity.rpartition("-")[0]  # the published runner writes a file per subset, without its name
        if isinstance(prediction, float) and prediction.is_integer():
            prediction = int(prediction)  # some libraries write the integers of a column with gaps as floats
        is_valid = "prediction" in row and (prediction is None or type(prediction) is int)
        is_named = isinstance(identity, str | int) and not isinstance(identity, bool)
        if not (isinstance(subset, str) and is_named and is_valid):
            raise DataError(
                f"{at}: expected subset, id and a whole or null prediction, found {ascii(row)[:120]}. {_REMEDY}"
            )
        repeated += (subset, str(identity)) in found
        found.setdefault((subset, str(identity)), prediction)
    return found, repeated


def grade_prmbench(file: Path, data: Path, preset: GradingPreset) -> dict[str, Any]:
    """Grade rows ``{"idx", "scores": {"step_level_validity_labels": […]}[, "validity"]}`` with the evaluator's ids.

    The evaluator's own files are read too: the checkpoint (``save_to_ckpt``) and the log of the evaluation. Ids are
    ``<class>_<idx>``. The first row of an id is used; a false ``validity`` means no answer. Raises ``DataError`` for a
    malformed row.
    """
    loaded = read_prmbench(data)
    classes = {item.idx: item.classification for item in loaded.items}
    found, repeated = predicted_labels(file, classes)
    if not classes.keys() & found:
        raise DataError(
            f"{_shown(file)}: no row's idx is one of {data}; expected <class>_<id>, as the evaluator writes it"
        )
    try:
        result = prmbench.evaluate(loaded.items, found, preset)
    except DataError as error:
        raise DataError(f"{_shown(file)}: {error}") from error
    result["details"]["defects"]["repeated"] = repeated
    result["details"]["data"] = {"dropped": loaded.dropped, "defects": loaded.defects}
    return result


def predicted_labels(file: Path, classes: Mapping[str, str]) -> tuple[dict[str, prmbench.Labels | None], int]:
    """The labels of a PRMBench file by idx, and the number of rows that repeat one; ``classes`` maps the ids of the
    data to their classes.

    Raises ``DataError`` for a malformed row.
    """
    found: dict[str, prmbench.Labels | None] = {}
    repeated = 0
    for at, row in _kit_rows(file):
        idx = row.get("idx")
        if not isinstance(idx, str):
            raise DataError(f"{at}: idx is {idx!r:.80}; expected <class>_<id>. {_REMEDY}")
        labels = prmbench.labels_of(at, row, classes.get(idx, ""))
        repeated += idx in found
        found.setdefault(idx, labels)
    return found, repeated


def _kit_rows(file: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """The place and the prediction of every row, also of the evaluator's checkpoint or log.

    A line of the checkpoint holds one prediction. The log of a run holds all predictions, null for an invalid one, but
    omits invalid ones of correct samples.
    """
    for _, at, line in _rows("prmbench", file):
        logs, result = line.get("detailed_logs"), line.get("results")
        for number, log in enumerate(logs if isinstance(logs, list) else (), start=1):
            given = log if isinstance(log, dict) else {}
            found = given.get("prediction")
            row = found if isinstance(found, dict) else {"validity": found is not None}
            yield f"{at}, log {number}", row | {"idx": given.get("idx")}
        if not isinstance(logs, list):
            yield at, result if isinstance(result, dict) else line


def grade_search(file: Path, data: Path, preset: GradingPreset) -> dict[str, Any]:
    """Grade rows of the published search: ``question``, ``pred_answer``, ``gt_answer`` and optionally ``set``.

    Without ``set`` (a published file has one set), the name of the file or of its folder, or else the question, gives
    the set. The folders of further sets, such as the published script's ``aime25``, are left out. Repaired: each
    problem counts once, against the data's key; a problem without a row is wrong, and problems with the same text use
    their rows in turn. Official: as published, every row counts against its own ``gt_answer``, and problems without
    rows do not count. Raises ``DataError`` for a malformed row.
    """
    rows = predicted_answers(file, data)
    left_out = {name for name, _ in rows} - {*get_args(SearchSet)}
    rows = {key: mine for key, mine in rows.items() if key[0] not in left_out}
    named = {name for name, _ in rows}
    if absent := sorted(named - {*search_sets(data)}):
        remedy = f"add {absent[0]}.jsonl there, or remove the rows"
        raise DataError(f"{_shown(file)}: rows of {', '.join(absent)}, which is not in {data}; {remedy}")
    problems = read_search(data, sorted(named)).items
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
        raise DataError(f"{_shown(file)}: no row's question is one of {data}; give the folder with the same problems")
    right: dict[str, list[bool]] = defaultdict(list)
    with Grader() as grader:
        for name, gold, answer in pairs:
            right[name].append(grader.is_right(gold_of(name, gold, preset), answer, preset))
    sets = {name: 100 * sum(hits) / len(hits) for name, hits in sorted(right.items())}
    asked = Counter((problem.set, problem.problem) for problem in problems)
    given = [(key, row) for key, mine in rows.items() for row in mine]
    details = {
        "n": {name: len(hits) for name, hits in sorted(right.items())},
        "repeated": sum(max(0, len(mine) - asked[key]) for key, mine in rows.items() if key in asked),
        "without_row": sum(max(0, count - len(rows.get(key, ()))) for key, count in asked.items()),
        "without_answer": sum(row.get("pred_answer") is None for _, row in given),
        "sets_missing": sorted({*get_args(SearchSet)} - sets.keys()),
        "sets_left_out": sorted(left_out),
        "unknown_question": sum(key not in asked for key, _ in given),
        "other_key": sum(key in keys and row.get("gt_answer") not in (None, keys[key]) for key, row in given),
        "grading_failures": dict(sorted(grader.failures.items())),
    }
    return {"sets": sets, "average": sum(sets.values()) / len(sets), "details": details}


def predicted_answers(file: Path, data: Path) -> dict[tuple[str, str], list[dict[str, Any]]]:
    """The rows of a search file by set and question; ``data`` names the set of a question if the file does not.

    In a published script's output, a set outside ``data`` gets the name of its folder. Raises ``DataError`` for a
    malformed row.
    """
    set_of = {problem.problem: problem.set for problem in read_search(data, search_sets(data)).items}
    rows: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for path, at, row in _rows("search", file):
        question, given, answer = row.get("question"), row.get("set"), row.get("pred_answer")
        names = (path.stem, path.parent.name) if given is None else (given,)
        name = next(filter(None, (search_set_named(str(name)) for name in names)), None)
        if given is None:
            name = name or set_of.get(str(question)) or (path.parent.name if file.is_dir() else None)
        is_said = isinstance(answer, str | None) or is_answer(answer)
        if not isinstance(question, str) or not is_said or not _is_key(row.get("gt_answer")):
            raise DataError(
                f"{at}: expected question (text), pred_answer (text, number or null) and gt_answer (an answer or "
                f"null), found {ascii(row)[:120]}. {_REMEDY}"
            )
        if name is None:
            found = f"set is {given!r:.80}" if given is not None else f"question {question!r:.80} is not in {data}"
            raise DataError(f"{at}: {found}; give one of {', '.join(get_args(SearchSet))} as set, or remove the row")
        rows[name, question].append(row | {"pred_answer": None if answer is None else str(answer)})
    return rows


def _is_key(value: Any) -> bool:
    parts = value if isinstance(value, list) and value else [value]
    return value is None or all(map(is_answer, parts))


def _shown(file: Path) -> str:
    return "standard input" if str(file) == "-" else str(file)


def _rows(kind: Kind, file: Path) -> Iterator[tuple[Path, str, dict[str, Any]]]:
    """The file, the place for messages ("FILE: row 1") and the row, of JSON lists or JSON lines; at least one."""
    paths = [file]
    if file.is_dir():
        paths = sorted(path for part in _PARTS[kind] for path in file.glob(part))
        if not paths:
            named = file / f"{kind}.jsonl"  # as `bench --predictions` writes it
            remedy = f"give {named if named.is_file() else 'a file'}"
            raise DataError(f"{file}: a folder without {' or '.join(_PARTS[kind]) or 'a known form'}; {remedy}")
    is_empty = True
    for path in paths:
        with open_given(str(path)) as (name, handle):
            for at, row in rows_in(name, handle):
                is_empty = False
                if not isinstance(row, dict):
                    raise DataError(f"{at}: expected an object, found {ascii(row)[:80]}. {_REMEDY}")
                yield path, at, row
    if is_empty:
        raise DataError(f"{_shown(file)}: contains no row; give a file with predictions")


def notes(kind: Kind, result: Mapping[str, Any], preset: GradingPreset) -> list[str]:
    """One sentence for each kind of missing, repeated or unknown row that affects the figures."""
    is_official = preset == "official"
    effects = {
        "missing": "left out" if kind == "prmbench" else "missed",
        "unanswered": "left out" if is_official else "wrong",
        "repeated": "each counts" if kind == "search" and is_official else "the first is used",
        "unknown": "graded by gt_answer" if is_official else "left out",
        "differing": "the row's is used" if is_official else "the data's is used",
        "extra": "counted as labels of correct steps" if is_official else "left out",
    }
    details = result["details"]
    counts = {**details, **details.get("defects", {})}
    out = []
    for name, text in _COUNTED.items():
        if count := _count(counts.get(name, 0)):
            out.append(f"{text.format(**effects)}: {count:,}")
    silent = [name for name, tally in details.get("classes", {}).items() if not any(map(tally.get, _CELLS))]
    if kind == "prmbench" and silent:
        out.append(f"no answer in {', '.join(silent)}: these scores are over nothing")
    return out


def _count(found: Any) -> int:
    if isinstance(found, dict):
        return sum(found.values())
    return len(found) if isinstance(found, list) else int(found)


def render(kind: Kind, result: dict[str, Any], form: Format) -> str:
    """The result as a table with one decimal."""
    head = list(_COLUMNS[kind])
    cells = [[_cell(value) for value in row] for row in _table(kind, result)]
    if form == "latex":
        lines = [" & ".join(cell.replace("_", r"\_") for cell in row) + r" \\" for row in [head, *cells]]
        columns = f"l{'r' * (len(head) - 1)}"
        return "\n".join([rf"\begin{{tabular}}{{{columns}}}", lines[0], r"\hline", *lines[1:], r"\end{tabular}"])
    if form == "markdown":
        rule = ["---"] + ["---:"] * (len(head) - 1)
        return "\n".join("| " + " | ".join(row) + " |" for row in [head, rule, *cells])
    return "\n".join(aligned([head, *cells]))


def _table(kind: Kind, result: dict[str, Any]) -> list[list[Any]]:
    if kind == "processbench":
        keys = ("error_acc", "correct_acc", "f1")
        rows = [[name, *(figures[key] for key in keys)] for name, figures in result["subsets"].items()]
        return [*rows, ["mean", "", "", result["mean_f1"]]]
    if kind == "prmbench":
        rows = [[name, result["classes"][name]] for name in CLASSES if name in result["classes"]]
        rows += [[f"average {name}", score] for name, score in result["categories"].items()]
        return [*rows, ["overall", result["overall"]]]
    return [*map(list, result["sets"].items()), ["average", result["average"]]]


def _cell(value: Any) -> str:
    return "undefined" if value is None else value if isinstance(value, str) else f"{value:.1f}"
