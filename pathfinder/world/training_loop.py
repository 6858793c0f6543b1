"""The training loop of the tiny models: lessons as masked batches, Muon with AdamW, checkpoints by step.

Muon for matrices (with an RMS-matched learning rate) and AdamW for the rest learned the small world several times
faster than AdamW for everything. Schedules count steps, not seconds, so a run is repeatable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor, nn
from transformers import Qwen2ForCausalLM

from pathfinder.core.io import atomic_file
from pathfinder.core.progress import Progress
from pathfinder.world.lessons import Lesson
from pathfinder.world.recipes import Phase

_OTHERS = 0.4  # learning rate of embeddings, biases and norms relative to the matrices


@dataclass(frozen=True, slots=True)
class Batch:
    """Padded lessons."""

    ids: Tensor  # (rows, length) int64
    positions: Tensor  # (rows, length) int64
    targets: Tensor  # (rows, length) int64
    weights: Tensor  # (rows, length) float32
    mask: Tensor  # (rows, 1, length, length) bool, true where a query attends to a key

    def to(self, device: torch.device) -> Batch:
        """The same batch on ``device``."""
        return Batch(*(getattr(self, field.name).to(device) for field in fields(self)))


def collate(lessons: Sequence[Lesson], pad: int) -> Batch:
    """Pad lessons into one batch; the length is a multiple of 32, so few shapes occur."""
    length = -(-max(lesson.length for lesson in lessons) // 32) * 32
    rows = len(lessons)
    ids = torch.full((rows, length), pad)
    targets = torch.full((rows, length), pad)
    positions = torch.zeros((rows, length), dtype=torch.long)
    weights = torch.zeros((rows, length))
    ends = torch.zeros((rows, length), dtype=torch.long)  # end of the queries that attend to this key
    hidden_from = torch.zeros((rows, length), dtype=torch.long)  # end of the trunk that a branch sees
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
        # Mix short and long batches, or the gradient would follow the length.
        order = sorted(range(len(groups)), key=lambda i: (i * 7919) % len(groups))
        yield from (collate(groups[i], pad) for i in order)


class Optimizer:
    """Muon for the layers' matrices at ``rate``, AdamW for everything else at 0.4 of it."""

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
        """Apply update ``number`` (from 1) at ``share`` of the full rate, and clear the gradients.

        Raises ``ValueError`` if a parameter has no gradient.
        """
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
        raise ValueError("a parameter got no gradient; expected every lesson to use every parameter")
    return parameter.grad


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
    """Train in place.

    ``lessons(block)`` gives the lessons of a block of ``every`` steps. An interrupted run resumes after the last full
    block in ``checkpoint`` and produces the same weights.
    """
    pad = int(model.config.pad_token_id or 0)
    optimizer = Optimizer(model, phase.rate)
    done = _resume(model, optimizer, checkpoint)
    model.train()
    with Progress(f"pretrain {checkpoint.stem}", phase.steps, "steps") as progress:
        progress.resume(done)
        while done < phase.steps:
            supply = batches(lessons(done // every), phase.tokens, pad)
            total = 0.0
            for count in range(1, min(every, phase.steps - done) + 1):
                done += 1
                loss = weighted_loss(model, next(supply).to(model.device))
                loss.backward()  # type: ignore[no-untyped-call]
                optimizer.step(done, rate_share(done, phase.steps))
                total += loss.item()
                progress.advance(note=f"loss {total / count:.4f}")
            _save(model, optimizer, checkpoint, done)
    model.train(False)


def _save(model: nn.Module, optimizer: Optimizer, checkpoint: Path, done: int) -> None:
    tensors = {f"model/{name}": p.detach() for name, p in model.named_parameters()} | optimizer.state
    with atomic_file(checkpoint) as temporary:
        save_file(tensors, temporary, metadata={"done": str(done)})


def _resume(model: Qwen2ForCausalLM, optimizer: Optimizer, checkpoint: Path) -> int:
    """Load the checkpoint if it exists; the number of steps it has done."""
    if not checkpoint.exists():
        return 0
    with safe_open(checkpoint, framework="pt", device=str(model.device)) as saved, torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(saved.get_tensor(f"model/{name}"))
        optimizer.state = {name: saved.get_tensor(name) for name in optimizer.state}
        return int(saved.metadata()["done"])
