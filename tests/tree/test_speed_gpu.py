"""A random model of 7B shape in bf16 on a GPU: trees compared with the published runners, and their GPU utilisation.

Run on a machine with a CUDA GPU: pytest -m benchmarks -s tests/tree/test_speed_gpu.py

Prints the GPU and the measured peak of a large bf16 matrix product. For ProcessBench, PRMBench and training it prints
tokens/s, TFLOP/s and their share of that peak, the ratio to the published way, and the hours for the whole sets. Fails
if trees and separate prompts differ by more than bf16 rounding allows.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from pathfinder.core.prompts import VARIANTS
from pathfinder.tree.attention import read_logits, use_trees
from pathfinder.tree.layout import batch_trees, pack
from pathfinder.tree.passes import Prompter, Query
from pathfinder.tree.tree import Tree
from tests.support.models import plain_tokenizer, queries_of, qwen_config, random_qwen, separate_logits

pytestmark = [
    pytest.mark.benchmarks,
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU"),
]
_PROBLEMS = 24
_BUDGET = 32768
_WHOLE = {"processbench": 3400, "prmbench": 6216}
_RECORDS = 400_000
_RECORDS_PER_TREE = 8


def model_7b(tokenizer: Any) -> Any:
    """Qwen2.5-7B's shape with random weights."""
    config = qwen_config(
        tokenizer,
        152_064,
        hidden_size=3584,
        intermediate_size=18944,
        num_hidden_layers=28,
        num_attention_heads=28,
        num_key_value_heads=4,
        max_position_embeddings=32768,
        tie_word_embeddings=False,
    )
    with torch.device("cuda"):
        torch.set_default_dtype(torch.bfloat16)
        try:
            return random_qwen(config)
        finally:
            torch.set_default_dtype(torch.float32)


def seconds(work: Callable[[], object]) -> float:
    """Wall seconds after an unmeasured first run, which compiles the kernels."""
    work()
    torch.cuda.synchronize()
    start = time.monotonic()
    work()
    torch.cuda.synchronize()
    return time.monotonic() - start


def peak_flops() -> float:
    """FLOP/s of a large bf16 matrix product."""
    left, right = (torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    return 20 * 2 * 8192**3 / seconds(lambda: [left @ right for _ in range(20)])


def solutions(mirror: Path, name: str) -> list[list[Query]]:
    if name == "processbench":
        rows = json.loads((mirror / "processbench" / "math.json").read_text())[:_PROBLEMS]
        found = [(row["problem"], row["steps"]) for row in rows]
    else:
        lines = sorted((mirror / "prmbench").glob("*.jsonl"))[0].read_text(encoding="utf-8").split("\n")
        items = [json.loads(line) for line in lines[:_PROBLEMS]]
        found = [(item["modified_question"], item["modified_process"]) for item in items]
    return [queries_of(problem, steps) for problem, steps in found]


@pytest.fixture(scope="module")
def setting() -> tuple[Any, Any, Prompter, float]:
    torch.manual_seed(0)
    tokenizer = plain_tokenizer((), 4000)
    prompter = Prompter(tokenizer, VARIANTS["full"])
    peak = peak_flops()
    print(f"\n{torch.cuda.get_device_name()}, torch {torch.__version__}, peak {peak / 1e12:.0f} TFLOP/s")
    return model_7b(tokenizer), tokenizer, prompter, peak


def flops(model: Any, tokens: int) -> float:
    """The matrix FLOP of one forward pass: two per weight and token, without embedding and output layers."""
    weights: int = sum(
        p.numel() for name, p in model.named_parameters() if "embed" not in name and "lm_head" not in name
    )
    return 2.0 * weights * tokens


@pytest.mark.parametrize("name", list(_WHOLE))
@torch.inference_mode()
def test_scoring(setting: tuple[Any, Any, Prompter, float], mirror: Path, name: str) -> None:
    """Pass 1: one prompt per step as in the published runners, compared with trees."""
    model, tokenizer, prompter, peak = setting
    groups = solutions(mirror, name)
    first = [prompter.tree_of(prompter.encode(group), prompter.passes[:1]) for group in groups]
    trees = [tree for tree, _ in first]

    def published() -> torch.Tensor:
        return torch.cat(
            [separate_logits(model, tokenizer, prompter, query, (), (0, 1)) for group in groups for query in group]
        )

    model.config._attn_implementation = "sdpa"
    want, official = published(), seconds(published)
    use_trees(model)
    got, mine = over_trees(model, trees), seconds(lambda: over_trees(model, trees))
    model.config._attn_implementation = "sdpa"
    off = float((got.float() - want.float()).square().mean().sqrt() / want.float().square().mean().sqrt())
    assert off < 0.05, f"relative difference {off}"
    tokens = sum(len(tree) for tree in trees)
    rate = flops(model, tokens) / mine
    hours = _WHOLE[name] * mine / len(groups) / 3600
    print(f"\n{name}, pass 1: published {official:.2f} s, trees {mine:.2f} s, ratio {official / mine:.2f}; "
          f"{tokens / mine:,.0f} tokens/s, {rate / 1e12:.0f} TFLOP/s, {100 * rate / peak:.0f} % of the peak; "
          f"the whole set of {_WHOLE[name]}: {hours:.2f} h")  # fmt: skip


def over_trees(model: Any, trees: list[Tree]) -> torch.Tensor:
    """Logits of all readings in the order of the trees."""
    found: dict[int, torch.Tensor] = {}
    for group in pack([len(tree) for tree in trees], _BUDGET):
        logits = read_logits(model, batch_trees([trees[i] for i in group], "flex").to("cuda", torch.bfloat16))
        for item, part in zip(group, torch.split(logits, [len(trees[i].reads) for i in group]), strict=True):
            found[item] = part
    return torch.cat([found[i] for i in range(len(trees))])


def test_training(setting: tuple[Any, Any, Prompter, float], mirror: Path) -> None:
    """Forward and backward pass of gold-label trees with gradient checkpointing, without an optimiser step."""
    model, _, prompter, peak = setting
    groups = [group[:_RECORDS_PER_TREE] for group in solutions(mirror, "processbench")[:8]]
    built = [prompter.tree(group, [[True, True, True]] * len(group)) for group in groups]
    trees = [tree for tree, _ in built]
    batch = batch_trees(trees, "flex").to("cuda", torch.bfloat16)
    use_trees(model)
    model.gradient_checkpointing_enable()
    model.train()

    def step() -> None:
        read_logits(model, batch).float().logsumexp(-1).sum().backward()  # type: ignore[no-untyped-call]
        model.zero_grad(set_to_none=True)

    took = seconds(step)
    tokens, records = sum(len(tree) for tree in trees), sum(len(group) for group in groups)
    rate = 3 * flops(model, tokens) / took
    print(f"\ntraining: {tokens / took:,.0f} tokens/s, {rate / 1e12:.0f} TFLOP/s (recomputation not counted), "
          f"{100 * rate / peak:.0f} % of the peak; epoch of {_RECORDS:,} records: "
          f"{_RECORDS * took / records / 3600:.2f} h")  # fmt: skip
    model.gradient_checkpointing_disable()
    model.eval()
