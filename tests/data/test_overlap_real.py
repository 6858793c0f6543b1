"""The leak that the paper's own sources have: PRMBench was made from solutions that PRM800K holds.

    pytest -s tests/data/test_overlap_real.py

prints the table of docs/contamination.md.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest

from pathfinder.benchmarks.readers import read_prmbench, read_prmbench_originals, read_processbench, read_search
from pathfinder.core.io import read_jsonl
from pathfinder.data.overlap import (
    BenchmarkText,
    NearIndex,
    StepIndex,
    best_of,
    counts,
    problem_figures,
    problem_hits,
    step_figures,
)


@pytest.fixture(scope="module")
def items(mirror: Path) -> list[BenchmarkText]:
    typed = {
        "prmbench": read_prmbench(mirror / "prmbench").items,
        "prmbench-original": read_prmbench_originals(mirror / "prmbench"),
    }
    found = [
        BenchmarkText(f"{name}/{item.classification}", item.idx, item.problem, item.steps)
        for name, rows in typed.items()
        for item in rows
    ]
    for row in read_processbench(mirror / "processbench").items:
        found.append(BenchmarkText(f"processbench/{row.subset}", row.id, row.problem, row.steps))
    return found + [
        BenchmarkText("search/math", p.id, p.problem) for p in read_search(mirror / "search", ["math"]).items
    ]


def steps_of(path: Path) -> Iterator[str]:
    for _, row in read_jsonl(path):
        for step in row["label"]["steps"]:
            yield from (completion["text"] for completion in step["completions"] or ())
            if step["human_completion"]:
                yield step["human_completion"]["text"]


def test_prm800k_holds_most_problems_and_steps_of_prmbench(mirror: Path, items: list[BenchmarkText]) -> None:
    file = mirror / "prm800k" / "phase1_train.jsonl"
    problems = {f"line-{number}": row["question"]["problem"] for number, row in read_jsonl(file)}
    hits = problem_hits(NearIndex(problems, 0.8), items)
    index = StepIndex(items, 0.8)
    matches = best_of(index.match(pl.Series(list(steps_of(file)), dtype=pl.String)).values())
    steps = step_figures(index, matches)
    sizes = Counter(item.benchmark for item in items)
    lengths = Counter(item.benchmark for item, _, _ in index.occurrences)
    table = {name: counts(problem_figures(hits), steps, name) for name in sizes}
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
    print(f"{len(typed):,} items of PRMBench have a problem of PRM800K; {share:.1%} of the steps they were made from")
    print(f"({originals[True]:,} of {originals.total():,}) stand there word for word")
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
    assert table["search/math"]["exact_problems"] == 0, "phase 1 train was kept apart from MATH-500"
    assert table["search/math"]["near_problems"] == 1, "one problem with another number"
