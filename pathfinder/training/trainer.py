"""The training loop: transformers' ``Trainer``, fed one planned optimiser step at a time, with checkpoints that hold.

A checkpoint counts only with a list of its files' digests, written last: one that a kill tore is passed over and the
one before it is taken. On the CPU in float32 a resumed run ends with the same weights as an uninterrupted one.

Under a launcher (``accelerate launch``, ``torchrun``) every process takes its share of each optimiser step's trees, and
the step is the same as that of one process: the sum over all labels, divided by the weights of all labels.
"""

from __future__ import annotations

import math
import shutil
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from accelerate import PartialState
from accelerate.utils import DistributedType
from torch.utils.data import DataLoader, Dataset, SequentialSampler
from transformers import PreTrainedModel, Trainer, TrainerCallback, TrainingArguments
from transformers.trainer_callback import PrinterCallback

from pathfinder.core.io import DataError, read_json, sha256_file, write_json
from pathfinder.core.progress import Progress
from pathfinder.training.training import Example, batch_of, evaluate, plan_steps, share_out, summed_loss
from pathfinder.tree.layout import pack
from pathfinder.tree.passes import Prompter

_SEAL = "complete.json"
_KEPT = 2
_POINTS = 10
"""Points of a learning curve, evenly spaced over the optimiser steps; the first step is one more."""
_NAMED = 5
"""Trees named in an error message."""


@dataclass(frozen=True, slots=True)
class Fitted:
    """What training leaves: one row per optimiser step, the network as it was trained (in place, perhaps sharded).

    A row holds ``step``, ``loss``, ``learning_rate`` and ``accuracy_LABEL`` on the step's own trees; at the points of
    the learning curve also ``held_out_loss_LABEL`` and ``held_out_accuracy_LABEL``.
    """

    rows: list[dict[str, float]]
    network: Any
    whole_weights: Callable[[], dict[str, torch.Tensor]] | None
    """Gathers a sharded network's weights on the first process (all must call it); None where nothing is sharded."""


def join(cpu: bool) -> tuple[int, int]:
    """Meet the other processes of a launcher, each on its own device: ``(rank, processes)``; (0, 1) without one."""
    state = PartialState(cpu=cpu)
    return state.process_index, state.num_processes


def leave() -> None:
    """End the meeting of ``join``."""
    PartialState().destroy_process_group()


def fit(
    model: PreTrainedModel,
    prompter: Prompter,
    examples: Sequence[Example],
    settings: Any,
    folder: Path,
    held_out: Sequence[Example] = (),
) -> Fitted:
    """Train ``model`` in place.

    ``settings`` is ``params.Train``. Checkpoints lie in ``folder``; a run that finds a sound one goes on from it.
    ``held_out`` is read at the points of the learning curve and changes nothing of the training.
    Raises ``DataError`` when the loss is not finite or there is nothing to learn from.
    """
    if not examples:
        raise DataError("no training trees; look at metrics/build.json for what was dropped and why")
    plan = plan_steps([e.samples for e in examples], settings.batch_samples, settings.epochs, settings.seed)
    arguments = TrainingArguments(
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
        save_strategy="steps",
        save_steps=settings.save_every,
        save_total_limit=_KEPT,
        logging_strategy="steps",
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
    with arguments.main_process_first(local=False):
        start = sound_checkpoint(folder)
    trainer = _TreeTrainer(
        model=model,
        args=arguments,
        train_dataset=_Plan(plan),
        callbacks=[_Seal()],
    )
    trainer.remove_callback(PrinterCallback)
    trainer.prompter, trainer.examples, trainer.budget = prompter, examples, settings.token_budget
    trainer.held_out = held_out
    trainer.points = {1, *(round(len(plan) * part / _POINTS) for part in range(1, _POINTS + 1))}
    resume = str(start) if start is not None else None
    if trainer.is_world_process_zero():
        with Progress("train", len(plan), "steps") as progress:
            if start is not None:
                progress.resume(int(start.name.rpartition("-")[2]))
            trainer.add_callback(_Show(progress))
            trainer.train(resume_from_checkpoint=resume)
    else:
        trainer.train(resume_from_checkpoint=resume)
    wrapped: Any = trainer.model_wrapped
    sharded = trainer.accelerator.distributed_type == DistributedType.FSDP
    return Fitted(
        [row for row in trainer.state.log_history if "loss" in row],
        wrapped if sharded else model,
        (lambda: trainer.accelerator.get_state_dict(wrapped)) if sharded else None,
    )


def sound_checkpoint(folder: Path) -> Path | None:
    """The newest checkpoint whose files are all as they were when it was finished; torn ones are named and removed."""
    found = [path for path in folder.glob("checkpoint-*") if path.name.rpartition("-")[2].isdigit()]
    for checkpoint in sorted(found, key=lambda path: -int(path.name.rpartition("-")[2])):
        if _is_sound(checkpoint):
            return checkpoint
        print(f"{checkpoint.name}: torn, removed; training goes on from the one before it", file=sys.stderr)
        shutil.rmtree(checkpoint)
    return None


def _is_sound(checkpoint: Path) -> bool:
    try:
        listed = read_json(checkpoint / _SEAL)
    except (OSError, DataError):
        return False
    return all((checkpoint / n).is_file() and sha256_file(checkpoint / n) == digest for n, digest in listed.items())


class _Plan(Dataset[list[int]]):
    """Item i: the examples of optimiser step i."""

    def __init__(self, plan: list[list[int]]) -> None:
        self._plan = plan

    def __len__(self) -> int:
        return len(self._plan)

    def __getitem__(self, index: int) -> list[int]:
        return self._plan[index]


def _one_step(items: list[list[int]]) -> dict[str, list[int]]:
    return {"examples": items[0]}


class _TreeTrainer(Trainer):
    """Takes whole optimiser steps: several forward passes over packed trees, one division by all their labels."""

    prompter: Prompter
    examples: Sequence[Example]
    budget: int
    held_out: Sequence[Example]
    points: set[int]
    _rights: dict[str, float]

    def get_train_dataloader(self) -> DataLoader[Any]:
        """Every process reads the whole plan: it is the trees of a step that are shared out, not the steps."""
        planned: Any = self.train_dataset
        return DataLoader(planned, batch_size=1, sampler=SequentialSampler(planned), collate_fn=_one_step)

    def training_step(self, model: Any, inputs: dict[str, Any], num_items_in_batch: Any = None) -> torch.Tensor:
        model.train()
        chosen = [self.examples[i] for i in inputs["examples"]]
        total = float(sum(example.weights.sum() for example in chosen))
        processes = self.accelerator.num_processes  # gradients come out as the mean over them
        mine, rounds = self._groups(chosen)
        loss_sum = torch.zeros((), device=self.args.device)
        counts = torch.zeros(2, len(self.prompter.labels), dtype=torch.int64)  # right, seen
        network: Any = self.model
        for turn in range(rounds):
            idle = turn >= len(mine)
            group = [min(chosen, key=lambda example: len(example.tree))] if idle else [chosen[i] for i in mine[turn]]
            batch, targets = batch_of(group)
            with self._synchronised(model, last=turn == rounds - 1):
                with self.compute_loss_context_manager():
                    here = batch.to(self.args.device, network.dtype)
                    loss, correct = summed_loss(model, here, targets, self.prompter.ids)
                loss = loss * (0.0 if idle else processes / total) if processes > 1 else loss / total
                if not bool(torch.isfinite(loss)):
                    names = ", ".join(example.name for example in group[:_NAMED])
                    more = ", …" if len(group) > _NAMED else ""
                    raise DataError(
                        f"the loss is {loss.item()} at optimiser step {self.state.global_step + 1} (trees {names}"
                        f"{more}); lower train.learning_rate or look at these trees"
                    )
                self.accelerator.backward(loss)
            loss_sum += loss.detach()
            if not idle:
                for mark in range(len(self.prompter.labels)):
                    of_kind = torch.from_numpy(targets.marks == mark)
                    counts[:, mark] += torch.stack([correct.cpu()[of_kind].sum(), of_kind.sum()])
        if processes > 1:
            counts = self.accelerator.reduce(counts.to(self.args.device)).cpu()
        right, seen = counts.tolist()
        kinds = zip(self.prompter.labels, right, seen, strict=True)
        self._rights = {f"accuracy_{label}": yes / every for label, yes, every in kinds if every}
        return loss_sum

    def _groups(self, chosen: Sequence[Example]) -> tuple[list[list[int]], int]:
        """This process's forward passes, and how many every process makes: those with fewer add idle ones."""
        sizes = [len(example.tree) for example in chosen]
        every = [
            [[share[i] for i in group] for group in pack([sizes[item] for item in share], self.budget)]
            for share in share_out(sizes, self.accelerator.num_processes)
        ]
        return every[self.accelerator.process_index], max(len(groups) for groups in every)

    def _synchronised(self, model: Any, last: bool) -> AbstractContextManager[Any]:
        """Replicas exchange gradients once a step; shards do so after every pass, or they would have to keep them."""
        if last or self.accelerator.distributed_type == DistributedType.FSDP:
            return nullcontext()
        waiting: AbstractContextManager[Any] = self.accelerator.no_sync(model)
        return waiting

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        norm = float(logs.get("grad_norm", 0.0))
        if not math.isfinite(norm):
            raise DataError(
                f"the gradient's norm is {norm} at optimiser step {self.state.global_step}; lower train.learning_rate"
            )
        super().log({**logs, **self._rights, **self._held_out()} if "loss" in logs else logs, start_time)

    def _held_out(self) -> dict[str, float]:
        """Loss and accuracy per label of the held-out trees, at a point of the learning curve."""
        if not self.held_out or self.state.global_step not in self.points:
            return {}
        sharded = self.accelerator.distributed_type == DistributedType.FSDP
        network: Any = self.model_wrapped if sharded else self.model  # shards meet in the wrapped one only
        found = evaluate(network, self.held_out, self.prompter, self.budget)
        return {
            f"held_out_{figure}_{label}": figures[figure]
            for label, figures in found.items()
            for figure in ("loss", "accuracy")
        }


class _Seal(TrainerCallback):
    """Writes the digests of a finished checkpoint's files."""

    def on_save(self, args: TrainingArguments, state: Any, control: Any, **_: Any) -> None:
        PartialState().wait_for_everyone()
        if not state.is_world_process_zero:
            return
        checkpoint = Path(str(args.output_dir)) / f"checkpoint-{state.global_step}"
        files = sorted(path for path in checkpoint.rglob("*") if path.is_file() and path.name != _SEAL)
        write_json(checkpoint / _SEAL, {path.relative_to(checkpoint).as_posix(): sha256_file(path) for path in files})


class _Show(TrainerCallback):
    """Moves the progress on."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, float] | None = None, **_: Any) -> None:
        if logs and "loss" in logs:
            self._progress.advance(1, f"loss {logs['loss']:.3f}")
