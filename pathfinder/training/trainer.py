"""The training loop: transformers' ``Trainer`` with planned optimiser steps and its own checkpoints (``checkpoints``).

On the CPU in float32 a run that was killed and resumed ends with the same weights as an uninterrupted one.

Under a launcher (``accelerate launch``, ``torchrun``) each process computes its share of the trees of every optimiser
step. The step equals the step of a single process: the sum over all labels, divided by the weights of all labels.
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
from accelerate.utils import DistributedType
from torch.utils.data import DataLoader, SequentialSampler
from transformers import PreTrainedModel, Trainer, TrainerCallback, TrainingArguments
from transformers.trainer_callback import PrinterCallback

from ground.io import DataError
from ground.progress import Progress
from pathfinder.core.params import Train
from pathfinder.models.architectures import shape_of
from pathfinder.training import checkpoints
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
    model: PreTrainedModel,
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
    arguments = _Arguments(
        output_dir=str(folder),
        max_steps=len(plan),
        per_device_train_batch_size=1,
        learning_rate=settings.learning_rate,
        lr_scheduler_type=settings.schedule,
        warmup_steps=math.ceil(settings.warmup_ratio * len(plan)),
        weight_decay=settings.weight_decay,
        max_grad_norm=settings.max_grad_norm,
        bf16=settings.dtype == "bfloat16",
        activation_checkpointing=settings.gradient_checkpointing,
        activation_checkpointing_kwargs={"use_reentrant": False},
        optim="adamw_torch_fused",
        seed=settings.seed,
        save_steps=settings.save_every,
        logging_steps=1,
        logging_nan_inf_filter=False,
        report_to="none",
        disable_tqdm=True,
        dataloader_pin_memory=False,
        remove_unused_columns=False,
        use_cpu=model.device.type == "cpu" and not torch.cuda.is_available(),
        ddp_find_unused_parameters=False,
        ddp_broadcast_buffers=False,
    )
    group = checkpoints.Group(arguments.process_index, arguments.world_size, arguments.device)
    checkpoint = checkpoints.newest_checkpoint(folder, group)
    kept = checkpoints.check_room(folder, checkpoints.size_of(model), settings.checkpoint_gib)
    steps: Any = plan
    trainer = _TreeTrainer(model=model, args=arguments, train_dataset=steps)
    trainer.remove_callback(PrinterCallback)
    trainer.prompter, trainer.examples, trainer.budget = prompter, examples, settings.token_budget
    trainer.by_device = settings.weighting == "device"
    trainer.held_out = held_out
    trainer.points = {1, *(round(len(plan) * part / _CURVE_POINTS) for part in range(1, _CURVE_POINTS + 1))}
    trainer.writer = checkpoints.Writer(folder, kept, group)
    shape = shape_of(model.config.to_dict(), "base")
    shape = replace(shape, vocabulary=len(CLASSES)) if isinstance(prompter, Separated) else shape
    trainer.throughput = Throughput(shape, bool(settings.lora.rank), arguments.world_size)
    with Progress("train", len(plan), "steps") if trainer.is_world_process_zero() else nullcontext() as progress:
        if progress is not None:
            progress.resume(checkpoints.step_of(checkpoint) if checkpoint is not None else 0)
            trainer.add_callback(_ShowProgress(progress, trainer.throughput))
        trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint is not None else None)
        trainer.writer.finish()
    rows = [row for row in trainer.state.log_history if "loss" in row]
    throughput = trainer.throughput.figures()
    if trainer.is_world_process_zero():
        print(f"trained {throughput['tokens']:,.0f} tokens: {trainer.throughput}", file=sys.stderr)
    if not trainer.is_sharded:
        return Fitted(rows, model, None, throughput)
    wrapped: Any = trainer.model_wrapped
    return Fitted(rows, wrapped, lambda: trainer.accelerator.get_state_dict(wrapped), throughput)


class _Arguments(TrainingArguments):
    @property
    def n_gpu(self) -> int:
        """At most one: with more, transformers would wrap the network in ``torch.nn.DataParallel``.

        That would cut a row of trees over the GPUs. Several GPUs need one process each (``train.launch``).
        """
        return min(1, int(super().n_gpu))


class _TreeTrainer(Trainer):
    """Takes whole optimiser steps: several forward passes of packed trees, divided once by all their labels."""

    prompter: Prompts
    examples: Sequence[Example]
    budget: int
    by_device: bool
    held_out: Sequence[Example]
    points: set[int]
    writer: checkpoints.Writer
    throughput: Throughput
    _accuracies: dict[str, float]

    @property
    def is_sharded(self) -> bool:
        return bool(self.accelerator.distributed_type == DistributedType.FSDP)

    def get_train_dataloader(self) -> DataLoader[Any]:
        """The whole plan for every process: processes share the trees of each step, not the steps."""
        plan: Any = self.train_dataset
        return DataLoader(
            plan, batch_size=1, sampler=SequentialSampler(plan), collate_fn=lambda steps: {"examples": steps[0]}
        )

    def training_step(self, model: Any, inputs: dict[str, Any], num_items_in_batch: Any = None) -> torch.Tensor:
        """The summed loss of one optimiser step. Raises ``DataError`` if the loss of a pass is not finite."""
        model.train()
        chosen = [self.examples[i] for i in inputs["examples"]]
        chosen = weigh(chosen) if self.by_device else chosen
        self.throughput.add(chosen)
        total = math.fsum(example.targets.weights.sum() for example in chosen)
        processes = self.accelerator.num_processes  # gradients are averaged over them
        groups, rounds = self._groups(chosen)
        loss_sum = torch.zeros((), device=self.args.device)
        counts = torch.zeros(2, len(self.prompter.labels), dtype=torch.int64)  # correct, all
        network: Any = self.model
        for turn in range(rounds):
            idle = turn >= len(groups)
            group = [min(chosen, key=lambda example: len(example.tree))] if idle else [chosen[i] for i in groups[turn]]
            batch, targets = batch_of(group, backend_on(self.args.device))
            with self._synchronised(model, last=turn == rounds - 1):
                with self.compute_loss_context_manager():
                    on_device = batch.to(self.args.device, network.dtype)
                    loss, correct = summed_loss(model, on_device, targets, self.prompter.ids)
                loss = loss * (0.0 if idle else processes / total) if processes > 1 else loss / total
                if not bool(torch.isfinite(loss)):
                    names = textwrap.shorten(", ".join(example.name for example in group), 100, placeholder=" …")
                    raise DataError(
                        f"the loss is {loss.item()} at optimiser step {self.state.global_step + 1} (trees {names}); "
                        "lower the learning rate or look at these trees"
                    )
                self.accelerator.backward(loss)
            loss_sum += loss.detach()
            if not idle:
                for mark in range(len(self.prompter.labels)):
                    of_mark = torch.from_numpy(targets.marks == mark)
                    counts[:, mark] += torch.stack([correct.cpu()[of_mark].sum(), of_mark.sum()])
        if processes > 1:
            counts = self.accelerator.reduce(counts.to(self.args.device)).cpu()
        by_label = zip(self.prompter.labels, *counts.tolist(), strict=True)
        self._accuracies = {f"accuracy_{label}": right / every for label, right, every in by_label if every}
        return loss_sum

    def _groups(self, chosen: Sequence[Example]) -> tuple[list[list[int]], int]:
        """The forward passes of this process, and the largest number in any process, to which idle passes are added."""
        groups = passes_of([len(example.tree) for example in chosen], self.accelerator.num_processes, self.budget)
        return groups[self.accelerator.process_index], max(len(passes) for passes in groups)

    def _synchronised(self, model: Any, last: bool) -> AbstractContextManager[Any]:
        """Replicas exchange gradients once per step. Shards do so after every pass, or they would have to keep them."""
        if last or self.is_sharded:
            return nullcontext()
        unsynchronised: AbstractContextManager[Any] = self.accelerator.no_sync(model)
        return unsynchronised

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Log with the figures per label. Raises ``DataError`` if the norm of the gradient is not finite."""
        norm = float(logs.get("grad_norm", 0.0))
        if not math.isfinite(norm):
            raise DataError(
                f"the gradient's norm is {norm} at optimiser step {self.state.global_step}; lower the learning rate"
            )
        super().log({**logs, **self._accuracies, **self._held_out()} if "loss" in logs else logs, start_time)

    def _held_out(self) -> dict[str, float]:
        """Loss and accuracy per label of the held-out trees at a point of the learning curve."""
        if not self.held_out or self.state.global_step not in self.points:
            return {}
        network: Any = self.model_wrapped if self.is_sharded else self.model  # only the wrapped one gathers its shards
        figures = evaluate(network, self.held_out, self.prompter, self.budget)
        return {
            f"held_out_{figure}_{label}": values[figure]
            for label, values in figures.items()
            for figure in ("loss", "accuracy")
        }

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        """Start to write a checkpoint in place of the files of ``Trainer``."""
        if self.is_world_process_zero():
            checkpoint = Path(str(self.args.output_dir)) / f"checkpoint-{self.state.global_step}"
            checkpoint.mkdir(parents=True, exist_ok=True)
            self.state.save_to_json(str(checkpoint / checkpoints.STATE))
        scheduler: Any = self.lr_scheduler
        network = self.accelerator.unwrap_model(model)
        self.writer.save(self.state.global_step, network, self.optimizer, {"scheduler": scheduler.state_dict()})

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        network: Any = self.model if model is None else model
        checkpoints.read_weights(Path(resume_from_checkpoint), network)

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        if checkpoint is None:
            return
        scheduler: Any = self.lr_scheduler
        optimiser: Any = self.optimizer
        network = self.accelerator.unwrap_model(self.model_wrapped)
        checkpoints.read_optimiser(Path(checkpoint), network, optimiser)
        scheduler.load_state_dict(checkpoints.read_state(Path(checkpoint))["scheduler"])
        for group, rate in zip(optimiser.param_groups, scheduler.get_last_lr(), strict=True):
            group["lr"] = rate

    def _load_rng_state(self, checkpoint: str | None) -> None:
        """Nothing to load: training draws no random numbers."""


class _ShowProgress(TrainerCallback):
    def __init__(self, progress: Progress, throughput: Throughput) -> None:
        self._progress, self._throughput = progress, throughput

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, float] | None = None, **_: Any) -> None:
        if logs and "loss" in logs:
            self._progress.advance(1, f"loss {logs['loss']:.3f}, {self._throughput}")
