"""The strongest score of some decisions after trainings of different lengths: from which length on are scores wrong?

Run     python -m tests.campaigns.influence.lengths RECORDS...     (in a finished quickstart)

Each training is the one of ``proof`` with more or fewer records. The decisions are about items at even places of
ProcessBench and have an output between -2 and 2 nats. One line of JSON is printed for each training.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any

from ground.text import errors_without_traceback

DECISIONS, SEED = 3, 3


def strongest(records: int) -> dict[str, Any]:
    """Train on at most so many records and explain a few decisions, a JSON value."""
    import numpy as np

    from extras.why.decision import output_gradient
    from extras.why.replay import rates_of, replay
    from extras.why.trained import learner_of
    from extras.why.unroll import unroll
    from extras.why.why import BASE, TRAIN
    from ground.io import read_parquet
    from pathfinder.core import mixes
    from pathfinder.core.params import load_params
    from pathfinder.core.prompts import VARIANTS
    from pathfinder.core.records import TREES
    from tests.campaigns.influence.proof import SETTING

    settings = load_params().train.model_copy(update={"batch_samples": SETTING["batch_samples"]})
    learner = learner_of(
        mixes.take(read_parquet(TRAIN, TREES), records, SETTING["seed"]), BASE, VARIANTS["full"], settings
    )
    rates = rates_of(settings, learner.steps)
    trajectory = replay(learner, rates, settings.max_grad_norm)
    learner.set(trajectory.final)
    steps = [step for step, _ in zip(_near(learner), range(DECISIONS), strict=False)]
    gradients = [output_gradient(learner.network, learner.prompter, step) for step in steps]
    scores = unroll(learner, trajectory, gradients, len(learner.ids))
    return {
        "records": len(learner.ids),
        "optimiser steps": learner.steps,
        "sum of the learning rates": sum(rates),
        "strongest scores": sorted(float(np.abs(each).max()) for each in scores),
    }


def _near(learner: Any) -> Iterator[Any]:
    """The decisive steps near the boundary, in a seeded order of the items."""
    import numpy as np

    from extras.why.decision import decisive, rewards, step_of
    from extras.why.why import BENCHMARK
    from pathfinder.benchmarks.readers import read_processbench
    from pathfinder.core.steps import Solution
    from tests.campaigns.influence.proof import SETTING

    items = read_processbench(BENCHMARK).items[0::2]
    for number in np.random.default_rng(SEED).permutation(len(items)):
        item = items[number]
        solution = Solution(item.id, item.problem, item.steps)
        laid_out = [step_of(learner.prompter, solution, at) for at in range(len(item.steps))]
        found = rewards(learner.network, learner.prompter, laid_out)
        if abs(found[at := decisive(found)].log_odds) < SETTING["nearest"]:
            yield laid_out[at]


if __name__ == "__main__":
    with errors_without_traceback():
        from pathfinder.core.kernels import pin_kernels

        pin_kernels()
        for words in sys.argv[1:]:
            print(json.dumps(strongest(int(words))), flush=True)
