"""Rows as TRL's PRMTrainer makes them of stepwise supervision, and the loss of its model on a batch of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch

from tests.support.training import IGNORED


def tokenized(tokenizer: Any, problem: str, steps: Sequence[str], separator: str = "\n") -> tuple[list[int], list[int]]:
    """The ids of ``tokenize_row``, and the places of the labels in them."""
    ids = tokenizer(problem, add_special_tokens=False)["input_ids"]
    ids = ids if tokenizer.bos_token_id is None else [tokenizer.bos_token_id, *ids]
    ends = []
    for step in steps:
        ids = ids + tokenizer(step, add_special_tokens=False)["input_ids"]
        ids += tokenizer.encode(separator, add_special_tokens=False)
        ends.append(len(ids) - 1)
    return ids, ends


def padded(rows: Iterable[Mapping[str, Any]], tokenizer: Any, separator: str = "\n") -> dict[str, torch.Tensor]:
    """A batch of rows, padded; a labelled step that several rows share has its label only in the first."""
    seen, made = set[Any](), []
    for row in rows:
        ids, ends = tokenized(tokenizer, row["prompt"], row["completions"], separator)
        labels = [IGNORED] * len(ids)
        for place, (end, label) in enumerate(zip(ends, row["labels"], strict=True), start=1):
            key = row["prompt"], tuple(row["completions"][:place]), label
            labels[end] = IGNORED if label is None or key in seen else int(label)
            seen.add(key)
        made.append((ids, labels))
    width = max(len(ids) for ids, _ in made)
    return {
        "input_ids": torch.tensor([ids + [0] * (width - len(ids)) for ids, _ in made]),
        "attention_mask": torch.tensor([[1] * len(ids) + [0] * (width - len(ids)) for ids, _ in made]),
        "labels": torch.tensor([labels + [IGNORED] * (width - len(labels)) for _, labels in made]),
    }
