"""The program that test_speed starts in a separate process: the time and peak memory of one optimiser step.

Run: python -m tests.training.train_cost WAY KIND FILE COUNT BUDGET VOCABULARY SIZE

WAY is published, trees or checkpointed. KIND is alternatives (PRM800K trees with every rated completion) or one
(ProcessBench solutions, each step once).
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import polars as pl
import torch
from torch.nn.functional import cross_entropy

from pathfinder.core.prompts import VARIANTS
from pathfinder.core.records import TREES
from pathfinder.models import needs
from pathfinder.models.architectures import shape_of
from pathfinder.training.examples import Example, read_examples
from pathfinder.training.objective import batches, summed_loss
from pathfinder.tree.attention import use_trees
from pathfinder.tree.passes import Prompter
from tests.support.models import plain_tokenizer, sized_model
from tests.support.training import IGNORED, branch, published_samples, settings

_BATCH = 2
"""Samples per device and pass in the published configuration."""


def rated_trees(path: Path, count: int) -> pl.DataFrame:
    """PRM800K lines with every rated completion. The rating is used for all three labels."""
    rows = []
    with path.open(encoding="utf-8") as lines:
        for number in range(count):
            line = json.loads(next(lines))
            steps: list[str] = []
            branches: list[dict[str, Any]] = []
            for index, step in enumerate(line["label"]["steps"]):
                for completion in step["completions"]:
                    positive = int((completion["rating"] or 0) >= 0)
                    branches.append(branch(f"{number}-{len(branches)}", index, completion["text"], *[positive] * 3))
                chosen = step["chosen_completion"]
                steps.append(step["completions"][chosen if chosen is not None else 0]["text"])
            rows.append(tree(number, line["question"]["problem"], steps, branches))
    return pl.DataFrame(rows, schema=TREES)


def solutions(path: Path, count: int) -> pl.DataFrame:
    """ProcessBench solutions with every step once: correct before the first incorrect step."""
    rows = []
    for number, item in enumerate(json.loads(path.read_text(encoding="utf-8"))[:count]):
        wrong = item["label"] if item["label"] >= 0 else len(item["steps"])
        branches = [branch(f"{number}-{i}", i, step, *[int(i < wrong)] * 3) for i, step in enumerate(item["steps"])]
        rows.append(tree(number, item["problem"], item["steps"], branches))
    return pl.DataFrame(rows, schema=TREES)


def tree(number: int, problem: str, steps: list[str], branches: list[dict[str, Any]]) -> dict[str, Any]:
    names = {"tree_id": str(number), "problem_id": str(number), "source": "real"}
    return {**names, "problem": problem, "steps": steps, "branches": branches}


def published_step(model: Any, tokenizer: Any, prompter: Prompter, table: pl.DataFrame) -> int:
    """One AdamW step on padded batches of two with logits at every position. Returns the number of padded tokens."""
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    samples = list(published_samples(tokenizer, prompter, table))
    total = sum(label != IGNORED for _, labels in samples for label in labels)
    tokens = 0
    for start in range(0, len(samples), _BATCH):
        batch = samples[start : start + _BATCH]
        width = max(len(ids) for ids, _ in batch)
        ids = torch.tensor([i + [tokenizer.pad_token_id] * (width - len(i)) for i, _ in batch])
        labels = torch.tensor([w + [IGNORED] * (width - len(w)) for _, w in batch])
        mask = torch.tensor([[1] * len(i) + [0] * (width - len(i)) for i, _ in batch])
        logits = model(input_ids=ids, attention_mask=mask).logits.float()
        shifted = logits[:, :-1].flatten(0, 1)
        loss = cross_entropy(shifted, labels[:, 1:].flatten(), ignore_index=IGNORED, reduction="sum")
        (loss / total).backward()  # type: ignore[no-untyped-call]
        tokens += ids.numel()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimiser.step()
    return tokens


def tree_step(model: Any, prompter: Prompter, examples: list[Example], budget: int) -> None:
    """The same step on trees, as in the trainer."""
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    total = float(sum(example.targets.weights.sum() for example in examples))
    for batch, targets in batches(examples, budget):
        loss, _ = summed_loss(model, batch.to("cpu", model.dtype), targets, prompter.ids)
        (loss / total).backward()  # type: ignore[no-untyped-call]
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimiser.step()


def main(way: str, kind: str, file: str, count: int, budget: int, vocabulary: int, size: str) -> dict[str, float]:
    torch.set_num_threads(1)
    table = (rated_trees if kind == "alternatives" else solutions)(Path(file), count)
    texts = [*table["problem"].to_list(), *(step for steps in table["steps"].to_list() for step in steps)]
    tokenizer = plain_tokenizer(texts, 2000)
    prompter = Prompter(tokenizer, VARIANTS["full"])
    warm = table.head(1).with_columns(pl.col("branches").list.head(2))
    model = sized_model(tokenizer, size, vocabulary)
    out: dict[str, float] = {}
    chosen = settings(
        token_budget=budget, batch_samples=10**6, epochs=1.0, gradient_checkpointing=way == "checkpointed"
    )

    def work(part: pl.DataFrame) -> float:
        if way == "published":
            return float(published_step(model, tokenizer, prompter, part))
        examples = read_examples(part, prompter, budget)
        out["records"] = sum(example.records for example in examples)
        passes = batches(examples, budget)
        out["longest_pass"] = max(batch.input_ids.numel() for batch, _ in passes)
        out["tokens_as_samples"] = sum(example.sample_tokens for example in examples)
        tree_step(model, prompter, examples, budget)
        return float(sum(len(example.tree) for example in examples))

    if way != "published":
        use_trees(model)
        model.train()
    if way == "checkpointed":
        model.activation_checkpointing_enable({"use_reentrant": False})
    work(warm)
    Path("/proc/self/clear_refs").write_text("5")  # reset the peak
    out["before"] = status("VmRSS")
    start = time.process_time()
    out["tokens"] = work(table)
    out["seconds"] = time.process_time() - start
    out["peak"] = status("VmHWM")
    shape = shape_of(model.config.to_dict(), "tiny")
    filled = chosen.model_copy(update={"token_budget": int(out.get("longest_pass", budget))})
    out["estimate"] = needs.train_need(shape, filled, "cpu").total
    return out


def status(key: str) -> float:
    """The bytes in one line of this process's status."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024.0 * next(int(line.split()[1]) for line in lines if line.startswith(key + ":"))


if __name__ == "__main__":
    way, kind, file, count, budget, vocabulary, size = sys.argv[1:]
    print(json.dumps(main(way, kind, file, int(count), int(budget), int(vocabulary), size)))
