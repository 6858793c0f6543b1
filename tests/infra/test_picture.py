"""The README's picture holds what the model said, and nothing of a text as markup."""

from __future__ import annotations

from xml.etree import ElementTree

from infra.picture import PROBLEM, STEPS, draw
from pathfinder.prm.results import ScoredSolution, ScoredStep


def test_scores_errors_and_hostile_text_are_drawn() -> None:
    steps = (
        ScoredStep("fine", {"math": 0.9, "consistency": 0.8}, 0.7),
        ScoredStep("<script>&", {"math": 0.1, "consistency": 0.2}, 0.03),
        ScoredStep("doubted", {"math": 0.9, "consistency": 0.9}, 0.3),
        ScoredStep("single", {"error_free": 0.9}, 0.9),
    )
    drawn = draw(ScoredSolution("a\n<b>", steps))
    elements = ElementTree.fromstring(drawn).iter()  # noqa: S314  # our own drawing
    texts = [element.text for element in elements if element.tag.endswith("text")]
    assert "a <b>" in texts
    assert "<script>&" in texts
    assert {"0.90", "0.03", "math error, consistency error (first)", "low reward", "–"} <= set(texts)


def test_the_solution_has_one_step_per_part_of_the_problem() -> None:
    assert len(STEPS) == PROBLEM.count(")") + 1
