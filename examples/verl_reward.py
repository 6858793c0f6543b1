"""A reward function for verl that asks `pathfinder serve` (PATHFINDER_URL).

`custom_reward_function.path=examples/verl_reward.py` names it.
`+custom_reward_function.reward_kwargs.model=models/full` loads a model instead.
"""

from pathfinder.adapters.verl import compute_score

__all__ = ["compute_score"]
