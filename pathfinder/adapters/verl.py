"""A reward function for verl 0.9: ``custom_reward_function.path`` of a file that imports it.

``reward_kwargs`` may give ``model`` (a folder, or a server's address), ``split``, ``reduce`` and ``floor``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ground.io import DataError
from pathfinder.adapters.client import rewards_of


def compute_score(
    data_source: Any, solution_str: str, ground_truth: Any, extra_info: Any = None, **options: Any
) -> float:
    """The reward of a solution; ``extra_info["question"]`` is its problem. Raises ``DataError`` if it is missing."""
    question = extra_info.get("question") if isinstance(extra_info, Mapping) else None
    if not isinstance(question, str):
        raise DataError("extra_info has no question (text); add it to the data set, as verl's gsm8k example does")
    given = {key: options[key] for key in ("model", "split", "reduce", "floor") if key in options}
    return rewards_of(**given).values([(question, solution_str)])[0]
