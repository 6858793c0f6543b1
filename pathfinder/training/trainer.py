"""The training loop: planned optimiser steps of AdamW, with checkpoints (``checkpoints``).

On the CPU in float32 a run that was killed and resumed ends with the same weights as an uninterrupted one.

Under a launcher (``accelerate launch``, ``torchrun``) each process computes its share of the trees of every optimiser
step. The step equals a single process's step: the sum over all labels, divided by the weights of all labels.
"""

from __future__ import annotations

import math
import sys
import textwrap
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch.nn.utils import clip_grad_norm_

from ground.io import DataError, read_json, write_json
from ground.progress import Progress
from pathfinder.core.params import Train
from pathfinder.models import launch
from pathfinder.models.architectures import shape_of
from pathfinder.models.decoder import Decoder
from pathfinder.models.slices import is_sharded
from pathfinder.training import checkpoints
from pathfinder.training.adamw import AdamW
from pathfinder.training.examples import Example, plan_trees
from pathfinder.training.objective import batch_of, evaluate, summed_loss
from pathfinder.training.published import plan_samples, weigh
from pathfinder.training.throughput import Throughput
from pathfinder.tree.layout import backend_on
from pathfinder.tree.packing import passes_of
from pathfinder.tree.passes import Prompts
from pathfinder.tree.separated import CLASSES, Separated

_CURVE_POINTS = 10
"""Points of a learning curve, evenly spaced over the optimiser steps, in addition to the first step."""


@dataclass(frozen=True, slots=True)
class Fitted:
    """The result of training: one row per optimiser step, and the network, trained in place and possibly sharded.

    A row holds ``step``, ``loss``, ``learning_rate`` and ``accuracy_LABEL`` on the trees of the step. At the points of
    the learning curve it also holds ``held_out_loss_LABEL`` and ``held_out_accuracy_LABEL``.
    """

    rows: list[dict[str, float]]
    network: Any
    gather_weights: Callable[[], dict[str, torch.Tensor]] | None
    """Gathers sharded weights on the first process; every process must call it. None if nothing is sharded."""
    throughput: dict[str, float]
    """See ``Throughput.figures``; the steps of an earlier, interrupted run are not included."""


def plan_of(examples: Sequence[Example], settings: Train) -> list[list[int]]:
    """The examples of each optimiser step; a run that resumes has the same plan."""
    if settings.weighting == "device":
        lengths = [len(example.tree) for example in examples]
        return plan_samples(lengths, settings.batch_samples, settings.epochs, settings.seed)
    return plan_trees(examples, settings)


def fit(
    model: Any,
    prompter: Prompts,
    examples: Sequence[Example],
    settings: Train,
    folder: Path,
    held_out: Sequence[Example] = (),
) -> Fitted:
    """Train ``model`` in place, resuming from the newest valid checkpoint in ``folder``.

    ``held_out`` is evaluated at the points of the learning curve and does not influence the training.
    Raises ``DataError`` if there are no examples, if a checkpoint does not fit, or if a loss or gradient is not finite.
    """
    if not examples:
        raise DataError("no training trees; look at metrics/build.json for what was dropped and why")
    plan = plan_of(examples, settings)
    group = checkpoints.Group.of(model.device)
    checkpoint = checkpoints.newest_checkpoint(folder, group)
    writer = checkpoints.Writer(
        folder, checkpoints.check_room(folder, checkpoints.size_of(model), settings.checkpoint_gib), group
    )
    loop = _Loop(model, prompter, examples, settings, group)
    optimiser, rows = AdamW(model, settings.weight_decay), list[dict[str, float]]()
    if checkpoint is not None:
        checkpoints.read_weights(checkpoint, model)
        checkpoints.read_optimiser(checkpoint, model, optimiser)
        rows = read_json(checkpoint / checkpoints.STATE)
    points = {1, *(round(len(plan) * part / _CURVE_POINTS) for part in range(1, _CURVE_POINTS + 1))}
    with Progress("train", len(plan), "steps") if group.rank == 0 else nullcontext() as progress:
        if progress is not None:
            progress.resume(len(rows))
        for step in range(len(rows) + 1, len(plan) + 1):
            rate = settings.learning_rate * share_of_rate(settings, step - 1, len(plan))
            figures = loop.backward(step, [examples[i] for i in plan[step - 1]])
            norm = _clipped_norm(model, settings.max_grad_norm, step)
            optimiser.step(rate)
            rows.append({"step": step, **figures, "grad_norm": norm, "learning_rate": rate})
            if held_out and step in points:
                rows[-1] |= _flat(evaluate(model, held_out, prompter, settings.token_budget))
            if progress is not None:
                progress.advance(1, f"loss {figures['loss']:.3f}, {loop.throughput}")
            if step % settings.save_every == 0 or step == len(plan):
                if group.rank == 0:
                    write_json(folder / f"checkpoint-{step}" / checkpoints.STATE, rows)
                writer.save(step, model, optimiser)
        writer.finish()
    throughput = loop.throughput.figures()
    if group.rank == 0:
        print(f"trained {throughput['tokens']:,.0f} tokens: {loop.throughput}", file=sys.stderr)
    return Fitted(rows, model, loop.gathered if loop.is_sharded else None, throughput)


def share_of_rate(settings: Train, step: int, steps: int) -> float:
    """The learning rate of step ``step``, from 0, as a share of the largest: a linear warm-up, then the schedule."""
    warm = min(math.ceil(settings.warmup_ratio * steps), steps - 1)  # the first step of a warm-up learns nothing
    if step < warm:
        return step / warm
    passed = (step - warm) / max(1, steps - warm)
    if settings.schedule == "cosine":
        return max(0.0, 0.5 * (1.0 + math.cos(math.pi * passed)))
    return 1.0 if settings.schedule == "constant" else max(0.0, (steps - step) / max(1, steps - warm))


def _clipped_norm(model: Any, most: float, step: int) -> float:
    """Limit the gradient's norm to ``most``; return the old norm. Raises ``DataError`` if it is not finite."""
    found: Any = clip_grad_norm_(model.parameters(), most)
    norm = float(found.full_tensor() if is_sharded(found) else found)
    if not math.isfinite(norm):
        raise DataError(f"the gradient's norm is {norm} at optimiser step {step}; lower the learning rate")
    return norm


def _flat(figures: dict[str, dict[str, Any]]) -> dict[str, float]:
    """Loss and accuracy per label of the held-out trees, in the form of a row."""
    return {
        f"held_out_{figure}_{label}": values[figure]
        for label, values in figures.items()
        for figure in ("loss", "accuracy")
    }


class _Loop:
    """Takes the gradients of whole optimiser steps: several forward passes, divided once by all their labels."""

    def __init__(
        self, model: Any, prompter: Prompts, examples: Sequence[Example], settings: Train, group: checkpoints.Group
    ) -> None:
        self.model, self.prompter, self.settings, self.group = model, prompter, settings, group
        self.is_sharded = torch.distributed.is_initialized() and launch.sharded()
        self._network = model
        if settings.gradient_checkpointing:
            model.activation_checkpointing_enable({"use_reentrant": False})
        if group.processes > 1 and not self.is_sharded:
            places = [model.device] if model.device.type == "cuda" else None
            self._network = torch.nn.parallel.DistributedDataParallel(model, places, broadcast_buffers=False)
        shape = model.shape if isinstance(model, Decoder) else shape_of(model.config.to_dict(), "base")
        shape = replace(shape, vocabulary=len(CLASSES)) if isinstance(prompter, Separated) else shape
        self.throughput = Throughput(shape, bool(settings.lora.rank), group.processes)

    def backward(self, step: int, chosen: Sequence[Example]) -> dict[str, float]:
        """Add the gradients of one optimiser step; return its loss and the accuracy by label.

        Raises ``DataError`` if the loss of a pass is not finite.
        """
        self._network.train()
        chosen = weigh(chosen) if self.settings.weighting == "device" else chosen
        self.throughput.add(chosen)
        total = math.fsum(example.targets.weights.sum() for example in chosen)
        processes = self.group.processes  # gradients are averaged over them
        shares = passes_of([len(example.tree) for example in chosen], processes, self.settings.token_budget)
        mine, rounds = shares[self.group.rank], max(len(passes) for passes in shares)
        device, labels = self.model.device, self.prompter.labels
        loss_sum = torch.zeros((), device=device)
        counts = torch.zeros(2, len(labels), dtype=torch.float64)  # correct, all
        for turn in range(rounds):
            idle = turn >= len(mine)  # the rest have one more pass
            group = [min(chosen, key=lambda example: len(example.tree))] if idle else [chosen[i] for i in mine[turn]]
            batch, targets = batch_of(group, backend_on(device))
            with self._synchronised(last=turn == rounds - 1):
                with torch.autocast(device.type, torch.bfloat16, enabled=self.settings.dtype == "bfloat16"):
                    on_device = batch.to(device, self.model.dtype)
                    loss, correct = summed_loss(self._network, on_device, targets, self.prompter.ids)
                loss = loss * (0.0 if idle else processes / total) if processes > 1 else loss / total
                if not bool(torch.isfinite(loss)):
                    names = textwrap.shorten(", ".join(example.name for example in group), 100, placeholder=" …")
                    raise DataError(
                        f"the loss is {loss.item()} at optimiser step {step} (trees {names}); "
                        "lower the learning rate or look at these trees"
                    )
                loss.backward()  # type: ignore[no-untyped-call]
            loss_sum += loss.detach()
            if not idle:
                marks = torch.from_numpy(targets.marks).long()
                for row, hits in zip(counts, (correct.cpu(), torch.ones(len(marks))), strict=True):
                    row += torch.bincount(marks, hits.double(), minlength=len(labels))
        figures = torch.cat([loss_sum[None].double(), counts.flatten().to(device)])
        if processes > 1:
            torch.distributed.all_reduce(figures)
        loss_value, *numbers = figures.tolist()
        by_label = zip(labels, numbers[: len(labels)], numbers[len(labels) :], strict=True)
        accuracies = {f"accuracy_{label}": right / every for label, right, every in by_label if every}
        return {"loss": loss_value / processes, **accuracies}

    def _synchronised(self, last: bool) -> AbstractContextManager[Any]:
        """Replicas exchange gradients once per step. Shards do so after every pass, so they need not keep them."""
        if last or self._network is self.model:
            return nullcontext()
        unsynchronised: AbstractContextManager[Any] = self._network.no_sync()
        return unsynchronised

    def gathered(self) -> dict[str, torch.Tensor]:
        """All weights on the first process; every process must call this."""
        from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict

        whole = StateDictOptions(full_state_dict=True, cpu_offload=True)
        weights: dict[str, Any] = get_model_state_dict(self.model, options=whole)
        return weights
