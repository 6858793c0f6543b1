"""Best of n by hand: four rules over the same rewards, and samples that no rule may choose."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pathfinder.core.params import Report
from pathfinder.core.steps import RoundScorer, Solution, StepScore
from pathfinder.policy.best_of_n import best_of_n, score_samples
from pathfinder.policy.choosing import RULES, choose, steps_of

REPORT = Report(bootstrap_samples=50, seed=1)


class Scripted:
    """A PRM whose reward of a step is the number that the step starts with."""

    def __init__(self) -> None:
        self.asked: list[Solution] = []

    def score(
        self, solutions: Sequence[Solution], on_done: Callable[[int], None] | None = None
    ) -> list[list[StepScore]]:
        self.asked += solutions
        return [[StepScore({}, float(step.split()[0])) for step in one.steps] for one in solutions]

    def rounds(self) -> RoundScorer:
        raise AssertionError("whole solutions have no rounds")


def sample(name: str, solutions: list[str], answers: list[str | None], gold: str) -> dict[str, Any]:
    right = [answer == gold for answer in answers]
    return {
        "set": "math",
        "id": name,
        "question": f"problem {name}",
        "solutions": solutions,
        "answers": answers,
        "right": right,
        "majority_right": right[0],
    }


def test_each_rule_chooses_by_its_own_score() -> None:
    """1: even. 2: one weak step, the others strong. 3: short. 4: weak start, strong end."""
    rewards = [[0.6, 0.6, 0.6], [0.95, 0.35, 0.96], [0.5], [0.1, 0.5, 0.99]]
    chosen = choose(rewards, ["1", "2", "3", "4"])
    assert chosen == {"min": 0, "product": 2, "last": 3, "mean": 1}
    # by hand: minima .6 .35 .5 .1; products .216 .319 .5 .0495; means .6 .753 .5 .53


def test_no_answer_or_no_step_is_never_chosen_and_the_first_of_equals_is() -> None:
    assert set(choose([[0.9], [], [0.2], [0.2]], [None, "1", "2", "3"]).values()) == {2}
    assert set(choose([[0.9], []], [None, "1"]).values()) == {None}


def test_the_samples_own_figures_are_repeated() -> None:
    first = sample("a", ["0.9 x\n\n0.2 y", "0.5 x\n\n0.6 y"], ["1", "2"], "2")
    second = sample("b", ["0.9 x", "0.9 x"], ["7", "7"], "7")
    third = sample("c", ["0.9 x", "0.1 x"], [None, None], "7")
    prm = Scripted()
    scored = score_samples(prm, [first, second, third])
    assert [row["rewards"] for row in scored] == [[[0.9, 0.2], [0.5, 0.6]], [[0.9], [0.9]], [[0.9], [0.1]]]
    assert len(prm.asked) == 5, "equal solutions of a problem are scored once"
    rows, figures = best_of_n([first, second, third], scored, REPORT)
    assert rows[0]["chosen"] == {"min": 1, "product": 1, "last": 1, "mean": 0}
    assert rows[0]["right"] == {"min": True, "product": True, "last": True, "mean": False}
    assert set(rows[2]["right"].values()) == {False}
    third_share = 100 / 3
    assert figures["n"] == 2
    assert figures["average"] == pytest.approx(
        {
            "pass@1": 1.5 * third_share,
            "maj@2": third_share,
            "pass@2": 2 * third_share,
            "min": 2 * third_share,
            "product": 2 * third_share,
            "last": 2 * third_share,
            "mean": third_share,
        }
    )
    assert figures["sets"]["math"]["n"] == 3
    assert figures["intervals"].keys() == figures["average"].keys()


def test_solutions_are_split_as_the_search_draws_steps() -> None:
    assert steps_of(" a\nb \n\n\n\n c\n\n") == ("a\nb", "c")
    assert steps_of("\n\n \n\n") == ()


@given(
    st.lists(
        st.tuples(
            st.lists(st.floats(0.0, 1.0), max_size=4).map(tuple), st.one_of(st.none(), st.sampled_from(["1", "2"]))
        ),
        min_size=1,
        max_size=8,
    )
)
def test_the_chosen_sample_has_the_highest_score(samples: list[tuple[tuple[float, ...], str | None]]) -> None:
    rewards, answers = [list(steps) for steps, _ in samples], [answer for _, answer in samples]
    able = [place for place in range(len(samples)) if rewards[place] and answers[place] is not None]
    for rule, place in choose(rewards, answers).items():
        if place is None:
            assert not able
            continue
        scores = [RULES[rule](rewards[other]) for other in able]
        assert place == able[scores.index(max(scores))]
