"""A PRM as the scorer of a search: rewards, rejection by labels, and one call per round."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from pathfinder.policy.picks import prm_pick
from pathfinder.policy.search import Round, Scored
from pathfinder.prm.steps import Candidates, RoundScorer, Solution, StepScore


class Scripted:
    """A PRM that scores "good", "doubtful" (one negative label, high reward) and other steps."""

    def __init__(self) -> None:
        self.calls: list[Mapping[str, Candidates]] = []

    def score(
        self, solutions: Sequence[Solution], on_done: Callable[[int], None] | None = None
    ) -> list[list[StepScore]]:
        raise AssertionError("a search scores candidates")

    def rounds(self) -> RoundScorer:
        def score(rounds: Mapping[str, Candidates]) -> dict[str, list[StepScore]]:
            self.calls.append(rounds)
            return {key: [self._step(step) for step in c.steps] for key, c in rounds.items()}

        return score

    def _step(self, step: str) -> StepScore:
        consistency, reward = {"good": (0.9, 0.8), "doubtful": (0.2, 0.95)}.get(step, (0.6, 0.1))
        return StepScore({"math": 0.9, "consistency": consistency}, reward)


ROUNDS = [
    Round("math/0", 2, "P", ("first",), ("good", "doubtful"), (3, 1)),
    Round("math/1", 2, "Q", (), ("other",), (4,)),
]


def test_a_negative_label_rejects_a_candidate() -> None:
    prm = Scripted()
    assert prm_pick(prm)(ROUNDS) == [[Scored(0.8), Scored(0.95, True)], [Scored(0.1)]]
    assert prm.calls == [
        {"math/0": Candidates("P", ("first",), ("good", "doubtful")), "math/1": Candidates("Q", (), ("other",))}
    ]


def test_the_labels_of_a_published_prm_reject_nothing() -> None:
    assert prm_pick(Scripted(), rejects=False)(ROUNDS)[0] == [Scored(0.8), Scored(0.95)]
