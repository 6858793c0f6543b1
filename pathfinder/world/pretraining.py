"""The training loop of the tiny models: lessons into masked batches, Muon and AdamW, resumable by steps.

Muon (matrices, RMS-matched learning rate) beside AdamW (embeddings, biases and norms) learned the small world several
times faster than AdamW alone; schedules count steps, never seconds, so that a run repeats.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import Qwen2ForCausalLM

from pathfinder.core.io import atomic_file
from pathfinder.world.lessons import Lesson

_OTHERS = 0.4  # rate of embeddings, biases and norms beside the matrices


@dataclass(frozen=True, slots=True)
class Batch:
    """Padded lessons: ``ids``, ``positions``, ``targets`` and ``weights`` are (rows, length), ``mask`` is boolean
    (rows, 1, length, length), true where a query may look."""

    ids: Tensor
    positions: Tensor
    targets: Tensor
    weights: Tensor
    mask: Tensor

    def to(self, device: torch.device) -> Batch:
        """The same batch on ``device``."""
        ids, positions, targets = (t.to(device) for t in (self.ids, self.positions, self.targets))
        return Batch(ids, positions, targets, self.weights.to(device), self.mask.to(device))


def collate(lessons: Sequence[Lesson], pad: int) -> Batch:
    """One batch; lengths are rounded up to multiples of 32 so that few shapes occur."""
    length = -(-max(lesson.length for lesson in lessons) // 32) * 32
    rows = len(lessons)
    ids = torch.full((rows, length), pad)
    targets = torch.full((rows, length), pad)
    positions = torch.zeros((rows, length), dtype=torch.long)
    weights = torch.zeros((rows, length))
    ends = torch.zeros((rows, length), dtype=torch.long)  # one past the last token that may look at this one
    hidden_from = torch.zeros((rows, length), dtype=torch.long)  # branches do not see the trunk from here on
    for row, lesson in enumerate(lessons):
        at = 0
        for attached, piece in ((0, lesson.trunk), *lesson.branches):
            span = slice(at, at + len(piece.ids))
            ids[row, span] = torch.tensor(piece.ids)
            targets[row, span] = torch.tensor(piece.targets)
            weights[row, span] = torch.tensor(piece.weights)
            positions[row, span] = torch.arange(attached, attached + len(piece.ids))
            ends[row, span] = length if at == 0 else span.stop
            hidden_from[row, span] = length if at == 0 else attached
            at = span.stop
        ends[row, at:] = torch.arange(at + 1, length + 1)
    index = torch.arange(length)
    q, k = index[:, None], index[None, :]
    trunk = torch.tensor([len(lesson.trunk.ids) for lesson in lessons])[:, None, None]
    visible = (k <= q) & (q < ends[:, None, :])
    visible &= ~((k < trunk) & (k >= hidden_from[:, :, None]))
    visible |= q == k
    return Batch(ids, positions, targets, weights, visible[:, None])


def weighted_loss(model: Qwen2ForCausalLM, batch: Batch) -> Tensor:
    """Mean cross-entropy of the tokens with a weight, each predicted one position before it in its own branch.

    A branch's first token is predicted by the trunk, which no lesson asks for; its weight must be zero.
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
    """Batches of about ``tokens`` padded tokens, out of pools sorted by length so that little is padding."""
    while True:
        pool = sorted((next(lessons) for _ in range(192)), key=lambda lesson: lesson.length)
        groups: list[list[Lesson]] = [[]]
        for lesson in pool:
            if groups[-1] and (len(groups[-1]) + 1) * lesson.length > tokens:
                groups.append([])
            groups[-1].append(lesson)
        # Neighbouring batches alternate between short and long, or the gradient would follow the length.
        order = sorted(range(len(groups)), key=lambda i: (i * 7919) % len(groups))
        yield from (collate(groups[i], pad) for i in order)


class Optimizer:
    """Muon on the layers' matrices at ``rate``, AdamW on everything else at a part of it."""

    def __init__(self, model: nn.Module, rate: float) -> None:
        self.rate = rate
        self.matrices: dict[str, nn.Parameter] = {}
        self.others: dict[str, nn.Parameter] = {}
        for name, parameter in model.named_parameters():
            matrix = parameter.ndim == 2 and "embed" not in name
            (self.matrices if matrix else self.others)[name] = parameter
        self.state: dict[str, Tensor] = {f"momentum/{n}": torch.zeros_like(p) for n, p in self.matrices.items()}
        for name, parameter in self.others.items():
            self.state[f"mean/{name}"] = torch.zeros_like(parameter)
            self.state[f"square/{name}"] = torch.zeros_like(parameter)

    @torch.no_grad()
    def step(self, number: int, share: float) -> None:
        """Update ``number`` (from 1) at ``share`` of the full rate, and clear the gradients."""
        rate = self.rate * share
        by_shape: dict[torch.Size, list[str]] = {}
        for name, parameter in self.matrices.items():
            by_shape.setdefault(parameter.shape, []).append(name)
        for shape, names in by_shape.items():
            updates = []
            for name in names:
                gradient, momentum = _gradient(self.matrices[name]), self.state[f"momentum/{name}"]
                momentum.mul_(0.95).add_(gradient)
                updates.append(gradient.add(momentum, alpha=0.95))
            scale = 0.2 * max(shape) ** 0.5  # RMS-matched to AdamW
            for name, update in zip(names, orthogonalise(torch.stack(updates)), strict=True):
                self.matrices[name].mul_(1 - rate * 0.05).add_(update, alpha=-rate * scale)
                self.matrices[name].grad = None
        for name, parameter in self.others.items():
            mean, square = self.state[f"mean/{name}"], self.state[f"square/{name}"]
            gradient = _gradient(parameter)
            mean.lerp_(gradient, 0.1)
            square.lerp_(gradient.square(), 0.02)
            root = (square / (1 - 0.98**number)).sqrt_().add_(1e-8)
            parameter.addcdiv_(mean / (1 - 0.9**number), root, value=-rate * _OTHERS)
            parameter.grad = None


def _gradient(parameter: nn.Parameter) -> Tensor:
    if parameter.grad is None:
        raise ValueError("a parameter got no gradient; every one of these models takes part in every lesson")
    return parameter.grad


def orthogonalise(updates: Tensor) -> Tensor:
    """Nearest semi-orthogonal matrices of a stack (count, rows, columns) by five Newton-Schulz iterations (Muon)."""
    tall = updates.shape[1] > updates.shape[2]
    x = updates.mT if tall else updates
    x = x / (x.norm(dim=(1, 2), keepdim=True) + 1e-7)
    for _ in range(5):
        gram = x @ x.mT
        x = 3.4445 * x + (-4.7750 * gram + 2.0315 * gram @ gram) @ x
    result: Tensor = x.mT if tall else x
    return result


def rate_share(step: int, steps: int) -> float:
    """Warm-up over 100 steps, then full, then down to nothing linearly over the last 40 % of the steps."""
    return min(1.0, step / 100, max(0.0, (steps - step) / (0.4 * steps)))


@dataclass(frozen=True, slots=True)
class Plan:
    """A training run: everything that decides its result besides the lessons and the first weights."""

    steps: int
    tokens: int
    rate: float


def fit(
    model: Qwen2ForCausalLM,
    lessons: Callable[[int], Iterator[Lesson]],
    plan: Plan,
    checkpoint: Path,
    report: Callable[[int, float], None],
    every: int = 500,
) -> None:
    """Train in place. ``lessons(block)`` gives the lessons of a block of ``every`` steps, so a run that was ended
    goes on at the last full block in ``checkpoint`` and comes to the same weights."""
    pad = int(model.config.pad_token_id or 0)
    optimizer = Optimizer(model, plan.rate)
    done = _resume(model, optimizer, checkpoint)
    model.train()
    while done < plan.steps:
        supply = batches(lessons(done // every), plan.tokens, pad)
        total = 0.0
        for _ in range(min(every, plan.steps - done)):
            done += 1
            loss = weighted_loss(model, next(supply).to(model.device))
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step(done, rate_share(done, plan.steps))
            total += loss.item()
            if done % 100 == 0:
                report(done, total / ((done - 1) % every + 1))
        _keep(model, optimizer, checkpoint, done)
    model.train(False)


def _keep(model: nn.Module, optimizer: Optimizer, checkpoint: Path, done: int) -> None:
    tensors = {f"model/{name}": p.detach() for name, p in model.named_parameters()} | optimizer.state
    with atomic_file(checkpoint) as temporary:
        save_file(tensors, temporary, metadata={"done": json.dumps(done)})


def _resume(model: Qwen2ForCausalLM, optimizer: Optimizer, checkpoint: Path) -> int:
    if not checkpoint.exists():
        return 0
    tensors = load_file(checkpoint)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(tensors[f"model/{name}"])
    optimizer.state = {name: tensors[name].to(model.device) for name in optimizer.state}
    return int(json.loads(_metadata(checkpoint)["done"]))


def _metadata(path: Path) -> dict[str, str]:
    with path.open("rb") as handle:
        size = int.from_bytes(handle.read(8), "little")
        header: dict[str, dict[str, str]] = json.loads(handle.read(size))
    return header["__metadata__"]
