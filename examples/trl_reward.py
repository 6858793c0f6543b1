"""A reward function for TRL: ``GRPOTrainer(reward_funcs=step_reward, …)``. It asks `pathfinder serve`."""

import os

import httpx

URL = os.environ.get("PATHFINDER_URL", "http://127.0.0.1:8765")


def step_reward(prompts, completions, **_):
    """The lowest step reward of each completion; blank lines separate its steps."""
    columns = (prompts, completions)
    texts = [[turns if isinstance(turns, str) else turns[-1]["content"] for turns in column] for column in columns]
    pairs = [
        (problem, [part for part in text.split("\n\n") if part.strip()] or [text or " "])
        for problem, text in zip(*texts, strict=True)
    ]
    body = {"solutions": [{"problem": problem, "steps": steps} for problem, steps in pairs]}
    answer = httpx.post(f"{URL}/v1/score", json=body, timeout=600).raise_for_status().json()
    found = answer["solutions"]  # one that is too long for the model has no scores
    return [min(step["reward"] for step in one["steps"]) if one["scored"] else 0.0 for one in found]
