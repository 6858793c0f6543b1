"""Rows of solutions to rows of scores, and a problem drawn for a terminal."""

from __future__ import annotations

from pathlib import Path

import pytest

from pathfinder.core.io import DataError
from pathfinder.core.steps import Solution, StepScore
from pathfinder.prm.score_lines import read_solutions, render_scores, score_row
from pathfinder.prm.scoring import Scorer
from tests.prm.test_scoring import save_prm


def test_rows_in_rows_out(tmp_path: Path) -> None:
    save_prm(tmp_path / "model")
    source = tmp_path / "in.jsonl"
    source.write_text('{"id": 7, "problem": "P", "steps": ["a", "b"]}\n\n{"id": "x", "problem": "Q", "steps": ["c"]}\n')
    scorer = Scorer(tmp_path / "model")
    solutions = read_solutions(str(source))
    rows = [score_row(solution, scores) for solution, scores in zip(solutions, scorer.score(solutions), strict=True)]
    assert [(row["id"], len(row["steps"])) for row in rows] == [("7", 2), ("x", 1)]
    assert set(rows[0]["steps"][0]) == {"math", "consistency", "reward", "labels"}
    assert all(0 <= step["reward"] <= 1 for row in rows for step in row["steps"])
    for bad, what in (("[1]", "object"), ('{"id": 1, "problem": "P", "steps": []}', "steps"), ("{", "JSON")):
        source.write_text('{"id": 7, "problem": "P", "steps": ["a"]}\n' + bad)
        with pytest.raises(DataError, match=rf"in\.jsonl:2: .*{what}"):
            read_solutions(str(source))
    score = StepScore({"math": 0.2, "consistency": 0.9}, 0.1)
    drawn = render_scores(Solution("1", "P\x1b[2J", ("a",)), [score])
    assert "math error" in drawn
    assert "consistency error" not in drawn
    assert "P\\x1b[2J" in drawn, "no text may control the terminal"


def test_a_solution_longer_than_the_context_is_a_row_without_steps() -> None:
    solution = Solution("1", "P", ("a",))
    assert score_row(solution, []) == {"id": "1", "steps": [], "too_long": True}
    assert "longer than the model's context" in render_scores(solution, [])
