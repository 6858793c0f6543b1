"""A small training set, training parameters for it, and the published samples of the same records."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import yaml

from ground.io import write_parquet
from pathfinder.core import prompts
from pathfinder.core.params import Lora, Train
from pathfinder.core.prompts import VARIANTS
from pathfinder.core.records import SOFT_TREES, TREES
from pathfinder.core.runs import parse_run
from pathfinder.training.card import Learnt
from pathfinder.training.examples import Example, gold_labels, read_examples
from pathfinder.tree.attention import use_trees
from pathfinder.tree.passes import Prompter, Query
from tests.support.models import plain_tokenizer, separate_prompt, small_model

LEARNT = Learnt(parse_run("full"), {"model.safetensors": "ab" * 32}, "cd" * 32, share=1.0, mix_seed=42)
"""The section about training in the card of a test's model."""
IGNORED = -100
"""The label of a token that has no loss."""


def branch(name: str, index: int, step: str, *labels: int) -> dict[str, Any]:
    """A branch with labels for math, consistency and correctness: all 1 by default."""
    names = ("math", "consistency", "correctness")
    return {"id": name, "step_index": index, "step": step, **dict(zip(names, labels or (1, 1, 1), strict=True))}


def frame(trees: int = 3, soft: bool = False) -> pl.DataFrame:
    """Trees of five and four records in turn, on two problems."""
    rows = []
    for n in range(trees):
        steps = [f"first {n}", "then <extra> more\n\n", f"so \\boxed{{{n}}}"]
        branches = [
            branch(f"r-{n}-0", 0, steps[0]),
            branch(f"r-{n}-0-1", 0, "an alternative", 0, 1, 0),
            branch(f"r-{n}-1", 1, steps[1], 1, 0, 0),
            branch(f"r-{n}-1-1", 1, steps[1], 1, 1, 1),  # the same step labelled twice
            branch(f"r-{n}-2", 2, f"so {n + 1}", 1, 1, 0),
        ][: 5 - n % 2]
        if soft:
            for b, value in zip(branches, (0.0, 0.25, None, 1.0, 0.875), strict=False):
                b["mc_value"] = value
        rows.append(
            {
                "tree_id": f"t-{n}",
                "problem_id": f"p-{n % 2}",
                "source": "prm800k",
                "problem": f"What is {n}? <+>",
                "steps": steps,
                "branches": branches,
            }
        )
    return pl.DataFrame(rows, schema=SOFT_TREES if soft else TREES)


def training_project(folder: Path, root: Path, **changed: Any) -> Path:
    """A folder with a small training set, a random base model and the parameters of the project at ``root``."""
    soft = bool(changed.get("soft_labels"))
    write_parquet(folder / "artifacts/train/train.parquet", frame(24, soft))
    write_parquet(folder / "artifacts/train/test.parquet", frame(4, soft))
    tokenizer = plain_tokenizer()
    small_model(tokenizer).save_pretrained(folder / "artifacts/raw/models/base")
    tokenizer.save_pretrained(folder / "artifacts/raw/models/base")
    params = yaml.safe_load((root / "params.yaml").read_text())
    params["train"] = settings(**{"epochs": 6.0, "save_every": 3, **changed}).model_dump()
    (folder / "params.yaml").write_text(yaml.safe_dump(params))
    (folder / "dvc.yaml").write_text("stages: {}\n")
    return folder


def settings(**changed: Any) -> Train:
    values: dict[str, Any] = {
        "dtype": "float32",
        "learning_rate": 1e-3,
        "schedule": "cosine",
        "warmup_ratio": 0.1,
        "epochs": 2.0,
        "steps": 0,
        "batch_samples": 12,
        "token_budget": 4096,
        "max_grad_norm": 1.0,
        "weight_decay": 0.0,
        "gradient_checkpointing": False,
        "weighting": "sample",
        "records_per_tree": 0,
        "soft_labels": False,
        "lora": Lora(rank=0, alpha=8, base_dtype="float32", targets=["q_proj", "v_proj"]),
        "launch": "",
        "save_every": 2,
        "checkpoint_gib": 0.0,
        "seed": 1,
    }
    return Train(**{**values, **changed})


def small_setup() -> tuple[Any, Prompter, list[Example]]:
    """The same untrained model, prompter and six examples in every call."""
    tokenizer = plain_tokenizer()
    prompter = Prompter(tokenizer, VARIANTS["full"])
    model = small_model(tokenizer)
    use_trees(model)
    return model, prompter, read_examples(frame(6), prompter, 4096)


def published_samples(tokenizer: Any, prompter: Prompter, table: pl.DataFrame) -> Iterator[tuple[list[int], list[int]]]:
    """Input ids and labels of the published samples, one per pass: labels are at the masked tokens."""
    for row in table.iter_rows(named=True):
        for b in row["branches"]:
            query = Query(b["id"], row["problem"], tuple(row["steps"][: b["step_index"]]), b["step"])
            gold = [prompts.GOOD if positive else prompts.BAD for positive in gold_labels(b, prompter.labels)]
            for step in prompter.passes:
                tokens = gold[: step.asked[-1] + 1]
                masked = [prompts.MASK if i in step.asked else token for i, token in enumerate(tokens)]
                inputs = separate_prompt(tokenizer, prompter, query, masked)
                wanted = separate_prompt(tokenizer, prompter, query, tokens)
                labels = [w if w != i else IGNORED for i, w in zip(inputs, wanted, strict=True)]
                assert sum(label != IGNORED for label in labels) == len(step.asked)
                yield inputs, labels
