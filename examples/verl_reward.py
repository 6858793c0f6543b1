"""A reward function for verl: ``custom_reward_function.path=examples/verl_reward.py``. It asks `pathfinder serve`."""

import os

import httpx

URL = os.environ.get("PATHFINDER_URL", "http://127.0.0.1:8765")


def compute_score(data_source, solution_str, ground_truth, extra_info=None):
    """The lowest step reward of a solution; ``extra_info["question"]`` is its problem."""
    steps = [part for part in solution_str.split("\n\n") if part.strip()] or [" "]
    body = {"solutions": [{"problem": (extra_info or {}).get("question", ""), "steps": steps}]}
    answer = httpx.post(f"{URL}/v1/score", json=body, timeout=600).raise_for_status().json()
    (found,) = answer["solutions"]
    return min(step["reward"] for step in found["steps"]) if found["scored"] else 0.0  # too long
