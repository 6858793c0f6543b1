"""Beside verl: its loader takes the reward function of our example, and its default reward manager calls it.

Run     python with_verl.py MODEL     in an environment with verl 0.9
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
import verl
from omegaconf import OmegaConf
from transformers import AutoTokenizer
from verl.trainer.ppo.reward import load_reward_manager

from pathfinder.adapters.verl import compute_score

EXAMPLE = Path(__file__).resolve().parents[3] / "examples/verl_reward.py"
PROBLEM = "What is 12 + 7?"
ANSWERS = "12 + 7 = 19.", "12 + 7 = 18."


async def main(model: str) -> None:
    """Reward two answers to one problem; only the first one is right."""
    reward = OmegaConf.load(Path(verl.__file__).parent / "trainer/config/reward/reward.yaml")
    reward.custom_reward_function.path = str(EXAMPLE)
    reward.custom_reward_function.reward_kwargs = {"model": model}
    tokenizer: Any = AutoTokenizer.from_pretrained(model)
    manager = load_reward_manager(OmegaConf.create({"reward": reward}), tokenizer)
    found = [await manager.run_single(row_of(tokenizer, answer)) for answer in ANSWERS]
    right, wrong = (one["reward_score"] for one in found)
    expected = compute_score("", ANSWERS[0], "", {"question": PROBLEM}, model=model)
    assert right == expected, (right, expected)
    assert right > 0.5 > wrong, (right, wrong)
    print(right, wrong)


def row_of(tokenizer: Any, answer: str) -> verl.DataProto:
    """A row of a rollout, whose answer is padded on the right."""
    prompt, ids = (tokenizer(text, add_special_tokens=False).input_ids for text in (PROBLEM, answer))
    texts = {"prompts": prompt, "responses": [*ids, 0, 0], "attention_mask": [1] * len([*prompt, *ids]) + [0, 0]}
    others = {"data_source": "toy", "reward_model": {"ground_truth": "19"}, "extra_info": {"question": PROBLEM}}
    return verl.DataProto.from_dict(
        {name: torch.tensor([row]) for name, row in texts.items()},
        {name: np.array([value], dtype=object) for name, value in others.items()},
    )


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
