"""The training loop of the tiny models: lessons as masked batches, Muon with AdamW, checkpoints by step.

Muon for matrices (with an RMS-matched learning rate) and AdamW for the rest learned the small world several times
faster than AdamW for everything. Schedules count steps, not seconds, so a run is repeatable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor, nn
from transformers import Qwen2ForCausalLM

from ground.io import atomic_file
from ground.progress import Progress
from world.lessons import Lesson
from world.recipes import Phase

_OTHERS = 0.4  # learning rate of embeddings, biases and norms relative to the matrices


class Batch(NamedTuple):
    """Padded lessons."""

    ids: Tensor  # (rows, length) int64
    positions: Tensor  # (rows, length) int64
    targets: Tensor  # (rows, length) int64
    weights: Tensor  # (rows, length) float32
    mask: Tensor  # (rows, 1, length, length) bool, true where a query attends to a key


def collate(lessons: Sequence[Lesson], pad: int) -> Batch:
    """Pad lessons into one batch; the length is a multiple of 32, so there are few shapes."""
    length = -(-max(lesson.length for lesson in lessons) // 32) * 32
    rows = len(lessons)
    ids, targets = torch.full((2, rows, length), pad)
    positions = torch.zeros((rows, length), dtype=torch.long)
    weights = torch.zeros((rows, length))
    mask = torch.eye(length, dtype=torch.bool).repeat(rows, 1, 1, 1)
    causal = torch.ones((length, length), dtype=torch.bool).tril()
    for row, lesson in enumerate(lessons):
        at = 0
        for attached, piece in ((0, lesson.trunk), *lesson.branches):
            size = len(piece.ids)
            span = slice(at, at + size)
            ids[row, span] = torch.tensor(piece.ids)
            targets[row, span] = torch.tensor(piece.targets)
            weights[row, span] = torch.tensor(piece.weights)
            positions[row, span] = torch.arange(attached, attached + size)
            mask[row, 0, span, span] = causal[:size, :size]
            mask[row, 0, span, :attached] = True
            at = span.stop
    return Batch(ids, positions, targets, weights, mask)


def weighted_loss(model: Qwen2ForCausalLM, batch: Batch) -> Tensor:
    """Weighted mean cross-entropy; each token is predicted by the position before it in its own branch.

    The weight of a branch's first token must be zero, because the position before it belongs to the trunk.
    """
    output = model.model(input_ids=batch.ids, attention_mask=batch.mask, position_ids=batch.positions, use_cache=False)
    rows, columns = torch.nonzero(batch.weights, as_tuple=True)
    hidden = output.last_hidden_state[rows, columns - 1]
    logits = hidden @ model.model.embed_tokens.weight.T
    losses = nn.functional.cross_entropy(logits, batch.targets[rows, columns], reduction="none")
    weights = batch.weights[rows, columns]
    loss: Tensor = (losses * weights).sum() / weights.sum()
    return loss


def batches(lessons: Iterator[Lesson], tokens: int, pad: int) -> Iterator[Batch]:
    """Batches of about ``tokens`` padded tokens, from pools of lessons sorted by length to reduce padding."""
    while True:
        pool = sorted((next(lessons) for _ in range(192)), key=lambda lesson: lesson.length)
        groups: list[list[Lesson]] = [[]]
        for lesson in pool:
            if groups[-1] and (len(groups[-1]) + 1) * lesson.length > tokens:
                groups.append([])
            groups[-1].append(lesson)
        # Mix short and long batches; otherwise the gradient would follow the length.
        order = sorted(range(len(groups)), key=lambda i: (i * 7919) % len(groups))
        yield from (collate(groups[i], pad) for i in order)


class Optimizer:
    """Muon for the layers' matrices at ``rate``, AdamW for everything else at 0.4 of it."""

    def __init__(self, model: nn.Module, rate: float) -> None:
        self.rate, self.parameters = rate, dict(model.named_parameters())
        self.tensors = {f"model/{name}": p.detach() for name, p in self.parameters.items()}  # a checkpoint's content
        self.matrices: dict[torch.Size, list[str]] = {}  # names by shape
        self.others: list[str] = []
        for name, parameter in self.parameters.items():
            is_matrix = parameter.ndim == 2 and "embed" not in name
            (self.matrices.setdefault(parameter.shape, []) if is_matrix else self.others).append(name)
            for moment in ("momentum",) if is_matrix else ("mean", "square"):
                self.tensors[f"{moment}/{name}"] = torch.zeros_like(parameter)

    @torch.no_grad()
    def step(self, loss: Tensor, number: int, share: float) -> None:
        """Apply update ``number`` (from 1) with the gradients of ``loss`` at ``share`` of the full rate."""
        rate = self.rate * share
        gradients = dict(zip(self.parameters, torch.autograd.grad(loss, [*self.parameters.values()]), strict=True))
        for shape, names in self.matrices.items():
            updates = []
            for name in names:
                momentum = self.tensors[f"momentum/{name}"].mul_(0.95).add_(gradients[name])
                updates.append(gradients[name].add(momentum, alpha=0.95))
            scale = 0.2 * max(shape) ** 0.5  # RMS-matched to AdamW
            for name, update in zip(names, orthogonalise(torch.stack(updates)), strict=True):
                self.parameters[name].mul_(1 - rate * 0.05).add_(update, alpha=-rate * scale)
        for name in self.others:
            mean = self.tensors[f"mean/{name}"].lerp_(gradients[name], 0.1)
            square = self.tensors[f"square/{name}"].lerp_(gradients[name].square(), 0.02)
            root = (square / (1 - 0.98**number)).sqrt_().add_(1e-8)
            self.parameters[name].addcdiv_(mean / (1 - 0.9**number), root, value=-rate * _OTHERS)


def orthogonalise(updates: Tensor) -> Tensor:
    """The nearest semi-orthogonal matrices of a stack (count, rows, columns): five Newton-Schulz iterations (Muon)."""
    tall = updates.shape[1] > updates.shape[2]
    x = updates.mT if tall else updates
    x = x / (x.norm(dim=(1, 2), keepdim=True) + 1e-7)
    for _ in range(5):
        gram = x @ x.mT
        x = 3.4445 * x + (-4.7750 * gram + 2.0315 * gram @ gram) @ x
    result: Tensor = x.mT if tall else x
    return result


def rate_share(step: int, steps: int) -> float:
    """Share of the full rate: linear warm-up over 100 steps, linear decay to 0 over the last 40 % of the steps."""
    return min(1.0, step / 100, max(0.0, (steps - step) / (0.4 * steps)))


def fit(
    model: Qwen2ForCausalLM,
    lessons: Callable[[int], Iterator[Lesson]],
    phase: Phase,
    checkpoint: Path,
    every: int = 500,
) -> None:
    """Train in place on the lessons of each block of ``every`` steps.

    An interrupted run resumes after the last full block in ``checkpoint`` and produces the same weights.
    """
    pad = int(model.config.pad_token_id or 0)
    optimizer = Optimizer(model, phase.rate)
    done = _resume(optimizer, checkpoint)
    model.train()
    with Progress(f"pretrain {checkpoint.stem}", phase.steps, "steps") as progress:
        progress.resume(done)
        while done < phase.steps:
            supply = batches(lessons(done // every), phase.tokens, pad)
            total = 0.0
            for count in range(1, min(every, phase.steps - done) + 1):
                done += 1
                loss = weighted_loss(model, Batch(*(tensor.to(model.device) for tensor in next(supply))))
                optimizer.step(loss, done, rate_share(done, phase.steps))
                total += loss.item()
                progress.advance(note=f"loss {total / count:.4f}")
            with atomic_file(checkpoint) as temporary:
                save_file(optimizer.tensors, temporary, metadata={"done": str(done)})
    model.train(False)


def _resume(optimizer: Optimizer, checkpoint: Path) -> int:
    """Load the checkpoint, if it exists, and return the number of its steps."""
    if not checkpoint.exists():
        return 0
    with safe_open(checkpoint, framework="pt") as saved:
        for name, tensor in optimizer.tensors.items():
            tensor.copy_(saved.get_tensor(name))
        return int(saved.metadata()["done"])
