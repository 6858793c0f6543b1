"""Train with the real ``Trainer`` of transformers 4.52.3 and keep what it did in ``cases/trainer``.

The project's environment has a later transformers, so this file imports nothing of the project. In an environment of
its own, from the root folder of the project:

    python -m venv ELSEWHERE && ELSEWHERE/bin/pip install torch==2.13.0 transformers==4.52.3 accelerate==1.7.0
    ELSEWHERE/bin/python -m tests.published.trainer

The samples are the ones that ``samples`` kept. The arguments are from ``training_configs/prm_train.yaml`` at
2f80ed4, except precision, attention, evaluation and the 32 accumulated passes. Processes on the CPU (gloo, DDP) replace
ZeRO-2 on GPUs: both average the gradients of the processes. A second run leaves the files unchanged.
"""

from __future__ import annotations

import json
import os
import socket
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors.torch import save_file
from transformers import Qwen2Config, Qwen2ForCausalLM, Trainer, TrainingArguments

CASES = Path(__file__).parent / "cases"
DEVICES, AT_ONCE, ACCUMULATED, EPOCHS, SEED = 8, 2, 2, 2.0, 42
RATE = 1e-5
SHAPE: dict[str, Any] = {
    "vocab_size": 496, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2,
    "num_key_value_heads": 1, "max_position_embeddings": 4096, "tie_word_embeddings": True, "pad_token_id": 0,
    "eos_token_id": 0, "bos_token_id": None,
}  # fmt: skip
ORDERS = (  # devices, samples at once, passes accumulated, epochs, seed, lengths
    (8, 2, 32, 2.0, 42, [1 + n * n % 97 for n in range(1500)]),
    (8, 2, 2, 3.0, 42, [1 + n * 7 % 13 for n in range(200)]),
    (8, 2, 4, 1.5, 7, [5] * 131),
    (8, 2, 1, 1.0, 1, list(range(1, 48))),
    (8, 2, 2, 2.0, 3, [4, 9, 2]),
    (8, 2, 2, 2.5, 3, [7]),
    (2, 2, 4, 2.0, 42, [1 + n * 31 % 50 for n in range(91)]),
    (2, 1, 3, 0.4, 5, [1 + n * 31 % 50 for n in range(64)]),
)
"""Several megabatches, ties, incomplete passes and steps, fewer samples than devices, fractional epochs."""


def small_model() -> Any:
    """A Qwen2 whose weights depend on nothing but their names and places, in any version of transformers."""
    model = Qwen2ForCausalLM(Qwen2Config(**SHAPE))
    with torch.no_grad():
        for number, (name, weight) in enumerate(sorted(model.named_parameters())):
            wave = torch.sin(torch.arange(1, weight.numel() + 1, dtype=torch.float64) * (1.7 + number))
            weight.copy_(wave.view_as(weight) * 0.3 + ("norm" in name))
    return model


def main() -> None:
    """Write the cases."""
    with tempfile.TemporaryDirectory() as folder:
        orders = [{"input": list(case), "output": _in_processes(folder, _order, case)} for case in ORDERS]
        steps = _in_processes(folder, _train, (DEVICES,))
    about = {"package": "transformers", "version": transformers.__version__, "torch": torch.__version__}
    rows = [{**about, "function": "Trainer.train", "orders": orders, "training": steps}]
    (CASES / "trainer.json").write_text(json.dumps(rows).replace('{"input"', '\n{"input"') + "\n", encoding="utf-8")


def _in_processes(folder: str, work: Any, case: Sequence[Any]) -> Any:
    """The output of the first of the processes; ``case`` begins with their number."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    multiprocessing: Any = torch.multiprocessing
    multiprocessing.spawn(_enter, (case[0], port, folder, work, case), case[0])
    return json.loads(Path(folder, "result.json").read_text())


def _enter(rank: int, count: int, port: int, folder: str, work: Any, case: Sequence[Any]) -> None:
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(count), LOCAL_WORLD_SIZE=str(count))
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), OMP_NUM_THREADS="1")
    torch.set_num_threads(1)
    result = work(folder, *case)
    if rank == 0:
        Path(folder, "result.json").write_text(json.dumps(result))
    torch.distributed.destroy_process_group()


def _arguments(folder: str, at_once: int, accumulated: int, epochs: float, seed: int) -> TrainingArguments:
    arguments: dict[str, Any] = {
        "output_dir": folder, "per_device_train_batch_size": at_once, "gradient_accumulation_steps": accumulated,
        "num_train_epochs": epochs, "learning_rate": RATE, "lr_scheduler_type": "cosine", "warmup_ratio": 0.1,
        "max_grad_norm": 1.0, "seed": seed, "optim": "adamw_torch", "gradient_checkpointing": True,
        "gradient_checkpointing_kwargs": {"use_reentrant": False}, "remove_unused_columns": False, "logging_steps": 1,
        "group_by_length": True, "save_strategy": "no", "report_to": [], "disable_tqdm": True, "use_cpu": True,
    }  # fmt: skip
    return TrainingArguments(**arguments)


class _Recording(Trainer):
    """``Trainer`` as it is, with a record of the samples and the loss of each pass."""

    passes: list[tuple[int, list[int], float]]

    def training_step(self, model: Any, inputs: Any, num_items_in_batch: Any = None) -> Any:
        samples = inputs.pop("number").tolist()
        loss = super().training_step(model, inputs, num_items_in_batch)
        self.passes.append((self.state.global_step, samples, float(loss)))
        return loss


def _collate(rows: Sequence[dict[str, Any]]) -> dict[str, torch.Tensor]:
    """Padded on the right, as ``DataCollatorForSeq2Seq`` does; the number of each sample stays."""
    longest = max(len(row["input_ids"]) for row in rows)
    fill = {"input_ids": 0, "attention_mask": 0, "labels": -100}
    made = {
        name: torch.tensor([row[name] + [value] * (longest - len(row[name])) for row in rows])
        for name, value in fill.items()
    }
    return {**made, "number": torch.tensor([row["number"] for row in rows])}


def _run(model: Any, rows: list[dict[str, Any]], arguments: TrainingArguments) -> tuple[_Recording, list[Any]]:
    trainer = _Recording(model=model, args=arguments, train_dataset=rows, data_collator=_collate)
    trainer.passes = []
    trainer.train()
    every: list[Any] = [None] * arguments.world_size
    torch.distributed.all_gather_object(every, trainer.passes)
    steps: list[list[Any]] = [[] for _ in range(trainer.state.global_step)]
    for device in every:
        for step in range(len(steps)):
            mine = [each for each in device if each[0] == step]
            steps[step].append([[number for each in mine for number in each[1]], sum(each[2] for each in mine)])
    return trainer, steps


def _order(
    folder: str, _: int, at_once: int, accumulated: int, epochs: float, seed: int, lengths: list[int]
) -> list[list[list[int]]]:
    """The samples of each device in each optimiser step, with the smallest possible model."""
    rows = [
        {"input_ids": [1] * length, "attention_mask": [1] * length, "labels": [1] * length, "number": number}
        for number, length in enumerate(lengths)
    ]
    shape = SHAPE | {"vocab_size": 2, "hidden_size": 2, "intermediate_size": 2, "num_hidden_layers": 1}
    model = Qwen2ForCausalLM(Qwen2Config(**shape | {"num_attention_heads": 1}))
    steps = _run(model, rows, _arguments(folder, at_once, accumulated, epochs, seed))[1]
    return [[samples for samples, _ in step] for step in steps]


def _train(folder: str, _: int) -> dict[str, Any]:
    """Devices' samples and losses, and the norm, rate and mean loss of each step; the weights go to a file."""
    kept = json.loads((CASES / "samples.json").read_text(encoding="utf-8"))[0]["cases"]
    rows: list[dict[str, Any]] = []
    for ids, wanted in (sample for case in kept for sample in case["output"]):
        labels = [wanted.get(str(place), -100) for place in range(len(ids))]
        rows.append({"input_ids": ids, "attention_mask": [1] * len(ids), "labels": labels, "number": len(rows)})
    arguments = _arguments(folder, AT_ONCE, ACCUMULATED, EPOCHS, SEED)
    assert not arguments.average_tokens_across_devices
    trainer, steps = _run(small_model(), rows, arguments)
    if trainer.is_world_process_zero():
        model: Any = trainer.model
        weights = {name: weight.detach().contiguous() for name, weight in model.named_parameters()}
        save_file(weights, CASES / "trainer.safetensors")
    logged = [row for row in trainer.state.log_history if "loss" in row]
    return {
        "steps": steps,
        "norms": [row["grad_norm"] for row in logged],
        "rates": [row["learning_rate"] for row in logged],
    }


if __name__ == "__main__":
    main()
