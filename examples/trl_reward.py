"""A reward function for TRL that asks `pathfinder serve` (PATHFINDER_URL): `GRPOTrainer(reward_funcs=step_reward, …)`.

To load a model instead: `functools.partial(step_reward, prm="models/full")`.
"""

from pathfinder.adapters.trl import step_reward

__all__ = ["step_reward"]
