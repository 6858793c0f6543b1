"""A scorer for inspect_ai 0.3: ``Task(scorer=step_reward(model="models/full"), …)``."""

from __future__ import annotations

import asyncio
from typing import Any

from pathfinder.adapters.client import rewards_of


def step_reward(model: str = "", **options: Any) -> Any:
    """A scorer whose value is the reward of the answer, and whose metadata has the rewards of its steps.

    ``StepRewards`` explains the ``options``. Raises as ``StepRewards`` does, and ``ModuleNotFoundError`` without
    inspect_ai.
    """
    from inspect_ai.scorer import Score, mean, scorer, stderr

    rewards = rewards_of(model, **options)

    def made() -> Any:
        async def score(state: Any, target: Any) -> Any:
            text = state.output.completion
            (found,) = await asyncio.to_thread(rewards.steps, [(state.input_text, text)])
            return Score(value=rewards.value(found), answer=text, metadata={"rewards": found})

        return score

    return scorer(metrics=[mean(), stderr()], name="step_reward")(made)()
