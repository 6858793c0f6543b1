"""Tables, zipped logs and data sets of the Hub are read whole or refused."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from ground.io import DataError
from pathfinder.core.given import read_given
from tests.core.test_given import HERE, PROBLEM, STEPS, read


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("question,answer\nP\n", "row 1: 1 cells, expected 2"),
        ("question,question\nP,a\n", "two columns have the same name"),
        ('question,answer\nP,"a', r"not CSV in UTF-8 \(line 2: "),
        ('question,answer\n"a";"b"\n', r"not CSV in UTF-8 \(line 2: .*; correct the line$"),
        ('question,answer\nP,a\nP,"a"b\nP,a\n', r"not CSV in UTF-8 \(line 3: "),
        (
            "question,answer\n" + "P,\ufffd\n" * 9000 + "P,\udcff\nP,a\n",
            r"not CSV .*\(line 9002: .*; convert the file to UTF-8$",
        ),
        ("problem,steps\nP,\"['a', 'b']\"\n", "row 1: steps is .*expected a JSON list"),
        ("question,answer\n", "contains no solution"),
        ("", "contains no solution"),
    ],
)
def test_what_is_no_table_is_refused(tmp_path: Path, content: str, words: str) -> None:
    (tmp_path / "in.csv").write_text(content, "utf-8", "surrogateescape")
    with pytest.raises(DataError, match=rf"in\.csv: {words}"):
        read_given(str(tmp_path / "in.csv"))


def test_lists_in_cells_are_json(tmp_path: Path) -> None:
    with (tmp_path / "in.csv").open("w", newline="") as handle:
        csv.writer(handle).writerows([["problem", "steps"], [PROBLEM, json.dumps(STEPS)]])
    (one,) = read_given(str(tmp_path / "in.csv")).each()
    assert [*one.steps] == STEPS
    for name, steps in (("steps", tuple(STEPS)), ("solution", (json.dumps(STEPS),))):
        (one,) = read_given(str(tmp_path / "in.csv"), columns=f"problem=problem,{name}=steps").each()
        assert one.steps == steps
    for text in ("[1, 2]", '["a", 2]', "['a', 'b']", "12", "[", "null"):
        with (tmp_path / "in.csv").open("w", newline="") as handle:
            csv.writer(handle).writerows([["q", "cot"], [PROBLEM, text]])
        (one,) = read_given(str(tmp_path / "in.csv"), columns="problem=q,steps=cot").each()
        assert one.steps == (text,), "no list of texts is a text"


def test_names_in_other_case_are_found_unless_two_differ_by_it_alone(tmp_path: Path) -> None:
    for content, steps in (
        ("Problem,Solution,ID\nP,S,x\n", "S"),
        ('PROBLEM,Steps,Id\nP,"[""S""]",x\n', "S"),
        ("Question,Response,response,id\nP,no,S,x\n", "S"),
        ('problem,Steps,steps,id\nP,no,"[""S""]",x\n', "S"),
    ):
        (tmp_path / "in.csv").write_text(content)
        (one,) = read_given(str(tmp_path / "in.csv")).each()
        assert (one.id, one.problem, one.steps) == ("x", "P", (steps,))
    for content in ("Problem,PROBLEM,Solution\nP,P,S\n", "Task,Solution\nP,S\n"):
        (tmp_path / "in.csv").write_text(content)
        with pytest.raises(DataError, match=rf"row 1: found an object with {content.split()[0][:4]}"):
            read_given(str(tmp_path / "in.csv"))
    rows = ({"Question": PROBLEM, "Response": "a"}, {"Question": PROBLEM, "Response": None})
    assert [one.steps for one in read(tmp_path, *rows)] == [("a",), ()]


def test_a_column_that_is_not_named_may_hold_anything(tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text('question,labels,answers,candidates\nP,good,x=3,"[""a"", ""b""]"\n')
    with pytest.raises(DataError, match="labels is 'good', expected a JSON list"):
        read_given(str(tmp_path / "in.csv"))
    for columns, solutions in (("solution=labels", ["good"]), ("solutions=candidates", ["a", "b"])):
        found = read_given(str(tmp_path / "in.csv"), columns=f"problem=question,{columns}")
        assert [one.steps for one in found.each()] == [(solution,) for solution in solutions]
    (one,) = read_given(str(tmp_path / "in.csv"), columns="problem=question,steps=candidates.1").each()
    assert one.steps == ("b",)


def test_named_columns_of_lists_hold_json(tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text(
        'q,my.cands,right,id,doc\nP,"[""a"", ""b""]","[""x"", null]",07,"{""k"": ""c""}"\n'
    )
    given = read_given(str(tmp_path / "in.csv"), columns="problem=q,solutions=my.cands,answers=right,id=id")
    assert [(row.id, row.solutions, row.answers) for row in given.rows] == [("07", (("a",), ("b",)), ["x", None])]
    (one,) = read_given(str(tmp_path / "in.csv"), columns="problem=q,solution=doc.k").each()
    assert one.steps == ("c",)


def test_an_empty_cell_is_no_list(tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text("question,solution,labels,solutions\nP,a,,\n")
    (one,) = read_given(str(tmp_path / "in.csv")).each()
    assert one.steps == ("a",)


@pytest.mark.parametrize("content", [b"PK\3\4", b"PAR1", b"PAR1PAR1"])
def test_a_damaged_file_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "in.eval").write_bytes(content)
    with pytest.raises(DataError, match=r"in\.eval: (a damaged zip|not a readable Parquet)"):
        read_given(str(tmp_path / "in.eval"))


def test_every_damage_of_a_log_is_refused_or_read_alike(tmp_path: Path) -> None:
    whole = (HERE / "inspect_ai.eval").read_bytes()
    expected = [one.steps for one in read_given(str(HERE / "inspect_ai.eval")).each()]
    refused = 0
    for place in range(0, len(whole), 37):
        (tmp_path / "in.eval").write_bytes(whole[:place] + bytes([whole[place] ^ 0xFF]) + whole[place + 1 :])
        try:
            assert [one.steps for one in read_given(str(tmp_path / "in.eval")).each()] == expected
        except DataError:
            refused += 1
    assert refused > 20


def test_a_name_of_the_hub_has_a_split(tmp_path: Path) -> None:
    for source in ("hub:", "hub:a", "hub:a:b:c:d"):
        with pytest.raises(DataError, match=r"expected hub:OWNER/NAME:SPLIT"):
            read_given(source)
    with pytest.raises(DataError, match="correct the name, the configuration or the split"):
        read_given(f"hub:{tmp_path / 'none'}:test")


@pytest.mark.parametrize("separator", [b",", b";", b"\t"])
def test_a_table_of_windows_is_read(tmp_path: Path, separator: bytes) -> None:
    """Its spreadsheets separate by semicolons where a comma is the decimal point."""
    table = b'\xef\xbb\xbfquestion,answer\r\nP,"a\r\n\r\nb"\r\n\r\nQ,c\r\n'
    (tmp_path / "in.csv").write_bytes(table.replace(b",", separator))
    found = list(read_given(str(tmp_path / "in.csv")).each())
    assert [(one.id, one.problem, one.steps) for one in found] == [("1", "P", ("a", "b")), ("2", "Q", ("c",))]


def test_blank_lines_quoted_separators_and_empty_ids_are_read(tmp_path: Path) -> None:
    for start in ("", "\n", "\ufeff\r\n\r\n", "\ufeff"):
        table = f'{start}question;answer;id;"more, or less"\n\nP;a;;x\nQ;b;"";y\nR;c;z;\n'
        (tmp_path / "in.csv").write_text(table, "utf-8")
        found = list(read_given(str(tmp_path / "in.csv")).each())
        assert [(one.id, one.problem, one.steps) for one in found] == [
            ("1", "P", ("a",)),
            ("2", "Q", ("b",)),
            ("z", "R", ("c",)),
        ]


def test_a_log_on_one_line_is_read_and_another_version_refused(tmp_path: Path) -> None:
    log = json.loads((HERE / "inspect_ai.json").read_text())
    expected = list(read_given(str(HERE / "inspect_ai.eval")).each())
    found = read(tmp_path, log)
    assert sorted((one.id, one.steps) for one in found) == sorted((one.id, one.steps) for one in expected)
    with pytest.raises(DataError, match=r"in\.jsonl: a log of inspect_ai of version 1, expected 2"):
        read(tmp_path, log | {"version": 1})
    with pytest.raises(DataError, match="contains no solution"):
        read(tmp_path, log | {"samples": None})
