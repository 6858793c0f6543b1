"""The batches of concurrent callers; tests/prm/test_serving.py tests a whole server."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

from pathfinder.core.steps import Solution, StepScore
from pathfinder.prm.batching import Batcher


def test_the_callers_of_a_batch_are_waited_for_and_a_single_caller_is_not() -> None:
    """The first batch takes two seconds, so the model then waits up to half a second for a second solution."""
    sizes: list[int] = []
    one = Solution("1", "1+1?", ("It is two.",))

    def score(solutions: Sequence[Solution]) -> list[list[StepScore]]:
        sizes.append(len(solutions))
        time.sleep(2.0 if len(sizes) == 1 else 0.0)
        return [[StepScore({}, 0.5)] for _ in solutions]

    with Batcher(score) as batcher:
        for future in batcher.submit([one, one]):
            future.result()
        first = batcher.submit([one])
        time.sleep(0.05)  # the model is free, and waits
        for future in first + batcher.submit([one]):
            future.result()
        assert sizes == [2, 2]
        (late,) = batcher.submit([one])
        late.result()  # the batch before took no time, so there is nothing to wait for
        for _ in range(3):
            (alone,) = batcher.submit([one])
            alone.result()
    assert sizes == [2, 2, 1, 1, 1, 1]


def test_threads_share_what_waits() -> None:
    sizes: list[int] = []
    together = threading.Barrier(2, timeout=30)

    def score(solutions: Sequence[Solution]) -> list[list[StepScore]]:
        together.wait()  # a batch alone would break it
        sizes.append(len(solutions))
        return [[StepScore({}, int(solution.id))] for solution in solutions]

    with Batcher(score, threads=2) as batcher:
        futures = batcher.submit([Solution(str(number), "p", ("s",)) for number in range(8)])
        assert [future.result()[0].reward for future in futures] == list(range(8))
    assert sizes == [4, 4]
    assert (batcher.batches, batcher.scored, batcher.waiting) == (2, 8, 0)
