"""Trees beside the published way: same model, same machine, processor time.

Run: pytest -m benchmarks -s tests/core/test_tree_speed.py
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

from stages.core.io import write_json
from stages.core.passes import Prompter, Query
from stages.core.prompts import VARIANTS
from stages.core.scoring import MODEL_FILE, Candidates, Rounds, Scorer, Solution
from tests.models import plain_tokenizer, separate_logits

pytestmark = pytest.mark.benchmarks
_PROBLEMS = 8
_ROUNDS = 4


def model_256(tokenizer: Any) -> Any:
    config = Qwen2Config(
        vocab_size=len(tokenizer),
        hidden_size=256,
        intermediate_size=1024,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=8192,
        tie_word_embeddings=True,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
    )
    model: Any = Qwen2ForCausalLM(config)
    model.config._attn_implementation = "sdpa"
    return model.eval()


def seconds(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


@pytest.fixture
def setting(tmp_path: Path, mirror: Path) -> tuple[Any, Any, Prompter, Scorer]:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    rows = json.loads((mirror / "processbench" / "math.json").read_text())[-300:]
    tokenizer = plain_tokenizer([text for row in rows for text in (row["problem"], *row["steps"])], 2000)
    prompter = Prompter(tokenizer, VARIANTS["full"])
    model = model_256(tokenizer)
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    write_json(tmp_path / MODEL_FILE, {"variant": "full"})
    return model, tokenizer, prompter, Scorer(tmp_path)


def solutions_of(mirror: Path, subset: str) -> list[Solution]:
    rows = json.loads((mirror / "processbench" / f"{subset}.json").read_text())[:_PROBLEMS]
    return [Solution(row["id"], row["problem"], tuple(row["steps"])) for row in rows]


@pytest.mark.parametrize("subset", ["gsm8k", "math"])
def test_scoring_both_passes(setting: tuple[Any, Any, Prompter, Scorer], mirror: Path, subset: str) -> None:
    model, tokenizer, prompter, scorer = setting
    solutions = solutions_of(mirror, subset)
    queries = [
        Query("q", solution.problem, solution.steps[:t], step)
        for solution in solutions
        for t, step in enumerate(solution.steps)
    ]
    scorer.score(solutions[:1])
    rewards: list[float] = []
    official = seconds(lambda: rewards.extend(published_rewards(model, tokenizer, prompter, queries)))
    mine = seconds(lambda: scorer.score(solutions))
    ours = [score.reward for scores in scorer.score(solutions) for score in scores]
    assert ours == pytest.approx(rewards, abs=1e-4)
    print(f"\nscoring {subset}: published {len(ours) / official:.1f} steps/s, trees {len(ours) / mine:.1f} steps/s, "
          f"ratio {official / mine:.2f}")  # fmt: skip


@torch.inference_mode()
def published_rewards(model: Any, tokenizer: Any, prompter: Prompter, queries: list[Query]) -> list[float]:
    """Two passes over every step's own prompt, one prompt at a time, as the published runners do."""
    rewards = []
    for query in queries:
        first = separate_logits(model, tokenizer, prompter, query, (), (0, 1))
        labels = (first[:, prompter.ids.good] >= first[:, prompter.ids.bad]).tolist()
        second = separate_logits(model, tokenizer, prompter, query, labels, (2,))[0]
        rewards.append(second[[prompter.ids.good, prompter.ids.bad]].softmax(-1)[0].item())
    return rewards


@pytest.mark.parametrize("subset", ["gsm8k", "math"])
def test_search_rounds(setting: tuple[Any, Any, Prompter, Scorer], mirror: Path, subset: str) -> None:
    """Eight candidates a round along real solutions: the step that was taken, and seven of other solutions."""
    model, tokenizer, prompter, scorer = setting
    solutions = [solution for solution in solutions_of(mirror, subset) if len(solution.steps) >= _ROUNDS][:4]
    others = [step for solution in solutions_of(mirror, subset) for step in solution.steps]
    rounds = [
        {s.id: Candidates(s.problem, s.steps[:t], (s.steps[t], *others[7 * t : 7 * t + 7])) for s in solutions}
        for t in range(_ROUNDS)
    ]
    queries = [
        Query("q", asked.problem, asked.prefix, step)
        for turn in rounds
        for asked in turn.values()
        for step in asked.steps
    ]
    rewards: list[float] = []
    ours: list[float] = []

    def over_trunks() -> None:
        going = Rounds(scorer)
        for turn in rounds:
            ours.extend(score.reward for scores in going.score(turn).values() for score in scores)

    def from_scratch() -> None:
        for turn in rounds:
            Rounds(scorer).score(turn)

    from_scratch()
    official = seconds(lambda: rewards.extend(published_rewards(model, tokenizer, prompter, queries)))
    anew, mine = seconds(from_scratch), seconds(over_trunks)
    assert ours == pytest.approx(rewards, abs=1e-4)
    print(f"\nsearch {subset}, {_ROUNDS} rounds of {len(solutions)} problems, 8 candidates: trees ratio "
          f"{official / anew:.2f}, over kept trunks {official / mine:.2f}")  # fmt: skip
