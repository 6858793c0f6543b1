"""The leak that the paper's own sources have: PRMBench and MATH-500 problems stand in PRM800K."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from stages.core.benchmarks import read_prmbench, read_search
from stages.core.io import read_jsonl
from stages.core.overlap import BenchmarkText, NearIndex, problem_hits


def test_prm800k_holds_most_problems_of_prmbench_s_phase_one(mirror: Path) -> None:
    rows = read_jsonl(mirror / "prm800k" / "phase1_train.jsonl")
    problems = {f"line-{number}": row["question"]["problem"] for number, row in rows}
    assert len(problems) > 900
    typed = [item for item in read_prmbench(mirror / "prmbench").items if "p1" in item.idx][:400]
    items = [BenchmarkText("prmbench", item.idx, item.problem) for item in typed]
    math = read_search(mirror / "search", ["math"]).items
    items += [BenchmarkText("math500", problem.id, problem.problem) for problem in math]
    hits = problem_hits(NearIndex(problems, 0.8), items)
    held = Counter(name for name, _ in {(hit.benchmark, hit.benchmark_id) for hit in hits})
    assert len(typed) == 400
    assert held["prmbench"] > 200
    assert held["math500"] == 1, "phase 1 train was kept apart from MATH-500 but for one problem with another number"
    assert {hit.kind for hit in hits if hit.benchmark == "math500"} == {"near"}
    assert all(hit.similarity >= 0.8 for hit in hits)
