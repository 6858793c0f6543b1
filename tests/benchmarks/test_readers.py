"""The readers on the real files, the small world and malformed rows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, get_args

import pytest

from pathfinder.benchmarks.readers import CLASSES, CORRECT, read_prmbench, read_processbench, read_search
from pathfinder.core.io import DataError
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
