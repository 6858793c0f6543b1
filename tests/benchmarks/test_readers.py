"""The readers on the real files, the small world and malformed rows."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any, get_args

import pytest

from ground.io import DataError
from pathfinder.benchmarks.readers import (
    CLASSES,
    CORRECT,
    PRMBenchItem,
    ProcessBenchItem,
    SearchProblem,
    read_prmbench,
    read_prmbench_originals,
    read_problems,
    read_processbench,
    read_search,
    search_set_named,
    search_sets,
)
from pathfinder.core.params import SearchSet

GOOD_PROCESS = {"id": "gsm8k-0", "problem": "p", "steps": ["a", "b"], "label": 1, "final_answer_correct": True}
GOOD_PRM = {
    "idx": "x_0",
    "classification": "redundency",
    "original_question": "o",
    "modified_question": "m",
    "original_process": ["a"],
    "modified_process": ["a", "b"],
    "error_steps": [2],
}


def test_real_processbench(mirror: Path) -> None:
    found = read_processbench(mirror / "processbench")
    assert (len(found.items), found.read) == (1400, 1400)
    assert found.defects["right_answer_wrong_step"] == 101
    assert found.defects["repeated_problem"] > 0
    limited = read_processbench(mirror / "processbench", limit=5)
    assert [item.subset for item in limited.items] == ["gsm8k"] * 5 + ["math"] * 5
    kinds = {(item.subset, item.label == -1) for item in limited.items}
    assert len(kinds) == 4, "the files have all wrong solutions first; a part of one has both kinds"
    assert limited.accounting() == {"read": 1400, "kept": 10, "dropped": {"limit": 1390}, "quarantined": {}}


def test_real_prmbench(mirror: Path) -> None:
    found = read_prmbench(mirror / "prmbench")
    assert found.dropped == {"limit": 0, "repeated_id": 5}
    assert found.read == 3363 + 5 + 401 == len(found.items) + 5
    assert {item.classification for item in found.items} == {*CLASSES, CORRECT}
    assert found.defects["error_step_past_end"] == 57
    assert len({item.idx for item in found.items}) == len(found.items)


def test_real_search_sets(mirror: Path) -> None:
    found = read_search(mirror / "search", ["aime24", "amc23", "math"]).items
    assert [sum(p.set == name for p in found) for name in ("aime24", "amc23", "math")] == [30, 40, 500]
    assert found[30].key == 27.0
    with pytest.raises(DataError, match=r"olympiadbench.jsonl or remove it from search\.sets"):
        read_search(mirror / "search", ["olympiadbench"])
    shapes = read_search(mirror / "format-examples", ["college_math", "olympiadbench", "minerva_math"]).items
    assert [type(p.key) for p in shapes] == [str] * 3 + [list] * 3 + [str] * 3


def test_the_shipped_world(world: Path) -> None:
    assert {item.subset for item in read_processbench(world / "processbench").items} == {
        "gsm8k",
        "math",
        "olympiadbench",
        "omnimath",
    }
    assert {item.classification for item in read_prmbench(world / "prmbench").items} == {*CLASSES, CORRECT}
    assert {p.set for p in read_search(world / "search", get_args(SearchSet)).items} == set(get_args(SearchSet))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"steps": "ab"}, "steps is 'ab'; expected a list of texts"),
        ({"steps": ["a", 1]}, "expected a list of texts"),
        ({"label": "1"}, "label is '1'; expected int"),
        ({"label": True}, "label is True; expected int"),
        ({"label": -2}, "label is -2"),
        ({"label": 1 << 31}, "label is 2147483648"),
        ({"problem": None}, "problem is None; expected str"),
    ],
)
def test_wrong_processbench_rows_are_named(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    rows = [GOOD_PROCESS, GOOD_PROCESS | {"id": "gsm8k-1"} | change]
    (tmp_path / "gsm8k.json").write_text(json.dumps(rows))
    with pytest.raises(DataError, match=r"gsm8k\.json: row 2: ") as caught:
        read_processbench(tmp_path)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"error_steps": None}, "error_steps is None"),
        ({"classification": "other"}, "classification is 'other'"),
        ({"modified_process": [None]}, "expected a list of texts"),
        ({"idx": None}, "idx is None"),
    ],
)
def test_wrong_prmbench_rows_are_named(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    (tmp_path / "a.jsonl").write_text(json.dumps(GOOD_PRM) + "\n" + json.dumps(GOOD_PRM | change) + "\n")
    with pytest.raises(DataError, match=r"a\.jsonl: row 2: ") as caught:
        read_prmbench(tmp_path)
    assert message in str(caught.value)


def test_repeats_and_missing_files(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="ProcessBench folder"):
        read_processbench(tmp_path)
    with pytest.raises(DataError, match="PRMBench folder"):
        read_prmbench(tmp_path)
    (tmp_path / "math.jsonl").write_text((json.dumps({"id": 1, "problem": "p", "answer": "2"}) + "\n") * 2)
    with pytest.raises(DataError, match="1 ids repeat"):
        read_search(tmp_path, ["math"])
    (tmp_path / "math.jsonl").write_text(json.dumps({"id": 1, "problem": "p"}) + "\n")
    with pytest.raises(DataError, match="answer, the column of math's answers, is None"):
        read_search(tmp_path, ["math"])


def test_a_missing_subset_is_counted_and_an_empty_one_refused(tmp_path: Path) -> None:
    (tmp_path / "gsm8k.json").write_text(json.dumps([GOOD_PROCESS]))
    assert read_processbench(tmp_path).defects["missing_subset"] == 3
    (tmp_path / "math.json").write_text("[]")
    with pytest.raises(DataError, match=r"math\.json: contains no row"):
        read_processbench(tmp_path)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("gsm8k.json", b'[{"id": 1,\n "id": 2}]', "duplicate key 'id'"),
        ("gsm8k.json", b'[{"id": 1,\n', "line 2 column 1"),
        ("gsm8k.json.gz", gzip.compress(b'[{"id": 1,\n "label": 2}]', mtime=0)[:-9], "cannot be decompressed"),
    ],
)
def test_the_error_of_a_damaged_list_names_its_cause(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=message):
        read_processbench(tmp_path)


def test_untrusted_text_comes_through(tmp_path: Path) -> None:
    """Separators, label tokens and braces are kept; a lone surrogate, which no file can contain, is replaced."""
    steps = ["<+> \u2028 {context} \\boxed{<extra>}", "bad \ud800 half", "\x00\x1f"]
    (tmp_path / "math.json").write_text(json.dumps([GOOD_PROCESS | {"steps": steps}]))
    found = read_processbench(tmp_path).items[0].steps
    assert found == (steps[0], "bad ? half", steps[2])


def test_redundency_rows_give_correct_samples(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(json.dumps(GOOD_PRM) + "\n")
    correct, wrong = read_prmbench(tmp_path).items
    assert (correct.idx, correct.steps, correct.error_steps, correct.problem) == ("correct_x_0", ("a",), (), "o")
    assert (wrong.idx, wrong.steps, wrong.error_steps, wrong.problem) == ("redundency_x_0", ("a", "b"), (2,), "m")


def write_lines(path: Path, rows: list[dict[str, Any]]) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_processbench_rows_are_read_whole_and_their_defects_counted(tmp_path: Path) -> None:
    rows = [
        GOOD_PROCESS | {"generator": "m"},
        {"problem": " P ", "steps": ["a", " "], "label": -1, "final_answer_correct": False},
        {"problem": "q", "steps": ["a"], "label": 1, "final_answer_correct": "yes"},
        {"id": 7, "problem": "r", "steps": ["a"], "label": 0, "final_answer_correct": True},
    ]
    write_lines(tmp_path / "gsm8k/test.jsonl", rows)
    found = read_processbench(tmp_path)
    assert found.items == [
        ProcessBenchItem("gsm8k", "gsm8k-0", "p", ("a", "b"), 1, True, "m"),
        ProcessBenchItem("gsm8k", "gsm8k-1", " P ", ("a", " "), -1, False, ""),
        ProcessBenchItem("gsm8k", "gsm8k-2", "q", ("a",), 1, None, ""),
        ProcessBenchItem("gsm8k", "7", "r", ("a",), 0, True, ""),
    ]
    assert found.items[3].key == ("gsm8k", "7")
    assert found.defects == {
        "right_answer_wrong_step": 2,
        "repeated_problem": 1,
        "empty_step": 1,
        "label_past_end": 1,
        "missing_subset": 3,
    }
    assert found.accounting() == {"read": 4, "kept": 4, "dropped": {"limit": 0}, "quarantined": {}}
    limited = read_processbench(tmp_path, limit=3)
    assert [item.id for item in limited.items] == ["gsm8k-0", "gsm8k-1", "gsm8k-2"]
    assert [item.id for item in read_processbench(tmp_path, limit=2).items] == ["gsm8k-0", "gsm8k-2"]
    assert (limited.read, limited.dropped) == (4, {"limit": 1})


def test_prmbench_takes_the_first_row_of_an_id_and_as_many_of_a_class_as_asked(tmp_path: Path) -> None:
    other = GOOD_PRM | {"classification": "deception", "error_steps": [0, 3], "modified_process": ["a", "", "c"]}
    write_lines(tmp_path / "b.jsonl", [GOOD_PRM | {"modified_question": "again"}, GOOD_PRM | {"idx": "x_1"}])
    write_lines(tmp_path / "a.jsonl", [GOOD_PRM, other, other | {"idx": "x_1"}])
    found = read_prmbench(tmp_path)
    assert [item.key for item in found.items] == [
        "correct_x_0",
        "redundency_x_0",
        "deception_x_0",
        "deception_x_1",
        "correct_x_1",
        "redundency_x_1",
    ]
    assert found.items[1].problem == "m"
    assert (found.read, found.dropped) == (8, {"limit": 0, "repeated_id": 2})
    assert found.defects == {"error_step_past_end": 2, "empty_step": 2}
    limited = read_prmbench(tmp_path, limit=1)
    assert [item.id for item in limited.items] == ["correct_x_0", "redundency_x_0", "deception_x_0"]
    assert (limited.read, limited.dropped) == (8, {"limit": 3, "repeated_id": 2})
    assert read_prmbench_originals(tmp_path) == [
        PRMBenchItem(f"{name}_{idx}", name, "o", ("a",), ())
        for name, idx in (("redundency", "x_0"), ("deception", "x_0"), ("deception", "x_1"), ("redundency", "x_1"))
    ]


def test_a_limit_and_repeats_of_prmbench_are_counted_by_row(tmp_path: Path) -> None:
    row = GOOD_PRM | {"classification": "deception", "error_steps": [1]}
    write_lines(tmp_path / "a.jsonl", [row | {"idx": str(number)} for number in range(3)])
    found = read_prmbench(tmp_path, limit=2)
    assert ([item.idx for item in found.items], found.read) == (["deception_0", "deception_1"], 3)
    assert (found.dropped, found.defects["error_step_past_end"]) == ({"limit": 1, "repeated_id": 0}, 0)
    write_lines(tmp_path / "a.jsonl", [row] * 3)
    assert read_prmbench(tmp_path).dropped == {"limit": 0, "repeated_id": 2}


@pytest.mark.parametrize("column", ["original_process", "classification"])
def test_a_malformed_original_is_named(tmp_path: Path, column: str) -> None:
    write_lines(tmp_path / "a.jsonl", [GOOD_PRM | {"classification": "deception"} | {column: None}])
    with pytest.raises(DataError, match=rf"a\.jsonl: row 1: {column} is None"):
        read_prmbench_originals(tmp_path)


def test_search_problems_take_the_names_and_columns_of_every_set(tmp_path: Path) -> None:
    write_lines(tmp_path / "AIME24/AIME24.jsonl", [{"unique_id": "u", "id": 3, "problem": "p", "answer": 0.5}])
    (tmp_path / "math500.json").write_text(json.dumps({"idx": 4, "question": "q", "answer": "2"}))
    write_lines(tmp_path / "olympiadbench.jsonl", [{"question": "p", "final_answer": ["1", 2]}] * 2)
    (tmp_path / "Minerva-MATH").mkdir()
    write_lines(tmp_path / "Minerva-MATH/test.json", [{"problem": "p", "solution": "s"}])
    assert search_sets(tmp_path) == ["aime24", "math", "olympiadbench", "minerva_math"]
    found = read_search(tmp_path, search_sets(tmp_path))
    assert found.items == [
        SearchProblem("aime24", "u", "p", 0.5),
        SearchProblem("math", "4", "q", "2"),
        SearchProblem("olympiadbench", "0", "p", ["1", 2]),
        SearchProblem("olympiadbench", "1", "p", ["1", 2]),
        SearchProblem("minerva_math", "0", "p", "s"),
    ]
    assert (found.read, found.dropped, found.defects) == (5, {"limit": 0}, {"repeated_problem": 1})
    assert read_search(tmp_path, ["olympiadbench"], limit=1).dropped == {"limit": 1}
    with pytest.raises(DataError, match="no file for the search set amc23"):
        read_search(tmp_path, ["amc23"])
    (tmp_path / "amc23.json.gz").write_bytes(gzip.compress(b'[{"problem": "p",\n "answer": 1}]', mtime=0))
    assert read_search(tmp_path, ["amc23"]).items == [SearchProblem("amc23", "0", "p", 1)]
    assert (search_set_named("MATH"), search_set_named("other")) == ("math", None)


def test_a_file_of_problems_names_its_set(tmp_path: Path) -> None:
    write_lines(tmp_path / "math_500.x.jsonl", [{"problem": str(i), "answer": i} for i in range(3)])
    found = read_problems(tmp_path / "math_500.x.jsonl", limit=1)
    assert found.items == [SearchProblem("math", "0", "0", 0)]
    assert (found.read, found.dropped, found.defects) == (3, {"limit": 2}, {"repeated_problem": 0})
    write_lines(tmp_path / "mine.jsonl", [{"problem": "P", "answer": "1"}, {"problem": "p", "answer": "1"}])
    mine = read_problems(tmp_path / "mine.jsonl")
    assert [problem.set for problem in mine.items] == ["mine", "mine"]
    assert mine.defects == {"repeated_problem": 1}
    with pytest.raises(DataError, match=r"none\.jsonl: no such file"):
        read_problems(tmp_path / "none.jsonl")


@pytest.mark.parametrize("answer", [None, True, float("nan"), float("inf"), " ", [], ["1", None], {}])
def test_a_problem_without_an_answer_is_refused(tmp_path: Path, answer: object) -> None:
    write_lines(tmp_path / "math.jsonl", [{"problem": "p", "answer": answer}])
    with pytest.raises(DataError, match=r"math\.jsonl: row 1: "):
        read_search(tmp_path, ["math"])


@pytest.mark.parametrize("identity", [True, 1.5, " ", ["a"]])
def test_an_id_that_is_no_name_is_refused(tmp_path: Path, identity: object) -> None:
    (tmp_path / "math.json").write_text(json.dumps([GOOD_PROCESS | {"id": identity}]))
    with pytest.raises(DataError, match="expected a text or an integer"):
        read_processbench(tmp_path)


def test_rows_that_are_no_objects_and_lists_of_answers_are_refused(tmp_path: Path) -> None:
    (tmp_path / "math.json").write_text("[[1]]")
    with pytest.raises(DataError, match="label is None; expected int"):
        read_processbench(tmp_path)
    with pytest.raises(DataError, match="answers, is None"):
        read_search(tmp_path, ["math"])
    write_lines(tmp_path / "minerva_math.jsonl", [{"problem": "p", "solution": ["s"]}])
    with pytest.raises(DataError, match="solution, the column of minerva_math's answers"):
        read_search(tmp_path, ["minerva_math"])
