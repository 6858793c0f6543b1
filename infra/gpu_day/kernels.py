"""FlexAttention over trees, compared with float64 on the CPU, and how often it is compiled."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from infra.gpu_day.day import Day, Report
from infra.gpu_day.models import problems, prompter_of, random_model
from pathfinder.models.shapes import Shape
from pathfinder.tree.attention import read_logits, use_trees
from pathfinder.tree.layout import backend_on, batch_trees
from pathfinder.tree.tree import Tree

_BOUNDS = {torch.float32: 1e-4, torch.bfloat16: 5e-2}
_GRADIENT_BOUND = 1e-3


def kernels(day: Day) -> Report:
    """Logits, decisions and gradients of both precisions, and the number of compiled graphs over changing sizes."""
    report, before = Report(), _graphs()
    prompter = prompter_of(day)
    groups = problems(day, day.size(6, 1))
    trees = [prompter.tree(group)[0] for group in groups]
    vocabulary = int(max(int(tree.ids.max()) for tree in trees)) + 1
    # seven query heads per key head, as in the 7B model; its other sides would take the CPU too long in float64
    width = 128 * day.size(7, 2)
    shape = Shape("", width, 2 * width, day.size(4, 2), width, 128, vocabulary, tied=False, biased=True)
    model = random_model(shape, "cpu", torch.float64)
    use_trees(model)
    pair = [prompter.ids.good, prompter.ids.bad]
    want, want_gradient = _logits(model, trees, "dense", torch.float64), _gradient(model, trees[:1], "dense")
    for dtype, bound in _BOUNDS.items():
        model.to(day.device, dtype)
        got = _logits(model, trees, "flex", dtype)
        off, flips = relative(got, want), int(((got[:, pair].diff() > 0) != (want[:, pair].diff() > 0)).sum())
        name = str(dtype).removeprefix("torch.")
        report.add(
            f"{name}: relative error of {got.shape[0]} readings (rms)", f"{off:.1e}, at most {bound:.0e} is right"
        )
        report.add(f"{name}: decisions that differ from float64", f"{flips} of {len(want)}")
        report.check(off < bound, f"{name} differs from float64 by {off:.1e}")
        if dtype == torch.float32:
            gradient = relative(_gradient(model, trees[:1], backend_on(model.device)), want_gradient)
            report.add(f"{name}: relative error of the gradients (rms)", f"{gradient:.1e}")
            report.check(gradient < _GRADIENT_BOUND, f"the gradients differ from float64 by {gradient:.1e}")
    _compilations(report, model, trees, day, before)
    return report


def relative(got: Tensor, want: Tensor) -> float:
    """Root mean square of the difference over that of ``want``."""
    return float((got.double().cpu() - want).square().mean().sqrt() / want.square().mean().sqrt())


@torch.inference_mode()
def _logits(model: Any, trees: Sequence[Tree], backend: Any, dtype: torch.dtype) -> Tensor:
    logits = read_logits(model, batch_trees(trees, backend).to(model.device, dtype))
    return logits.double().cpu()


def _gradient(model: Any, trees: Sequence[Tree], backend: Any) -> Tensor:
    """The gradient of the first layer's attention for a sum over the readings."""
    model.zero_grad(set_to_none=True)
    logits = read_logits(model, batch_trees(trees, backend).to(model.device, model.dtype))
    logits.logsumexp(-1).sum().backward()  # type: ignore[no-untyped-call]
    attention = model.model.layers[0].self_attn
    found = torch.cat([attention.get_submodule(f"{name}_proj").weight.grad.flatten() for name in "qkvo"])
    model.zero_grad(set_to_none=True)
    return found.double().cpu()


def _graphs() -> int:
    """How many graphs this process has compiled."""
    from torch._dynamo.utils import counters

    return int(counters["stats"]["unique_graphs"])


def _compilations(report: Report, model: Any, trees: Sequence[Tree], day: Day, before: int) -> None:
    """Rows of many lengths: each compilation takes seconds, so there must be few. ``before`` were not for this part."""
    times = []
    for count in range(1, len(trees) + 1):
        start = time.monotonic()
        _logits(model, trees[:count], "flex", model.dtype)
        times.append(time.monotonic() - start)
    graphs = _graphs() - before
    report.add(f"graphs compiled for rows of {len(times)} lengths", str(graphs))
    report.add("slowest and median pass", f"{max(times):.2f} s, {sorted(times)[len(times) // 2]:.3f} s")
    report.check(day.rehearsal or graphs > 0, "nothing was compiled: FlexAttention ran in its eager form")
    report.check(graphs <= 16, f"{graphs} graphs were compiled")
