"""A reward function for TRL: ``GRPOTrainer(reward_funcs=step_reward, …)``, in the signature of TRL 1.16."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pathfinder.adapters.client import StepRewards, rewards_of


def step_reward(
    prompts: Sequence[Any], completions: Sequence[Any], prm: str | StepRewards = "", **_: Any
) -> list[float]:
    """One reward for each completion, a text or turns: by default the lowest of its steps.

    ``prm`` is the first argument of ``StepRewards``, or a ``StepRewards`` with options; set it by
    ``functools.partial``. Raises as ``StepRewards.steps`` does.
    """
    rewards = rewards_of(prm) if isinstance(prm, str) else prm
    return rewards.values(zip(prompts, completions, strict=True))
