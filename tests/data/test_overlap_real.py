"""The overlap in the paper's own sources: PRMBench was made from solutions of PRM800K.

    pytest -s tests/data/test_overlap_real.py

prints the overlap by class (docs/data.md, Text shared with benchmarks).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest

from ground.io import read_jsonl
from pathfinder.data.overlap import BenchmarkText, ProblemIndex, StepIndex, best_of, overlap_counts, problem_hits
from pathfinder.data.trainset import benchmark_texts


@pytest.fixture(scope="module")
def items(mirror: Path) -> list[BenchmarkText]:
    return benchmark_texts(mirror, ["math"])


def steps_of(path: Path) -> Iterator[str]:
    for _, row in read_jsonl(path):
        for step in row["label"]["steps"]:
            yield from (completion["text"] for completion in step["completions"] or ())
            if step["human_completion"]:
                yield step["human_completion"]["text"]


def test_prm800k_contains_most_problems_and_steps_of_prmbench(mirror: Path, items: list[BenchmarkText]) -> None:
    file = mirror / "prm800k" / "phase1_train.jsonl"
    problems = {f"line-{number}": row["question"]["problem"] for number, row in read_jsonl(file)}
    hits = problem_hits(ProblemIndex(problems, 0.8), items)
    index = StepIndex(items, 0.8)
    matches = best_of(index.match(pl.Series(list(steps_of(file)), dtype=pl.String)).values())
    sizes = Counter(item.benchmark for item in items)
    lengths = Counter(item.benchmark for item, _, _ in index.occurrences)
    table = overlap_counts(hits, index, matches)
    print("\n| benchmark | items | same problem | near | steps | same | of these short | near |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    for name, row in table.items():
        problem, step = list(row.values())[:2], list(row.values())[2:]
        print("|", " | ".join([name, *(f"{n:,}" for n in (sizes[name], *problem, lengths[name], *step))]), "|")
    held = {(hit.benchmark, hit.benchmark_id) for hit in hits if hit.kind == "exact"}
    originals = Counter(
        number in matches and matches[number].is_exact
        for item, _, number in index.occurrences
        if item.benchmark.startswith("prmbench-original/") and (item.benchmark, item.id) in held
    )
    typed = [(name, id) for name, id in held if name.startswith("prmbench/") and name != "prmbench/correct"]
    share = originals[True] / originals.total()
    print(f"{len(typed):,} PRMBench items have a problem of PRM800K, which also contains {share:.1%} of the steps")
    print(f"({originals[True]:,} of {originals.total():,}) that they were made from, word for word")
    assert len(typed) == 2273
    assert 0.7 < share < 0.95
    assert table["prmbench-original/redundency"] == {
        "exact_problems": 343,
        "near_problems": 43,
        "exact_steps": 5741,
        "exact_short_steps": 553,
        "near_steps": 293,
    }
    assert table["prmbench/circular"]["exact_steps"] == 1962
    assert table["search/math"]["exact_problems"] == 0, "phase 1 train excludes MATH-500"
    assert table["search/math"]["near_problems"] == 1, "one problem with a different number"
