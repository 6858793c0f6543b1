"""Fields that hold nothing: the solutions of a file are in one field, blank steps are no text, and a null is named."""

from __future__ import annotations

import json
from io import BytesIO, TextIOWrapper
from pathlib import Path

import polars as pl
import pytest

from ground.io import DataError
from pathfinder.core.given import read_given


def test_a_right_answer_is_not_read_as_the_solution_of_a_failed_generation(tmp_path: Path) -> None:
    first = {"problem": "What is 12 + 7?", "response": "12 + 7 = 19.", "answer": "19"}
    rows = [first, first | {"response": None}, {"problem": "p", "response": None}]
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    assert [row.solutions for row in read_given(str(path)).rows] == [(("12 + 7 = 19.",),), ((),), ((),)]
    for others in ([rows[1], first], [first, {"problem": "p", "answer": "19"}]):
        path.write_text("".join(f"{json.dumps(row)}\n" for row in others))
        with pytest.raises(DataError, match=r"row 2: the solution would be \w+, but it is \w+ in the first row"):
            read_given(str(path))


def test_a_text_without_a_suffix_is_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = b'problem,solution\nQ,"a\n\nb"\n'
    (tmp_path / "rows").write_bytes(content)
    (tmp_path / "rows.txt").write_bytes(content)
    monkeypatch.setattr("sys.stdin", TextIOWrapper(BytesIO(content)))
    for source, name in (("-", "standard input"), (str(tmp_path / "rows"), str(tmp_path / "rows"))):
        assert read_given(source).note == f"{name}: read as a text; give CSV as a .csv file"
    assert read_given(str(tmp_path / "rows.txt")).note == ""


@pytest.mark.parametrize("steps", [[], [" "], ["", "\n"]])
def test_a_solution_without_text_has_no_steps(tmp_path: Path, steps: list[str]) -> None:
    path = tmp_path / "rows.jsonl"
    for row in ({"problem": "p", "steps": steps}, {"problem": "p", "solutions": [steps, ["a"]]}):
        path.write_text(json.dumps(row))
        assert next(read_given(str(path)).each()).steps == ()


def test_a_null_is_a_failed_generation_in_every_container(tmp_path: Path) -> None:
    rows = [{"problem": "P", "response": text, "answer": "19"} for text in ("a", None)]
    pl.DataFrame(rows).write_parquet(tmp_path / "in.parquet")
    pl.DataFrame(rows).write_csv(tmp_path / "in.csv")
    for name in ("in.parquet", "in.csv"):
        assert [one.steps for one in read_given(str(tmp_path / name)).each()] == [("a",), ()]
    for field in ("solution", "steps"):
        given = read_given(str(tmp_path / "in.parquet"), columns=f"problem=problem,{field}=response")
        assert [(one.steps, one.answer) for one in given.each()] == [(("a",), "19"), ((), "19")]
    pl.DataFrame({"problem": ["P", None], "steps": [["a"], ["b"]]}).write_parquet(tmp_path / "in.parquet")
    with pytest.raises(DataError, match=r"row 2: found an object with problem \(null\), steps, expected"):
        read_given(str(tmp_path / "in.parquet"))


def test_a_split_of_steps_is_noted(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps({"problem": "p", "steps": ["a\nb"]}))
    said = "--split lines changes nothing: every solution is a list of steps"
    assert read_given(str(path), "lines").note.endswith(f"; {said}")
    assert read_given(str(path)).note == ""
