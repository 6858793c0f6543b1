"""The layouts in which people have solutions, each read to the solutions that our own layout gives."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from ground.io import DataError
from pathfinder import PRM
from pathfinder.core.given import GivenSolution, read_given
from pathfinder.core.layouts import LAYOUTS
from pathfinder.data.export import STEPWISE, write_rows
from pathfinder.demo import MODEL

Options = dict[str, Any]
HERE = Path(__file__).parent / "given"
PROBLEM = "Tom has 3 apples.\n1) Tom buys 4.\nHow many apples does Tom have?"
STEPS = ["1) buys 4, so 3 + 4 = 8 apples.", "The answer is \\boxed{8}."]
TEXT = "\n\n".join(STEPS)
USER, ASSISTANT = {"role": "user", "content": PROBLEM}, {"role": "assistant", "content": TEXT}
PARTS = [{"type": "reasoning", "reasoning": "Hm.\n\nHm."}, {"type": "text", "text": TEXT}]
SYSTEM = {"role": "system", "content": "Solve it."}
OTHER = "It is 7.\n\nSo \\boxed{7}."

ROWS: dict[str, Any] = {
    "PRMBench": {"idx": "7", "classification": "circular", "modified_question": PROBLEM, "modified_process": STEPS},
    "problem and steps": {"id": 3, "problem": PROBLEM, "steps": STEPS},
    "stepwise supervision": {"prompt": PROBLEM, "completions": STEPS, "labels": [False, True]},
    "candidates": {"problem": PROBLEM, "solutions": [STEPS, OTHER]},
    "search-and-learn": {"problem": PROBLEM, "solution": "no", "completions": [TEXT, OTHER], "scores": [[0.1], [0.2]]},
    "preference pairs": {"prompt": PROBLEM, "chosen": TEXT, "rejected": OTHER},
    "inspect_ai": {
        "id": "a",
        "epoch": 1,
        "input": PROBLEM,
        "messages": [],
        "output": {"choices": [{"message": {"role": "assistant", "content": PARTS}}]},
    },
    "lm-evaluation-harness": {
        "doc_id": 0,
        "doc": {"question": PROBLEM, "answer": "7"},
        "target": "7",
        "resps": [[TEXT]],
        "filtered_resps": ["8"],
        "filter": "strict-match",
    },
    "batch": {"custom_id": "q", "response": {"status_code": 200, "body": {"choices": [{"message": ASSISTANT}]}}},
    "PRM800K": {
        "labeler": "x",
        "question": {"problem": PROBLEM},
        "label": {
            "steps": [
                {"completions": [{"text": "no"}, {"text": STEPS[0]}], "chosen_completion": 1, "human_completion": None},
                {"completions": [{"text": STEPS[1]}], "chosen_completion": None, "human_completion": None},
            ],
            "finish_reason": "found_error",
        },
    },
    "Math-Shepherd": {
        "input": f"{PROBLEM} Step 1: {STEPS[0]} ки\nStep 2: {STEPS[1]} ки",
        "label": f"{PROBLEM} Step 1: {STEPS[0]} +\nStep 2: {STEPS[1]} -",
        "task": "GSM8K",
    },
    "messages": {"messages": [SYSTEM, USER, ASSISTANT | {"content": PARTS}]},
    "prompt and completion": {"prompt": [SYSTEM, USER], "completion": [ASSISTANT]},
    "question and solution": {"question": PROBLEM, "answer": TEXT, "level": 3},
}
"""A row of each layout, whose first solution has ``STEPS``."""
VARIANTS: dict[str, Any] = {
    "ProcessBench": ROWS["problem and steps"] | {"id": "gsm8k-3", "label": 0, "final_answer_correct": False},
    "prompt and completion, texts": {"prompt": PROBLEM, "completion": TEXT},
    "pairs, conversations": {"chosen": [USER, ASSISTANT], "rejected": [USER, ASSISTANT | {"content": OTHER}]},
    "pairs, prompt and conversations": {
        "prompt": PROBLEM,
        "chosen": [USER, ASSISTANT],
        "rejected": [USER, {"role": "assistant", "content": OTHER}],
    },
    "Alpaca": {"instruction": PROBLEM.partition("\n")[0], "input": PROBLEM.partition("\n")[2], "output": TEXT},
    "problem, solution and answer": {"problem": PROBLEM, "solution": TEXT, "answer": "8"},
    "completion of a batch": {"custom_id": "q", "response": {"body": {"choices": [{"text": TEXT}]}}},
}


def write(folder: Path, *rows: Any, name: str = "in.jsonl") -> str:
    (folder / name).write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(folder / name)


def asked(folder: Path) -> str:
    """The input file of the batch."""
    return write(folder, {"custom_id": "q", "method": "POST", "body": {"messages": [SYSTEM, USER]}}, name="asked.jsonl")


def lines(folder: Path, name: str) -> Options:
    row = (ROWS | VARIANTS)[name]
    return {"source": write(folder, row), **({"problems": asked(folder)} if "custom_id" in row else {})}


def as_csv(folder: Path, name: str) -> Options:
    file = folder / f"in.{name.lower()}"
    with file.open("w", encoding="utf-8", newline="") as handle:
        rows = [["id", "question", "solution"], ["x", PROBLEM, TEXT]]
        csv.writer(handle, delimiter="," if name == "CSV" else "\t").writerows(rows)
    return {"source": str(file)}


def as_parquet(folder: Path, _: str) -> Options:
    pl.DataFrame([ROWS["stepwise supervision"] | {"none": None}]).write_parquet(folder / "in.parquet")
    return {"source": str(folder / "in.parquet")}


def as_text(folder: Path, _: str) -> Options:
    (folder / "in.txt").write_text(f"{PROBLEM}\n\n{TEXT}\n", encoding="utf-8")
    return {"source": str(folder / "in.txt")}


def of_the_hub(folder: Path, _: str) -> Options:
    (folder / "set").mkdir()
    write(folder / "set", {"question": PROBLEM, "answer": TEXT}, name="test.jsonl")
    return {"source": f"hub:{folder / 'set'}:test"}


def renamed(folder: Path, _: str) -> Options:
    row = {"doc": {"query": PROBLEM}, "cot": [TEXT], "messages": []}
    return {"source": write(folder, row), "columns": "problem=doc.query,steps=cot.0"}


def one_object(folder: Path, _: str) -> Options:
    (folder / "in.json").write_text(json.dumps(ROWS["messages"], indent=2), encoding="utf-8")
    return {"source": str(folder / "in.json")}


def committed(_: Path, name: str) -> Options:
    """A log that inspect_ai 0.3.285 or lm-evaluation-harness 0.4.13 has written."""
    return {"source": str(HERE / name)}


def exported(folder: Path, _: str) -> Options:
    branches = [{"step_index": place, "step": step, "correctness": place} for place, step in enumerate(STEPS)]
    tree = {"problem": PROBLEM, "steps": STEPS, "branches": [branches[0] | {"correctness": 1}, branches[1]]}
    write_rows(folder / "train.parquet", STEPWISE, [tree])
    return {"source": str(folder / "train.parquet")}


FILES: dict[str, Callable[[Path, str], Options]] = {
    **dict.fromkeys([*ROWS, *VARIANTS], lines),
    **dict.fromkeys(["CSV", "TSV"], as_csv),
    **dict.fromkeys(["inspect_ai.json", "inspect_ai.eval", "lm_eval.jsonl"], committed),
    "Parquet": as_parquet,
    "our export": exported,
    "text": as_text,
    "Hub": of_the_hub,
    "columns": renamed,
    "one object": one_object,
}


@pytest.fixture(scope="module")
def prm() -> PRM:
    return PRM.load(MODEL, device="cpu")


def test_every_layout_has_a_row() -> None:
    assert [layout.name for layout in LAYOUTS] == [*ROWS]
    assert len(FILES) == 32


@pytest.mark.parametrize("name", FILES)
def test_every_layout_gives_the_rewards_of_our_own(tmp_path: Path, name: str, prm: PRM) -> None:
    one = next(read_given(**FILES[name](tmp_path, name)).each())
    assert (one.problem, [*one.steps]) == (PROBLEM, STEPS)
    assert prm.score(one.problem, one.steps).rewards == pytest.approx([0.0115046, 0.9990334], abs=1e-6)


def read(folder: Path, *rows: Any, **options: Any) -> list[GivenSolution]:
    return list(read_given(write(folder, *rows), **options).each())


def test_several_solutions_of_a_row_have_names_of_their_own(tmp_path: Path) -> None:
    def ids(row: Any) -> list[str]:
        return [one.id for one in read(tmp_path, row)]

    assert ids(ROWS["preference pairs"]) == ["1/chosen", "1/rejected"]
    assert ids(ROWS["search-and-learn"] | {"unique_id": "test/3"}) == ["test/3/0", "test/3/1"]
    assert ids(ROWS["lm-evaluation-harness"]) == ["0"]
    assert ids(ROWS["lm-evaluation-harness"] | {"resps": [[TEXT, OTHER]]}) == ["0/0", "0/1"]
    assert ids(ROWS["inspect_ai"] | {"epoch": 2}) == ["a/epoch 2"]
    assert ids(ROWS["messages"]) == ["1"]
    assert ids(ROWS["PRMBench"]) == ["circular_7"]


def test_who_asks_for_candidates_gets_the_solutions_of_a_row_with_steps(tmp_path: Path) -> None:
    file = tmp_path / "both.jsonl"
    file.write_text(json.dumps({"problem": PROBLEM, "steps": STEPS, "solutions": [STEPS, OTHER]}))
    assert [len(row.solutions) for row in read_given(str(file)).rows] == [1]
    assert [len(row.solutions) for row in read_given(str(file), has_candidates=True).rows] == [2]


def test_the_labels_of_a_row_are_given_with_its_steps(tmp_path: Path) -> None:
    for name in ("stepwise supervision", "Math-Shepherd"):
        (one,) = read(tmp_path, ROWS[name])
        assert one.labels == ((False, True) if name.startswith("step") else (True, False))
    for labels in ([True], [True, False, True], [1, 2], "++"):
        with pytest.raises(DataError, match=r"in\.jsonl: row 1: labels is .*each of the 2 steps"):
            read(tmp_path, ROWS["stepwise supervision"] | {"labels": labels})


@pytest.mark.parametrize("name", ROWS)
def test_a_changed_field_is_named(tmp_path: Path, name: str) -> None:
    """A second row without a field of the layout, or with a number in its place."""
    row = ROWS[name]
    given = {"problems": asked(tmp_path)} if name == "batch" else {}
    (layout,) = (each for each in LAYOUTS if each.name == name)
    for key in [key for each in layout.fields for key in each.split("|") if key in row]:
        with pytest.raises(DataError, match=rf"in\.jsonl: row 2: found an object .*expected .*\({name}\); correct"):
            read(tmp_path, row, {k: value for k, value in row.items() if k != key}, **given)
        if key not in ("custom_id", "task", "labeler", "epoch"):
            with pytest.raises(DataError, match=r"in\.jsonl: row 2: .*; correct or remove the row") as error:
                read(tmp_path, row, row | {key: 7}, **given)
            said = str(error.value).partition(": row 2: ")[2].partition(", found ")[0]
            assert key in said


def test_an_unknown_layout_names_what_was_found_and_looked_for(tmp_path: Path) -> None:
    for row in ({"query": PROBLEM, "cot": TEXT}, {"prompt": PROBLEM, "completions": [TEXT]}, {"problem": PROBLEM}):
        with pytest.raises(DataError) as error:
            read(tmp_path, row)
        said = str(error.value)
        assert said.startswith(f"{tmp_path}/in.jsonl: row 1: found an object with {', '.join(row)}, expected")
        assert all(", ".join(layout.fields) in said for layout in LAYOUTS)
        assert said.endswith("name your fields with --columns problem=…,solution=…")
    with pytest.raises(DataError, match=r"row 2: found an object with messages \(messages\), expected .*steps"):
        read(tmp_path, ROWS["problem and steps"], ROWS["messages"])


HOSTILE = [
    '"}\n{"problem": "P", "steps": ["x"]}',
    "a\u2028b\u2029c\x85d\x0be\x0cf",
    "a\rb",
    'a","b\n"',
    "['a', 'b']",
    '["a", "b"]',
    "<extra_0> <+> ки ки",
    "=1+1,\t;",
    "a\x00b",
    "\ufeffa",
    "PAR1 PK\x03\x04",
    "Step 2: a\nStep 99999: b",
]


@pytest.mark.parametrize("text", HOSTILE)
def test_no_text_changes_a_boundary(tmp_path: Path, text: str) -> None:
    """Neither the layout, nor the rows, nor the number of steps other than by the split that is asked for."""
    one, two = (text,), (text, text)
    rows: list[tuple[Any, Any]] = [
        ({"problem": text, "steps": [text, text]}, [two]),
        ({"messages": [USER | {"content": text}, ASSISTANT | {"content": text}]}, [one]),
        ({"question": text, "answer": text}, [one]),
        ({"prompt": text, "chosen": text, "rejected": text}, [one, one]),
        ({"prompt": text, "completions": [text, text], "labels": [1, 0]}, [two]),
    ]
    for row, solutions in rows:
        given = read(tmp_path, row, row, split="numbered")
        assert [(each.problem, each.steps) for each in given] == [(text, steps) for steps in solutions * 2]
    with (tmp_path / "in.csv").open("w", encoding="utf-8", newline="") as handle:
        csv.writer(handle).writerows([["question", "answer"], [text, text], [text, text]])
    pl.DataFrame({"question": [text, text], "answer": [text, text]}).write_parquet(tmp_path / "in.parquet")
    for name in ("in.csv", "in.parquet"):
        found = list(read_given(str(tmp_path / name), "numbered").each())
        assert [(one.problem, one.steps) for one in found] == [(text, (text.strip(),))] * 2


@pytest.mark.parametrize(
    ("turns", "words"),
    [
        ([USER, ASSISTANT, USER, ASSISTANT], "the turns user, assistant, user, assistant; expected user, assistant"),
        ([ASSISTANT], "the turns assistant"),
        ([], "the turns none"),
        ([USER | {"content": [{"type": "image_url", "image_url": {}}]}, ASSISTANT], "part of type 'image_url'"),
        ([USER, ASSISTANT | {"content": None}], "content of assistant is None"),
        ([USER, "no"], "expected a list of turns"),
    ],
)
def test_a_conversation_that_is_no_question_with_its_answer_is_refused(
    tmp_path: Path, turns: list[Any], words: str
) -> None:
    with pytest.raises(DataError, match=rf"in\.jsonl: row 1: .*{words}"):
        read(tmp_path, {"messages": turns})


def test_pairs_of_two_problems_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="row 1: 2 different problems"):
        read(tmp_path, VARIANTS["pairs, prompt and conversations"] | {"prompt": "P"})
    with pytest.raises(DataError, match="row 1: 0 different problems"):
        read(tmp_path, {"chosen": "a", "rejected": "b"})


def test_a_log_with_a_row_for_each_filter_is_read_once(tmp_path: Path) -> None:
    row = ROWS["lm-evaluation-harness"]
    given = read_given(write(tmp_path, row, row | {"filter": "flexible-extract", "filtered_resps": ["7"]}))
    assert len(given.rows) == 1
    assert "1 rows of further filters left out" in given.note
    with pytest.raises(DataError, match="row 2: doc_id 0 has different resps"):
        read(tmp_path, row, row | {"resps": [[OTHER]]})
    with pytest.raises(DataError, match=r"row 1: doc has none of .* but query; use --columns problem=doc\.NAME"):
        read(tmp_path, row | {"doc": {"query": PROBLEM}})
    wrong: list[Any] = [[[["-1.5", "True"]]] * 4, [[]], [], ["a"], [["-1.5", 0]]]
    for resps in wrong:
        with pytest.raises(DataError, match=r"row 1: .*one generated request"):
            read(tmp_path, row | {"resps": resps})


@pytest.mark.parametrize("chosen", [-1, 2, "0", 0.5, [0]])
def test_a_choice_among_completions_that_is_none_is_refused(tmp_path: Path, chosen: Any) -> None:
    step = ROWS["PRM800K"]["label"]["steps"][0] | {"chosen_completion": chosen}
    with pytest.raises(DataError, match=r"row 1: expected .* as in PRM800K"):
        read(tmp_path, ROWS["PRM800K"] | {"label": {"steps": [step]}})


def test_a_batch_needs_its_questions(tmp_path: Path) -> None:
    row = ROWS["batch"]
    with pytest.raises(DataError, match=r"row 1: .*add --problems with the batch's input file"):
        read(tmp_path, row)
    with pytest.raises(DataError, match=r"row 1: custom_id is 'z', which is not in .*asked\.jsonl"):
        read(tmp_path, row | {"custom_id": "z"}, problems=asked(tmp_path))
    with pytest.raises(DataError, match=r"row 1: found an object with messages \(messages\), expected .*\(batch\)"):
        read(tmp_path, ROWS["messages"], problems=asked(tmp_path))
    failed = {"custom_id": "q", "response": None, "error": {"message": "timeout"}}
    assert [one.steps for one in read(tmp_path, failed, problems=asked(tmp_path))] == [()]
    twice = write(tmp_path, *[{"custom_id": "q", "body": {"prompt": PROBLEM}}] * 2, name="twice.jsonl")
    with pytest.raises(DataError, match=r"twice\.jsonl: row 2: .*custom_id of its own"):
        read(tmp_path, row, problems=twice)


def test_an_object_over_several_lines_may_begin_with_blank_lines_and_a_mark(tmp_path: Path) -> None:
    for start in (b"", b"\n \r\n", b"\xef\xbb\xbf", b"\xef\xbb\xbf\n"):
        (tmp_path / "in.json").write_bytes(start + json.dumps(ROWS["messages"], indent=2).encode())
        (one,) = read_given(str(tmp_path / "in.json")).each()
        assert [*one.steps] == STEPS


@pytest.mark.parametrize("row", [[5], [None], ["id a"], 5, None, "id a"])
def test_a_row_that_is_no_object_has_no_columns(tmp_path: Path, row: Any) -> None:
    with pytest.raises(DataError, match=r"row 1: no field (a|0\.a), found"):
        read(tmp_path, [row], columns="problem=a,steps=b")
    with pytest.raises(DataError, match=r"row 1: found "):
        read(tmp_path, {"version": 2, "eval": {}, "samples": row or 5})


@pytest.mark.parametrize("columns", ["problem=a", "steps=a", "problem=a,steps=b,solution=c", "problem=,steps=b", "x"])
def test_columns_name_a_problem_and_its_solution(tmp_path: Path, columns: str) -> None:
    with pytest.raises(DataError, match=f"--columns {columns}: expected problem=FIELD and one of"):
        read(tmp_path, {"a": PROBLEM, "b": TEXT}, columns=columns)


def test_what_would_be_ignored_is_refused(tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("P\n\na\n")
    text, row = str(tmp_path / "in.txt"), write(tmp_path, {"q": "P", "s": "a", "x": "7"})
    with pytest.raises(DataError, match=r"in\.txt: a text has no fields; leave --columns out"):
        read_given(text, columns="problem=q,steps=s")
    for given, columns in ((text, ""), (row, "problem=q,solution=s")):
        with pytest.raises(DataError, match="--problems is only for the answers of a batch"):
            read_given(given, columns=columns, problems=asked(tmp_path))
    with pytest.raises(DataError, match="answers=FIELD of solutions"):
        read_given(row, columns="problem=q,solution=s,answers=x")


def test_a_row_whose_id_is_null_has_its_number(tmp_path: Path) -> None:
    assert [one.id for one in read(tmp_path, *[ROWS["problem and steps"] | {"id": None}] * 2)] == ["1", "2"]


def test_a_missing_column_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"row 2: no field b\.0, found a, c"):
        read(tmp_path, {"a": PROBLEM, "b": [TEXT]}, {"a": PROBLEM, "c": 1}, columns="problem=a,solution=b.0")


def test_the_note_says_how_a_file_was_read(tmp_path: Path) -> None:
    rows = [{"question": "P", "answer": text} for text in (TEXT, OTHER, "a\nb", "", "Step 1: a\nStep 2: b")]
    assert read_given(write(tmp_path, *rows)).note == (
        f"{tmp_path}/in.jsonl: read as question and solution (question|problem|instruction, "
        "solution|response|output|answer); solutions split: 2 at blank lines, 1 at line ends, "
        '1 at "Step 1:", "Step 2:" … (--split changes this); 1 without text'
    )
    assert read_given(write(tmp_path, ROWS["problem and steps"])).note == ""


def test_a_text_is_split_as_asked(tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("P\nQ\n\na\nb\n\nc\n")
    found = {how: read_given(str(tmp_path / "in.txt"), how).rows[0] for how in ("auto", "blank", "lines", "numbered")}
    assert {row.problem for row in found.values()} == {"P\nQ"}
    assert found["auto"].solutions == found["blank"].solutions == (("a\nb", "c"),)
    assert found["lines"].solutions == (("a", "b", "c"),)
    assert found["numbered"].solutions == (("a\nb\n\nc",),)
