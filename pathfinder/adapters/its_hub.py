"""A process reward model for its_hub 1.2: the ``prm`` of its beam search and particle methods."""

from __future__ import annotations

import asyncio
from typing import Any

from pathfinder.adapters.client import StepRewards


class ProcessRewardModel:
    """Scores answers to one problem, with one number for each. ``StepRewards`` explains the ``options``."""

    def __init__(self, model: str = "", **options: Any) -> None:
        self._rewards = StepRewards(model, **options)

    def score(self, prompt_or_messages: Any, steps: Any) -> Any:
        """The number of an answer, or a list for a list of answers. Raises as ``StepRewards.steps`` does."""
        turns = getattr(prompt_or_messages, "to_chat_messages", lambda: prompt_or_messages)()
        if not isinstance(turns, str):
            turns = [turn if isinstance(turn, dict) else turn.to_dict() for turn in turns]
        texts = [steps] if isinstance(steps, str) else steps
        found = self._rewards.values((turns, text) for text in texts)
        return found[0] if isinstance(steps, str) else found

    async def ascore(self, prompt_or_messages: Any, steps: Any) -> Any:
        """``score`` in a thread, so that the loop can do other work."""
        return await asyncio.to_thread(self.score, prompt_or_messages, steps)
