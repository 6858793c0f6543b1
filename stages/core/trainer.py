"""The training loop: transformers' ``Trainer``, fed one planned optimiser step at a time, with checkpoints that hold.

A checkpoint counts only with a list of its files' digests, written last: one that a kill tore is passed over and the
one before it is taken. On the CPU in float32 a resumed run ends with the same weights as an uninterrupted one.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import Dataset, SequentialSampler
from transformers import PreTrainedModel, Trainer, TrainerCallback, TrainingArguments
from transformers.trainer_callback import PrinterCallback

from stages.core.io import DataError, read_json, sha256_file, write_json
from stages.core.passes import Prompter
from stages.core.progress import Progress
from stages.core.training import Example, batches, plan_steps, summed_loss

_SEAL = "complete.json"
_KEPT = 2


def fit(
    model: PreTrainedModel,
    prompter: Prompter,
    examples: Sequence[Example],
    settings: Any,
    folder: Path,
) -> list[dict[str, float]]:
    """Train ``model`` in place and return one row per optimiser step (loss, learning rate, accuracy per label).

    ``settings`` is ``params.Train``. Checkpoints lie in ``folder``; a run that finds a sound one goes on from it.
    Raises ``DataError`` when the loss is not finite or there is nothing to learn from.
    """
    if not examples:
        raise DataError("no training trees; look at metrics/build.json for what was dropped and why")
    plan = plan_steps([e.samples for e in examples], settings.batch_samples, settings.epochs, settings.seed)
    start = sound_checkpoint(folder)
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
        use_cpu=model.device.type == "cpu",
    )
    trainer = _TreeTrainer(
        model=model,
        args=arguments,
        train_dataset=_Plan(plan),
        data_collator=_one_step,
        callbacks=[_Seal()],
    )
    trainer.remove_callback(PrinterCallback)
    trainer.prompter, trainer.examples, trainer.budget = prompter, examples, settings.token_budget
    with Progress("train", len(plan), "steps") as progress:
        if start is not None:
            progress.resume(int(start.name.rpartition("-")[2]))
        trainer.add_callback(_Show(progress))
        trainer.train(resume_from_checkpoint=str(start) if start is not None else None)
    return [row for row in trainer.state.log_history if "loss" in row]


def sound_checkpoint(folder: Path) -> Path | None:
    """The newest checkpoint whose files are all as they were when it was finished; torn ones are removed."""
    found = [path for path in folder.glob("checkpoint-*") if path.name.rpartition("-")[2].isdigit()]
    for checkpoint in sorted(found, key=lambda path: -int(path.name.rpartition("-")[2])):
        if _is_sound(checkpoint):
            return checkpoint
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
    _rights: dict[str, float]

    def _get_train_sampler(self, train_dataset: Any = None) -> SequentialSampler:
        planned: Any = self.train_dataset if train_dataset is None else train_dataset
        return SequentialSampler(planned)

    def training_step(self, model: Any, inputs: dict[str, Any], num_items_in_batch: Any = None) -> torch.Tensor:
        model.train()
        chosen = [self.examples[i] for i in inputs["examples"]]
        total = float(sum(example.weights.sum() for example in chosen))
        loss_sum = torch.zeros((), device=self.args.device)
        right: dict[str, int] = {}
        seen: dict[str, int] = {}
        network: Any = self.model
        for batch, targets in batches(chosen, self.budget):
            with self.compute_loss_context_manager():
                here = batch.to(self.args.device, network.dtype)
                loss, correct = summed_loss(model, here, targets, self.prompter.ids)
            loss = loss / total
            if not bool(torch.isfinite(loss)):
                names = ", ".join(example.name for example in chosen[:5])
                raise DataError(
                    f"the loss is {loss.item()} at optimiser step {self.state.global_step + 1} (trees {names}, …); "
                    "lower train.learning_rate or look at these trees"
                )
            self.accelerator.backward(loss)
            loss_sum += loss.detach()
            for mark, label in enumerate(self.prompter.labels):
                of_kind = torch.from_numpy(targets.marks == mark)
                right[label] = right.get(label, 0) + int(correct.cpu()[of_kind].sum())
                seen[label] = seen.get(label, 0) + int(of_kind.sum())
        self._rights = {f"accuracy_{label}": right[label] / seen[label] for label in seen if seen[label]}
        return loss_sum

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        super().log({**logs, **self._rights} if "loss" in logs else logs, start_time)


class _Seal(TrainerCallback):
    """Writes the digests of a finished checkpoint's files."""

    def on_save(self, args: TrainingArguments, state: Any, control: Any, **_: Any) -> None:
        checkpoint = Path(str(args.output_dir)) / f"checkpoint-{state.global_step}"
        files = sorted(path for path in checkpoint.iterdir() if path.is_file() and path.name != _SEAL)
        write_json(checkpoint / _SEAL, {path.name: sha256_file(path) for path in files})


class _Show(TrainerCallback):
    """Moves the progress on."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, float] | None = None, **_: Any) -> None:
        if logs and "loss" in logs:
            self._progress.advance(1, f"loss {logs['loss']:.3f}")
