"""Prediction files in the forms that the field's runners write, graded and printed."""

from __future__ import annotations

import json
import shutil
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import Any, get_args

import pytest

from ground.io import DataError
from pathfinder.benchmarks.grade import Format, grade, notes, render
from pathfinder.benchmarks.grading import GradingPreset
from pathfinder.benchmarks.readers import SUBSETS, read_prmbench, read_processbench


def write(path: Path, rows: list[Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture(params=["world", "mirror"])
def data(request: pytest.FixtureRequest) -> Path:
    """The shipped small world and the real files."""
    folder: Path = request.getfixturevalue(request.param)
    return folder


def test_processbench_on_whole_sets(data: Path, tmp_path: Path) -> None:
    items = read_processbench(data / "processbench").items
    subsets = {item.subset for item in items}
    rows = [{"subset": i.subset, "id": i.id, "prediction": i.label} for i in items]
    found = grade("processbench", write(tmp_path / "p.jsonl", rows), data / "processbench")
    assert found["mean_f1"] == 100.0
    assert set(found["subsets"]) == subsets
    rows[0]["prediction"] = None
    found = grade("processbench", write(tmp_path / "p.jsonl", rows[:-1]), data / "processbench", "official")
    assert {key: value for key, value in found["details"].items() if key != "data"} == {
        "rows": len(items) - 1,
        "repeated": 0,
        "without_prediction": 1,
        "no_step": 0,
        "nothing_said": 1,
        "unknown_id": 0,
        "subsets_left_out": sorted({*SUBSETS} - subsets),
    }
    assert set(found["details"]["data"]) == {"dropped", "defects"}
    assert found["mean_f1"] < 100
    rows = [row for row in rows if row["subset"] == "gsm8k"]
    rows += [rows[-1], {"subset": "gsm8k", "id": "unknown", "prediction": 0}]
    one = grade("processbench", write(tmp_path / "p.jsonl", rows), data / "processbench")
    assert set(one["subsets"]) == {"gsm8k"}, "the mean covers only subsets that the file names"
    assert [one["details"][name] for name in ("rows", "repeated", "unknown_id")] == [len(rows), 1, 1]


def test_prmbench_on_whole_sets(data: Path, tmp_path: Path) -> None:
    items = read_prmbench(data / "prmbench").items
    rows: list[dict[str, Any]] = []
    for item in items:
        labels = [place + 1 not in item.error_steps for place in range(len(item.steps))]
        rows.append({"idx": item.idx, "scores": {"step_level_validity_labels": labels}})
    again = rows[0] | {"scores": {"step_level_validity_labels": []}}
    file = write(tmp_path / "p.jsonl", [*rows, again, again])
    for preset in get_args(GradingPreset):
        found = grade("prmbench", file, data / "prmbench", preset)
        assert found["overall"] == 100.0
        assert found["categories"] == {"simplicity": 100.0, "soundness": 100.0, "sensitivity": 100.0}
        assert found["details"]["defects"]["repeated"] == 2
        wrong = [row | {"scores": {"step_level_validity_labels": [False] * 99}} for row in rows]
        found = grade("prmbench", write(tmp_path / "w.jsonl", wrong), data / "prmbench", preset)
        assert found["details"]["total"]["recall"] == 0.0
        assert (found["details"]["total"]["precision"] == -1) == (preset == "official")
    rows[0]["validity"] = False
    redundancy = next(row for row in rows if row["idx"].startswith("redundency"))
    turned = [not label for label in redundancy["scores"].pop("step_level_validity_labels")]
    redundancy["scores"]["step_level_redundancy_labels"] = turned
    found = grade("prmbench", write(tmp_path / "p.jsonl", rows), data / "prmbench")
    assert found["overall"] == 100.0
    assert found["details"]["defects"]["invalid"] == 1


def test_search_rows(world: Path, tmp_path: Path) -> None:
    data = [json.loads(line) for line in (world / "search" / "olympiadbench.jsonl").read_text().splitlines()]
    rows = [{"question": d["question"], "pred_answer": d["final_answer"][0], "gt_answer": "?"} for d in data]
    rows[0]["pred_answer"], rows[1]["pred_answer"] = None, "-1"
    (tmp_path / "olympiadbench").mkdir()
    file = tmp_path / "olympiadbench" / "result-0-None.json"
    file.write_text(json.dumps(rows))
    found = grade("search", file, world / "search")
    assert found["sets"] == {"olympiadbench": pytest.approx(100 * (len(data) - 2) / len(data))}
    assert found["average"] == found["sets"]["olympiadbench"]
    assert found["details"]["without_answer"] == 1


MISSING = "sets missing in the file (the average is over the others)"


def problems(folder: Path, name: str, keys: list[str], question: str = "{}?") -> None:
    folder.mkdir(exist_ok=True)
    write(folder / f"{name}.jsonl", [{"problem": question.format(i), "answer": k} for i, k in enumerate(keys)])


def test_a_search_folder_of_the_published_script(tmp_path: Path) -> None:
    problems(tmp_path / "data", "math", ["1", "2", "3", "4"])
    problems(tmp_path / "data", "amc23", ["5", "6"], "amc {}?")
    rows: list[dict[str, Any]] = [
        {"question": f"{i}?", "gt_answer": str(i + 1), "pred_answer": str(i + 1)} for i in range(3)
    ]
    rows[1]["pred_answer"] = None
    for place, part in (("math/result-0-2", rows[:2]), ("math/result-2-None", rows[2:])):
        (tmp_path / "out" / "math").mkdir(parents=True, exist_ok=True)
        (tmp_path / "out" / f"{place}.json").write_text(json.dumps(part))
    (tmp_path / "out" / "amc23").mkdir()
    other = {"question": "amc 0?", "gt_answer": "5", "pred_answer": "5"}
    (tmp_path / "out" / "amc23" / "result-0-None.json").write_text(json.dumps([other, other]))
    (tmp_path / "out" / "results.json").write_text('{"math": 0.5}')
    official = grade("search", tmp_path / "out", tmp_path / "data", "official")
    assert official["sets"] == {"amc23": 100.0, "math": pytest.approx(200 / 3)}, "every row counts, and only rows"
    repaired = grade("search", tmp_path / "out", tmp_path / "data")
    assert repaired["sets"] == {"amc23": 50.0, "math": 50.0}, "every problem counts once"
    assert repaired["average"] == 50.0
    assert repaired["details"]["repeated"] == 1
    assert repaired["details"]["without_row"] == 2
    assert notes("search", repaired, "repaired") == [
        "problems without a row (wrong): 2",
        "rows without an answer (wrong): 1",
        "repeated rows (the first is used): 1",
        f"{MISSING}: 4",
    ]


def test_a_set_that_the_paper_does_not_report_is_left_out_of_a_folder(tmp_path: Path) -> None:
    """The published script also searches AIME25, and writes its results into the same folder."""
    problems(tmp_path / "data", "aime24", ["1"])
    for name in ("aime24", "aime25"):
        (tmp_path / "out" / name).mkdir(parents=True)
        row = {"question": "0?" if name == "aime24" else "new?", "gt_answer": "1", "pred_answer": "1"}
        (tmp_path / "out" / name / "result-0-None.json").write_text(json.dumps([row]))
    for preset in get_args(GradingPreset):
        found = grade("search", tmp_path / "out", tmp_path / "data", preset)
        assert (found["sets"], found["average"]) == ({"aime24": 100.0}, 100.0)
        assert notes("search", found, preset) == ["folders of sets beyond the six (left out): 1", f"{MISSING}: 5"]
    with pytest.raises(DataError, match=r"question 'new\?' is not in .* one of aime24"):
        grade("search", tmp_path / "out/aime25/result-0-None.json", tmp_path / "data")
    shutil.rmtree(tmp_path / "out/aime24")
    with pytest.raises(DataError, match="no row's question is one of"):
        grade("search", tmp_path / "out", tmp_path / "data")


def test_a_search_rows_own_key_counts_in_the_official_preset(tmp_path: Path) -> None:
    problems(tmp_path / "data", "math", ["1"])
    file = write(tmp_path / "any.jsonl", [{"question": "0?", "gt_answer": "7", "pred_answer": "7"}])
    repaired, official = (grade("search", file, tmp_path / "data", preset) for preset in ("repaired", "official"))
    assert repaired["sets"] == {"math": 0.0}, "the question gives the set"
    assert official["sets"] == {"math": 100.0}
    differs = "rows whose gt_answer differs from the data's answer"
    assert notes("search", repaired, "repaired") == [f"{differs} (the data's is used): 1", f"{MISSING}: 5"]
    assert notes("search", official, "official") == [f"{differs} (the row's is used): 1", f"{MISSING}: 5"]


def test_problems_with_the_same_text_use_their_rows_in_turn(tmp_path: Path) -> None:
    problems(tmp_path / "data", "math", ["1", "2"], "the same?")
    rows = [{"set": "MATH", "question": "the same?", "pred_answer": answer} for answer in ("1", "2", "3")]
    found = grade("search", write(tmp_path / "p.jsonl", rows), tmp_path / "data")
    assert found["sets"] == {"math": 100.0}
    assert found["details"]["repeated"] == 1


def test_a_processbench_folder_of_the_published_script(tmp_path: Path) -> None:
    data = [{"id": f"gsm8k-{i}", "problem": "p", "steps": ["a", "b"], "label": i % 2 - 1} for i in range(4)]
    (tmp_path / "gsm8k.json").write_text(json.dumps(data))
    out = tmp_path / "out"
    out.mkdir()
    for ending, label in (("error", 0), ("correct", -1)):
        rows = [row | {"prediction": -1, "match": label == -1} for row in data if row["label"] == label]
        write(out / f"gsm8k_{ending}.jsonl", rows)
    write(out / "results.jsonl", [{"config": "gsm8k", "f1": 0.0}])
    found = grade("processbench", out, tmp_path, "official")
    assert found["subsets"]["gsm8k"] == {
        "error_acc": 0.0,
        "correct_acc": 100.0,
        "f1": 0.0,
        "n_error": 2,
        "n_correct": 2,
    }
    (out / "gsm8k_error.jsonl").unlink()
    (out / "gsm8k_correct.jsonl").unlink()
    with pytest.raises(DataError, match="a folder without"):
        grade("processbench", out, tmp_path)


def test_gaps_are_noted(data: Path, tmp_path: Path) -> None:
    ids = [item.id for item in read_processbench(data / "processbench").items if item.subset == "gsm8k"]
    file = write(tmp_path / "p.jsonl", [{"subset": "gsm8k", "id": ids[0], "prediction": None}] * 2)
    found = notes("processbench", grade("processbench", file, data / "processbench"), "repaired")
    assert found == [
        f"items without a row (missed): {len(ids) - 1}",
        "items with a null prediction (missed): 1",
        "repeated rows (the first is used): 1",
        "subsets missing in the file or the data (the mean is over the others): 3",
    ]


@pytest.mark.parametrize(
    ("kind", "row", "message"),
    [
        ("processbench", {"subset": "math", "id": "x", "prediction": "1"}, "row 1"),
        ("processbench", {"subset": "math", "id": "x", "prediction": True}, "row 1"),
        ("processbench", {"subset": "other", "id": "x", "prediction": 1}, "no row names a subset"),
        ("processbench", {"subset": "math", "id": "x", "prediction": 1}, "no row's id is one of"),
        ("processbench", {"subset": "math", "id": None, "prediction": 1}, "expected subset, id"),
        ("processbench", [1], "expected an object"),
        ("prmbench", {"scores": {}}, "idx is None"),
        ("prmbench", {"idx": "circular_1", "scores": {"step_level_validity_labels": [0.5]}}, "list of booleans"),
        ("search", {"question": "q", "pred_answer": "1"}, r"question 'q' is not in .*; give one of aime24, "),
        ("search", {"question": "q", "pred_answer": [1], "set": "math"}, r"expected question .*, found .*\[1\]"),
        ("search", {"question": "q", "pred_answer": "1", "set": "other"}, "set is 'other'; give one of"),
        ("search", {"question": "q", "pred_answer": "1", "set": "math"}, "no row's question"),
        ("prmbench", {"task_name": "t", "model_name": "m", "results": {"scores": {}}}, "row 1: idx is None"),
        ("prmbench", {"detailed_logs": [{"idx": "circular_1", "prediction": None}, 1]}, "row 1, log 2: idx is None"),
        ("prmbench", {"detailed_logs": [{"idx": "x", "prediction": "?"}]}, "log 1: scores.step_level_validity_labels"),
        ("prmbench", {"idx": "other_1", "scores": {"step_level_validity_labels": [1]}}, "no row's idx"),
    ],
)
def test_bad_rows_are_named(world: Path, tmp_path: Path, kind: Any, row: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        grade(kind, write(tmp_path / "p.jsonl", [row]), world / kind)


def test_missing_and_empty_files(world: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such file"):
        grade("processbench", tmp_path / "none.jsonl", world / "processbench")
    (tmp_path / "empty.jsonl").touch()
    with pytest.raises(DataError, match=r"/empty\.jsonl: contains no row"):
        grade("processbench", tmp_path / "empty.jsonl", world / "processbench")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "standard input: contains no row"),  # closed
        (b"", "standard input: contains no row"),
        (b'{"subset": "x", "id": "1", "prediction": -1}\n', "standard input: no "),
    ],
)
def test_standard_input_is_called_so(
    world: Path, monkeypatch: pytest.MonkeyPatch, content: bytes | None, message: str
) -> None:
    monkeypatch.setattr("sys.stdin", None if content is None else TextIOWrapper(BytesIO(content)))
    with pytest.raises(DataError, match=f"^{message}"):
        grade("processbench", Path("-"), world / "processbench")


FIGURES = {"error_acc": 100 / 3, "correct_acc": 50.0, "f1": 40.0, "n_error": 3, "n_correct": 2}
RESULT = {"subsets": {"gsm8k": FIGURES}, "mean_f1": None}


@pytest.mark.parametrize(
    ("form", "text"),
    [
        (
            "table",
            "subset  error  correct         F1\ngsm8k    33.3     50.0       40.0\nmean                    undefined",
        ),
        (
            "markdown",
            "| subset | error | correct | F1 |\n| --- | ---: | ---: | ---: |\n| gsm8k | 33.3 | 50.0 | 40.0 |\n",
        ),
        (
            "latex",
            "\\begin{tabular}{lrrr}\nsubset & error & correct & F1 \\\\\n\\hline\ngsm8k & 33.3 & 50.0 & 40.0 \\\\",
        ),
    ],
)
def test_formats(form: Format, text: str) -> None:
    assert render("processbench", RESULT, form).startswith(text)


PRMBENCH = {
    "classes": {"circular": 50.0, "redundency": 25.04},
    "categories": {"simplicity": 37.52},
    "overall": 40.0,
}
SEARCH = {"sets": {"aime24": 10.0, "math": 72.25}, "average": 41.125}


def test_whole_tables_of_every_benchmark() -> None:
    assert render("prmbench", PRMBENCH, "table").splitlines() == [
        "class               PRMScore",
        "redundency              25.0",
        "circular                50.0",
        "average simplicity      37.5",
        "overall                 40.0",
    ]
    assert render("search", SEARCH, "markdown").splitlines() == [
        "| set | accuracy |",
        "| --- | ---: |",
        "| aime24 | 10.0 |",
        "| math | 72.2 |",
        "| average | 41.1 |",
    ]
    assert render("search", {"sets": {"college_math": 0.0}, "average": 0.0}, "latex").splitlines() == [
        r"\begin{tabular}{lr}",
        r"set & accuracy \\",
        r"\hline",
        r"college\_math & 0.0 \\",
        r"average & 0.0 \\",
        r"\end{tabular}",
    ]


def test_the_notes_name_the_effect_of_each_preset() -> None:
    details: dict[str, Any] = {"repeated": 1200, "unknown_question": 2, "without_row": 3}
    details["grading_failures"] = {"error": 1, "timeout": 2}
    assert notes("search", {"details": details}, "official") == [
        "problems without a row (left out): 3",
        "repeated rows (each counts): 1,200",
        "questions that are not in the data (graded by gt_answer): 2",
        "answers that could not be graded (not right): 3",
    ]
    assert "questions that are not in the data (left out): 2" in notes("search", {"details": details}, "repaired")
    counts = {"TP": 0, "FP": 0, "TN": 0, "FN": 0}
    silent = {"defects": {"without_prediction": 1, "repeated": 2, "labels_without_step": 4}}
    details = silent | {"classes": {"circular": counts, "deception": counts | {"FN": 1}, "confidence": counts}}
    assert notes("prmbench", {"details": details}, "repaired") == [
        "items without a row (left out): 1",
        "repeated rows (the first is used): 2",
        "labels without a step (left out): 4",
        "no answer in circular, confidence: these scores are over nothing",
    ]
    assert len(notes("prmbench", {"details": silent}, "repaired")) == 3
    official = notes("prmbench", {"details": details}, "official")
    assert official[1:3] == [
        "repeated rows (the first is used): 2",
        "labels without a step (counted as labels of correct steps): 4",
    ]


def test_search_rows_are_counted(tmp_path: Path) -> None:
    problems(tmp_path / "data", "math", ["1", "2"])
    problems(tmp_path / "data", "amc23", ["1"], "amc {}?")
    rows: list[dict[str, Any]] = [
        {"set": "math", "question": "0?", "pred_answer": "1"},
        {"set": "math", "question": "other?", "pred_answer": None, "gt_answer": "1"},
        {"question": "1?", "pred_answer": "2", "gt_answer": "2"},
    ]
    found = grade("search", write(tmp_path / "p.jsonl", rows), tmp_path / "data")
    assert found == {
        "sets": {"math": 100.0},
        "average": 100.0,
        "details": {
            "n": {"math": 2},
            "repeated": 0,
            "without_row": 0,
            "without_answer": 1,
            "sets_missing": ["aime24", "amc23", "college_math", "minerva_math", "olympiadbench"],
            "sets_left_out": [],
            "unknown_question": 1,
            "other_key": 0,
            "grading_failures": {},
        },
    }
    official = grade("search", tmp_path / "p.jsonl", tmp_path / "data", "official")
    assert (official["details"]["n"], official["sets"]["math"]) == ({"math": 3}, pytest.approx(200 / 3))


def test_the_name_of_a_search_file_or_its_folder_is_the_set_of_its_rows(tmp_path: Path) -> None:
    for name, key in (("math", "1"), ("amc23", "5")):  # the question is in both sets
        problems(tmp_path / "data", name, [key])
    rows = [{"question": "0?", "pred_answer": "5"}]
    (tmp_path / "amc23").mkdir()
    for place in ("amc23.jsonl", "amc23/test.jsonl"):
        assert grade("search", write(tmp_path / place, rows), tmp_path / "data")["sets"] == {"amc23": 100.0}


@pytest.mark.parametrize(("key", "is_valid"), [(5, True), (["1", 2], True), ([], False), ([{}], False), ({}, False)])
def test_the_key_in_a_search_row_is_an_answer_or_answers(tmp_path: Path, key: Any, is_valid: bool) -> None:
    problems(tmp_path, "math", ["1"])
    file = write(tmp_path / "p.jsonl", [{"question": "0?", "pred_answer": "1", "gt_answer": key}])
    if is_valid:
        assert grade("search", file, tmp_path)["average"] == 100.0
    else:
        with pytest.raises(DataError, match="gt_answer"):
            grade("search", file, tmp_path)


def test_a_search_row_of_an_unknown_set_is_refused_although_its_question_is_known(tmp_path: Path) -> None:
    problems(tmp_path, "math", ["1"])
    file = write(tmp_path / "p.jsonl", [{"set": "other", "question": "0?", "pred_answer": "1"}])
    with pytest.raises(DataError, match="set is 'other'; give one of"):
        grade("search", file, tmp_path)


def test_the_same_text_as_a_key_that_cannot_be_read_is_right_in_the_repaired_preset_only(tmp_path: Path) -> None:
    problems(tmp_path, "math", [r"\text{}"])
    file = write(tmp_path / "p.jsonl", [{"question": "0?", "pred_answer": r"\text{}"}])
    assert grade("search", file, tmp_path)["sets"] == {"math": 100.0}
    assert grade("search", file, tmp_path, "official")["sets"] == {"math": 0.0}
