"""Trees compared with separate prompts on real ProcessBench and PRMBench problems, in three precisions."""

from __future__ import annotations

import itertools
import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

from pathfinder.core.prompts import VARIANTS
from pathfinder.tree.attention import read_logits, use_trees
from pathfinder.tree.layout import Backend, batch_trees
from pathfinder.tree.passes import Prompter, Query
from tests.support.models import (
    plain_tokenizer,
    queries_of,
    separate_logits,
    small_model,
)

Logits = tuple[torch.Tensor, torch.Tensor]
"""Logits of trees and of separate prompts, each (readings, vocabulary)."""


@cache
def real_groups(mirror: Path) -> list[list[Query]]:
    """A problem of two ProcessBench subsets, and both solutions of a PRMBench item in one tree."""
    groups = []
    for subset in ("gsm8k", "math"):
        rows = json.loads((mirror / "processbench" / f"{subset}.json").read_text())[:1]
        groups += [queries_of(row["problem"], row["steps"][:4]) for row in rows]
    for path in sorted((mirror / "prmbench").glob("*.jsonl"))[:1]:
        item = json.loads(path.read_text(encoding="utf-8").split("\n")[0])
        question = item["modified_question"]
        groups.append([
            *queries_of(question, item["original_process"][:2]),
            *queries_of(question, item["modified_process"][:2]),
        ])  # fmt: skip
    return groups


def both_ways(model: Any, tokenizer: Any, prompter: Prompter, groups: list[list[Query]], backend: Backend) -> Logits:
    built = [prompter.tree(group) for group in groups]
    want = []
    for group, (_, readings) in zip(groups, built, strict=True):
        for number, mine in itertools.groupby(readings, key=lambda reading: reading.query):
            for given, members in itertools.groupby(mine, key=lambda reading: reading.given):
                asked = [reading.mark for reading in members]
                want.append(separate_logits(model, tokenizer, prompter, group[number], given, asked))
    use_trees(model)
    got = read_logits(model, batch_trees([tree for tree, _ in built], backend).to("cpu", model.dtype))
    return got, torch.cat(want)


@pytest.mark.parametrize(("backend", "some"), [("cascade", slice(None)), ("flex", slice(1, 3))])
@pytest.mark.usefixtures("exact_norms")
@torch.no_grad()
def test_double_precision_agrees_to_1e_12(mirror: Path, backend: Backend, some: slice) -> None:
    tokenizer = plain_tokenizer()
    prompter = Prompter(tokenizer, VARIANTS["full"])
    groups = real_groups(mirror)[some]
    got, want = both_ways(small_model(tokenizer, torch.float64), tokenizer, prompter, groups, backend)
    assert len(want) == 6 * sum(len(group) for group in groups)
    assert float((got - want).abs().max()) < 1e-12


@pytest.mark.parametrize("variant", list(VARIANTS))
@torch.no_grad()
def test_single_precision_flips_no_decision(mirror: Path, variant: str) -> None:
    tokenizer = plain_tokenizer()
    prompter = Prompter(tokenizer, VARIANTS[variant])
    got, want = both_ways(small_model(tokenizer), tokenizer, prompter, real_groups(mirror), "cascade")
    assert float((got - want).abs().max()) < 1e-5
    good, bad = prompter.ids.good, prompter.ids.bad
    assert ((got[:, good] >= got[:, bad]) == (want[:, good] >= want[:, bad])).all()


@torch.no_grad()
def test_half_precision_is_no_further_off_than_the_published_way(mirror: Path) -> None:
    tokenizer = plain_tokenizer()
    prompter = Prompter(tokenizer, VARIANTS["full"])
    groups = real_groups(mirror)
    _, exact = both_ways(small_model(tokenizer, torch.float64), tokenizer, prompter, groups, "cascade")
    rough = small_model(tokenizer).to(torch.bfloat16)
    got, want = both_ways(rough, tokenizer, prompter, groups, "cascade")
    mine, published = (float((x.double() - exact).square().mean().sqrt()) for x in (got, want))
    assert published > 1e-3, "bfloat16 rounds"
    assert mine < 1.1 * published
