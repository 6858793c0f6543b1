"""Rows of solutions to rows of scores, and a problem drawn for a terminal."""

from __future__ import annotations

import gzip
import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

from ground.io import DataError
from pathfinder.core.given import read_given
from pathfinder.core.steps import Solution, StepScore
from pathfinder.models.folders import open_model
from pathfinder.pages.picture import picture_of
from pathfinder.prm.results import (
    TOO_LONG,
    ScoredSolution,
    prediction,
    read_solutions,
    render_scores,
    score_row,
    scored_solution,
)
from pathfinder.prm.scoring import Scorer
from pathfinder.prm.serving import verdict
from tests.prm.test_scoring import save_prm


def test_rows_in_rows_out(tmp_path: Path) -> None:
    save_prm(tmp_path / "model")
    source = tmp_path / "in.jsonl"
    source.write_text('{"id": 7, "problem": "P", "steps": ["a", "b"]}\n\n{"id": "x", "problem": "Q", "steps": ["c"]}\n')
    scorer = Scorer(open_model(tmp_path / "model"))
    solutions = read_solutions(read_given(str(source)))
    rows = [score_row(solution, scores) for solution, scores in zip(solutions, scorer.score(solutions), strict=True)]
    assert [(row["id"], len(row["steps"])) for row in rows] == [("7", 2), ("x", 1)]
    assert set(rows[0]["steps"][0]) == {
        *("math", "consistency", "reward", "soundness", "quality", "optimality"),
        *("probabilities", "errors", "correct"),
    }
    assert all(0 <= step["reward"] <= 1 for row in rows for step in row["steps"])
    for bad, what in (("[1]", "object"), ('{"id": 1, "problem": "P", "steps": [1]}', "steps"), ("{", "JSON")):
        source.write_text('{"id": 7, "problem": "P", "steps": ["a"]}\n' + bad)
        with pytest.raises(DataError, match=rf"in\.jsonl(: row |:)2: .*{what}"):
            read_solutions(read_given(str(source)))
    score = StepScore({"math": 0.2, "consistency": 0.9}, 0.1)
    drawn = render_scores(Solution("1", "P\x1b[2J", ("a",)), [score])
    assert "math error" in drawn
    assert "consistency error" not in drawn
    assert "P\\x1b[2J" in drawn, "no text may control the terminal"


def test_a_solution_longer_than_the_context_is_a_row_that_says_so() -> None:
    solution = Solution("1", "P", ("a",))
    assert score_row(solution, []) == {"id": "1", "scored": False, "reason": TOO_LONG}
    assert f"not scored: {TOO_LONG}" in render_scores(solution, [])


GSM = {"id": "gsm8k-3", "generator": "x", "problem": "P", "steps": ["a", "b"], "final_answer_correct": True, "label": 1}
CHANGED = {"idx": "7", "classification": "circular", "modified_question": "P", "modified_process": ["a", "b"]}


@pytest.mark.parametrize(
    ("name", "text", "ids"),
    [
        (
            "own.jsonl",
            '\n{"problem": "P", "steps": ["a", "b"]}\n{"id": 9, "problem": "P", "steps": ["a", "b"]}',
            ["2", "9"],
        ),
        ("gsm8k.json", json.dumps([GSM], indent=1), ["gsm8k-3"]),
        ("prm.jsonl", json.dumps(CHANGED), ["circular_7"]),
        ("text.txt", "\n\nP\n \t\na\n\n\nb\n", ["1"]),
    ],
)
def test_every_form_of_solutions_is_read(tmp_path: Path, name: str, text: str, ids: list[str]) -> None:
    (tmp_path / name).write_text(text)
    assert read_solutions(read_given(str(tmp_path / name))) == [Solution(identity, "P", ("a", "b")) for identity in ids]


@pytest.mark.parametrize(
    ("text", "words"), [(b"only a problem", "steps"), (b"\xff\n\na", "UTF-8"), (b" \n", "no solution")]
)
def test_a_text_without_steps_is_refused(tmp_path: Path, text: bytes, words: str) -> None:
    (tmp_path / "a.txt").write_bytes(text)
    with pytest.raises(DataError, match=words):
        read_solutions(read_given(str(tmp_path / "a.txt")))
    with pytest.raises(DataError, match="a folder; give a file"):
        read_solutions(read_given(str(tmp_path)))


@pytest.mark.parametrize("name", ["x.xlsx", "x.XML", "x.yaml.gz", "x.parquet", "x.json", "x.yaml"])
def test_another_format_is_not_scored_as_a_text(tmp_path: Path, name: str) -> None:
    content = b'problem,steps\n"P\n\n","a\n\nb"\n'
    (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    with pytest.raises(
        DataError, match=rf"{name}: neither JSON .* give a \.jsonl, \.json, .* \.txt, \.md or \.tex file, or one"
    ):
        read_solutions(read_given(str(tmp_path / name)))


@pytest.mark.parametrize("name", ["x.txt", "x.md", "x.TEX", "x", "x.txt.gz"])
def test_a_text_is_known_by_its_name(tmp_path: Path, name: str) -> None:
    content = b"P\n\na\n\nb"
    (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    assert read_solutions(read_given(str(tmp_path / name))) == [Solution("1", "P", ("a", "b"))]


def test_a_text_may_begin_with_a_bracket(tmp_path: Path) -> None:
    (tmp_path / "x.md").write_text("[P](a)\n\na")
    assert read_solutions(read_given(str(tmp_path / "x.md")))[0].problem == "[P](a)"


def test_line_ends_of_windows_change_no_solution(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"P\r\n1) event\r\n\r\nfirst\r\nline\r\n\r\nsecond\r\n")
    assert read_solutions(read_given(str(tmp_path / "a.txt"))) == [
        Solution("1", "P\n1) event", ("first\nline", "second"))
    ]


def test_predictions_follow_the_benchmarks_rules() -> None:
    solution = Solution("gsm8k-3", "P", ("a", "b"))
    fine, doubted, nothing = (StepScore({"math": 0.9}, reward) for reward in (0.9, 0.4, math.nan))
    typed = StepScore({"math": 0.1}, math.nan)
    found = [
        prediction("processbench", solution, scores)["prediction"] for scores in ([fine, doubted], [fine, fine], [])
    ]
    assert found == [-1, -1, None], "a step without an error that is not useful"
    assert prediction("processbench", solution, [nothing, typed])["prediction"] == 1, "mode pass1 has only the labels"
    assert prediction("processbench", solution, [fine])["subset"] == "gsm8k"
    labels = {"step_level_validity_labels": [True, True], "step_level_redundancy_labels": [False, True]}
    assert prediction("prmbench", solution, [fine, doubted]) == {"idx": "gsm8k-3", "scores": labels}
    assert prediction("prmbench", solution, []) == {"idx": "gsm8k-3", "scores": {}, "validity": False}


def test_an_error_and_a_step_that_does_not_help_are_said_apart() -> None:
    sound, idle, wrong = (0.9, 0.9, 0.9), (0.9, 0.9, 0.2), (0.1, 0.9, 0.05)
    scores = [StepScore({"math": m, "consistency": c}, reward) for m, c, reward in (sound, idle, wrong)]
    scored = scored_solution(Solution("1", "p", ("a", "b", "c")), scores)
    assert isinstance(scored, ScoredSolution)
    assert [step.findings for step in scored.steps] == [(), ("not useful",), ("math error",)]
    assert [(step.soundness, step.quality, step.optimality) for step in scored.steps] == [
        (0.9, 0.9, 0.9),
        (0.9, 0.2, 0.2),
        (0.1, 0.05, None),
    ]
    said = "The first incorrect step is step 3. Without an error, but not useful: step 2."
    assert verdict(scored) == said
    assert verdict(replace(scored, unlike=("a number above 9",))) == (
        f"{said} These scores mean little: the solution is unlike all that the model learnt from (a number above 9)."
    )
    assert [row.badges for row in picture_of("p", scored.steps).rows][1:] == [
        ("not useful",),
        ("first error", "math error"),
    ]
