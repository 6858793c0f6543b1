"""Reward functions for verl 0.9: ``custom_reward_function.path`` of a file that imports one of them.

``reward_kwargs`` may give ``model`` (a folder, or a server's address), ``split``, ``reduce`` and ``floor``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ground.io import DataError
from pathfinder.adapters.client import rewards_of


def compute_score(
    data_source: Any, solution_str: str, ground_truth: Any, extra_info: Any = None, **options: Any
) -> float:
    """The reward of a solution; ``extra_info["question"]`` is its problem. Raises ``DataError`` without one."""
    return compute_scores([data_source], [solution_str], [ground_truth], [extra_info], **options)[0]


def compute_scores(
    data_sources: Any, solution_strs: Iterable[str], ground_truths: Any, extra_infos: Iterable[Any], **options: Any
) -> list[float]:
    """The rewards of a batch, for the reward manager ``batch``. Raises ``DataError`` as ``compute_score`` does."""
    given = {key: options[key] for key in ("model", "split", "reduce", "floor") if key in options}
    return rewards_of(**given).values(
        (_question(info), text) for info, text in zip(extra_infos, solution_strs, strict=True)
    )


def _question(info: Any) -> str:
    question = info.get("question") if isinstance(info, Mapping) else None
    if not isinstance(question, str):
        raise DataError("extra_info has no question (text); add it to the data set, as verl's gsm8k example does")
    return question
