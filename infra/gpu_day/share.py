"""Tokens per second and the share of the peak that scoring and training attain, and those of one prompt per step."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

from infra.gpu_day.day import Day, Report
from infra.gpu_day.models import problems, prompter_of, random_model, shape_named
from pathfinder.models.devices import GIB
from pathfinder.tree.attention import read_logits, use_trees
from pathfinder.tree.layout import backend_on, batch_trees
from pathfinder.tree.packing import pack
from pathfinder.tree.passes import Prompter, Query
from pathfinder.tree.tree import Tree

_BUDGET = 16384
_ITEMS = 3400
"""Solutions of the whole ProcessBench."""


def share(day: Day) -> Report:
    """Scoring (pass 1) and training of a random model of true shape."""
    report = Report()
    free = torch.cuda.mem_get_info()[0] / GIB if torch.cuda.is_available() else 0.0
    name = "Qwen/Qwen2.5-Math-7B-Instruct" if free > 40 else "Qwen/Qwen2.5-Math-1.5B-Instruct"
    shape = shape_named(day, name)
    dtype = torch.float32 if day.rehearsal else torch.bfloat16
    model = random_model(shape, day.device, dtype)
    prompter, groups = prompter_of(day), problems(day, day.size(8, 1))
    peak = peak_flops(day)
    report.add("model", f"random weights in the shape of {shape.name}, {str(dtype).removeprefix('torch.')}")
    report.add("peak of a matrix product", f"{peak / 1e12:.3g} TFLOP/s")
    _scoring(report, model, prompter, groups, peak)
    _training(report, model, prompter, groups, peak)
    return report


def seconds(work: Callable[[], object]) -> float:
    """Wall seconds after an unmeasured first run, which compiles the kernels."""
    work()
    _wait()
    start = time.monotonic()
    work()
    _wait()
    return time.monotonic() - start


def _wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def peak_flops(day: Day) -> float:
    """FLOP/s of a large matrix product."""
    side, dtype = (512, torch.float32) if day.rehearsal else (8192, torch.bfloat16)
    left, right = (torch.randn(side, side, device=day.device, dtype=dtype) for _ in range(2))
    return 20 * 2 * side**3 / seconds(lambda: [left @ right for _ in range(20)])


def flops(model: Any, tokens: int) -> float:
    """The matrix FLOP of one forward pass: two per weight and token, without embedding and output layers."""
    weights: int = sum(p.numel() for n, p in model.named_parameters() if "embed" not in n and "lm_head" not in n)
    return 2.0 * weights * tokens


@torch.inference_mode()
def _scoring(report: Report, model: Any, prompter: Prompter, groups: Sequence[list[Query]], peak: float) -> None:
    first = prompter.passes[:1]
    encoded = [prompter.encode(group) for group in groups]
    trees = [prompter.tree_of(each, first)[0] for each in encoded]
    prompts = [(prompter.prompt(ids, slots, (), first[0].asked), slots[:2]) for each in encoded for ids, slots in each]

    def published() -> torch.Tensor:
        found = []
        for ids, slots in prompts:
            row = torch.tensor(ids.tolist(), device=model.device)[None]
            places = torch.tensor([slot - 1 for slot in slots], device=model.device)
            found.append(model(input_ids=row, use_cache=False, logits_to_keep=places).logits[0])
        return torch.cat(found)

    model.config._attn_implementation = "sdpa"
    want, official = published(), seconds(published)
    use_trees(model)
    got, mine = over_trees(model, trees), seconds(lambda: over_trees(model, trees))
    off = float((got.double() - want.double()).square().mean().sqrt() / want.double().square().mean().sqrt())
    tokens = sum(len(tree) for tree in trees)
    rate = flops(model, tokens) / mine
    report.add("scoring, pass 1", f"{tokens / mine:,.0f} tokens/s, {rate / 1e12:.3g} TFLOP/s, {_percent(rate, peak)}")
    report.add(
        "one prompt per step, as published", f"{official:.2f} s against {mine:.2f} s: {official / mine:.1f} times"
    )
    report.add("the whole ProcessBench, pass 1 (extrapolated)", f"{_ITEMS * mine / len(groups) / 60:.1f} min")
    report.add("difference of trees and separate prompts (rms)", f"{off:.1e}")
    report.check(off < 0.05, f"trees and separate prompts differ by {off:.1e}")


def over_trees(model: Any, trees: Sequence[Tree]) -> torch.Tensor:
    """Logits of all readings in the order of the trees."""
    found: dict[int, torch.Tensor] = {}
    for group in pack([len(tree) for tree in trees], _BUDGET):
        logits = read_logits(model, batch_trees([trees[i] for i in group], "flex").to(model.device, model.dtype))
        for item, part in zip(group, torch.split(logits, [len(trees[i].reads) for i in group]), strict=True):
            found[item] = part
    return torch.cat([found[i] for i in range(len(trees))])


def _training(report: Report, model: Any, prompter: Prompter, groups: Sequence[list[Query]], peak: float) -> None:
    """Forward and backward pass of gold-label trees with gradient checkpointing, without an optimiser step."""
    built = [prompter.tree(group, [[True, True, True]] * len(group))[0] for group in groups]
    chosen = [built[i] for i in next(iter(pack([len(tree) for tree in built], _BUDGET)))]
    batch = batch_trees(chosen, backend_on(model.device)).to(model.device, model.dtype)
    model.activation_checkpointing_enable()
    model.train()

    def step() -> None:
        read_logits(model, batch).float().logsumexp(-1).sum().backward()  # type: ignore[no-untyped-call]
        model.zero_grad(set_to_none=True)

    took, tokens = seconds(step), sum(len(tree) for tree in chosen)
    rate = 3 * flops(model, tokens) / took
    report.add(
        "training, recomputation not counted",
        f"{tokens / took:,.0f} tokens/s, {rate / 1e12:.3g} TFLOP/s, {_percent(rate, peak)}",
    )


def _percent(rate: float, peak: float) -> str:
    return f"{100 * rate / peak:.0f} % of the peak"
