"""Best of n and weighted votes by hand: rules over the same rewards, and samples that no rule may choose."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pathfinder.core.layouts import steps_of
from pathfinder.core.params import Report
from pathfinder.core.steps import PRM, RoundScorer, Solution, StepScore
from pathfinder.policy.best_of_n import best_of_n, score_samples
from pathfinder.policy.choosing import BEST, RULES, SCORES, choose

REPORT = Report(bootstrap_samples=50, seed=1)


class Scripted(PRM):
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
        "votes": answers,
        "right": right,
        "majority_right": right[0],
    }


def test_each_rule_chooses_by_its_own_score() -> None:
    """1: even. 2: one weak step, the others strong. 3: short. 4: weak start, strong end."""
    rewards = [[0.6, 0.6, 0.6], [0.95, 0.35, 0.96], [0.5], [0.1, 0.5, 0.99]]
    chosen = choose(rewards, ["1", "2", "3", "4"])
    assert [chosen[rule] for rule in SCORES] == [0, 2, 3, 1]
    assert [chosen[f"weighted_{rule}"] for rule in SCORES] == [0, 2, 3, 1], "each answer has one vote"
    # by hand: minima .6 .35 .5 .1; products .216 .319 .5 .0495; means .6 .753 .5 .53


def test_a_weighted_vote_adds_the_scores_of_an_answer() -> None:
    rewards = [[0.9, 0.7], [0.2, 0.5], [0.6, 0.3], [0.8, 0.2]]
    chosen = choose(rewards, ["1", "2", "2", "1"])
    assert chosen["weighted_min"] == 0  # .7 + .2 against .2 + .3
    assert chosen["weighted_last"] == 0  # .7 + .2 against .5 + .3
    chosen = choose(rewards, ["1", "2", "2", "2"])
    assert chosen["weighted_min"] == 0  # .7 against .2 + .3 + .2, which is .7 as well, but not in binary
    assert chosen["weighted_last"] == 1  # .7 against .5 + .3 + .2
    assert choose([[0.5], [0.25], [0.25]], ["1", "2", "2"])["weighted_min"] == 0, "the first of equals"
    assert choose([[0.25], [0.5], [0.25]], ["1", "2", "1"])["weighted_min"] == 0, "the first of equals"
    assert choose([[], [0.4], [0.3], [0.2]], ["1", "2", "1", "1"])["weighted_min"] == 2, "the first with a score"


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
    chosen = {"min": 1, "product": 1, "last": 1, "mean": 0}
    assert rows[0]["chosen"] == chosen | {f"weighted_{rule}": index for rule, index in chosen.items()}
    assert rows[0]["right"] == {rule: index == 1 for rule, index in rows[0]["chosen"].items()}
    assert set(rows[2]["right"].values()) == {False}
    third_share = 100 / 3
    assert figures.n == 2
    assert figures.average == pytest.approx(
        {
            "pass@1": 1.5 * third_share,
            "maj@2": third_share,
            "pass@2": 2 * third_share,
        }
        | dict.fromkeys(RULES, 2 * third_share)
        | dict.fromkeys(["mean", "weighted_mean"], third_share)
    )
    assert figures.sets["math"]["n"] == 3
    assert figures.intervals.keys() == figures.average.keys()


def test_the_choice_by_soundness_is_a_figure_of_its_own_and_overlong_solutions_are_counted() -> None:
    row = sample("a", ["0.9 x", "0.2 y", "long", ""], ["1", "2", "2", "1"], "2")
    scored = {"set": "math", "id": "a", "rewards": [[0.9], [0.2], [], []], "soundness": [[0.3], [0.8], [], []]}
    (found,), figures = best_of_n([row], [scored], REPORT)
    assert (set(found["right"].values()), set(found["right_by_soundness"].values())) == ({False}, {True})
    assert figures.soundness is not None
    assert {figures.soundness.average[rule] - figures.average[rule] for rule in RULES} == {100.0}
    assert figures.too_long == 1, "a solution without a step is not too long"


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
        way, name = RULES[rule]
        scores = [SCORES[name](rewards[other]) for other in able]
        if way != BEST:
            scores = [sum(s for s, o in zip(scores, able, strict=True) if answers[o] == answers[one]) for one in able]
        assert place == able[scores.index(max(scores))]
