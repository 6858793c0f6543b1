"""Reward functions for verl that ask `pathfinder serve` (PATHFINDER_URL).

`custom_reward_function.path=examples/verl_reward.py`, and `custom_reward_function.name=compute_scores` with the reward
manager `batch`. `+custom_reward_function.reward_kwargs.model=models/full` loads a model instead.
"""

from pathfinder.adapters.verl import compute_score, compute_scores

__all__ = ["compute_score", "compute_scores"]
