"""Make the training set: one tree a trajectory, split by problem, its overlap with every benchmark reported.

Reads   artifacts/steps, artifacts/clean, artifacts/raw/{processbench,prmbench,search}; params: build, search.sets
Writes  artifacts/train/{train,test}.parquet, artifacts/overlap/overlap.parquet, metrics/build.json
Run     python -m stages.build

A problem and everything near it falls on one side of the split (paper section 3.3; the published script splits over
samples, so that both sides share problems). Counts are records.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl

from stages.core.benchmarks import read_prmbench, read_processbench, read_search
from stages.core.io import DataError, read_json, read_parquet, write_json, write_parquet
from stages.core.overlap import BenchmarkText, Hit, groups, problem_hits, shared_steps
from stages.core.params import Build, load_params
from stages.core.progress import Progress
from stages.core.records import CLEAN, STEPS, TRAJECTORIES, TREES
from stages.lineage.record import recorded

STEPS_FOLDER = Path("artifacts/steps")
CLEAN_FILE = Path("artifacts/clean/clean.parquet")
RAW = Path("artifacts/raw")
TRAIN = Path("artifacts/train")
OVERLAP = Path("artifacts/overlap/overlap.parquet")
METRICS = Path("metrics/build.json")
HITS: dict[str, Any] = {
    "problem_id": pl.String(),
    "benchmark": pl.String(),
    "benchmark_id": pl.String(),
    "kind": pl.String(),
    "similarity": pl.Float64(),
}


def read_trees() -> pl.DataFrame:
    """Clean records gathered by trajectory (``records.TREES``), in the trajectories' order."""
    trajectories = read_parquet(STEPS_FOLDER / "trajectories.parquet", TRAJECTORIES)
    steps = read_parquet(STEPS_FOLDER / "steps.parquet", STEPS)
    clean = read_parquet(CLEAN_FILE, CLEAN)
    records = clean.join(steps.drop("source"), on="id", how="inner", validate="1:1", maintain_order="left")
    if len(records) != len(clean):
        raise DataError(f"{CLEAN_FILE}: {len(clean) - len(records)} ids are not in the steps; re-run filter")
    branch = pl.struct("id", "step_index", "step", "math", "consistency", "correctness").alias("branches")
    branches = records.group_by("trajectory_id", maintain_order=True).agg(branch)
    trees = trajectories.join(branches, on="trajectory_id", how="inner", maintain_order="left")
    return trees.rename({"trajectory_id": "tree_id"}).select(*TREES)


def draw(seed: int, key: str) -> float:
    """A number in [0, 1) that depends on seed and key alone."""
    return int.from_bytes(hashlib.sha256(f"{seed}:{key}".encode()).digest()[:8], "big") / 2**64


def take(trees: pl.DataFrame, limit: int, seed: int) -> pl.DataFrame:
    """Whole trees in a seeded order until about ``limit`` records; their own order is kept."""
    size = trees["branches"].list.len()
    if size.sum() <= limit:
        return trees
    order = pl.Series([draw(seed, key) for key in trees["tree_id"]], dtype=pl.Float64).arg_sort()
    kept = order.filter((size.gather(order).cum_sum() <= limit).to_list())
    return trees[kept.sort()]


def records_of(trees: pl.DataFrame) -> int:
    """How many records the trees hold."""
    return int(trees["branches"].list.len().sum())


def benchmark_texts(sets: Sequence[str]) -> list[BenchmarkText]:
    """Every item of ProcessBench, PRMBench and the search ``sets``."""
    items = [
        BenchmarkText(f"processbench/{item.subset}", item.id, item.problem, item.steps)
        for item in read_processbench(RAW / "processbench").items
    ]
    items += [
        BenchmarkText(f"prmbench/{item.classification}", item.idx, item.problem, item.steps)
        for item in read_prmbench(RAW / "prmbench").items
    ]
    return items + [BenchmarkText(f"search/{p.set}", p.id, p.problem) for p in read_search(RAW / "search", sets).items]


def overlap_figures(hits: Sequence[Hit], items: Sequence[BenchmarkText], training: pl.DataFrame) -> dict[str, Any]:
    """For each benchmark: items, items whose problem is exact or near in the training data, steps and shared steps."""
    branches = training["branches"].explode().struct.field("step") if len(training) else pl.Series([], dtype=pl.String)
    steps = shared_steps([*training["steps"].explode().drop_nulls(), *branches.drop_nulls()], items)
    exact = {(hit.benchmark, hit.benchmark_id) for hit in hits if hit.kind == "exact"}
    near = {(hit.benchmark, hit.benchmark_id) for hit in hits} - exact
    sizes = Counter(item.benchmark for item in items)
    exact_counts, near_counts = (Counter(name for name, _ in found) for found in (exact, near))
    return {
        name: {
            "items": sizes[name],
            "exact_problems": exact_counts[name],
            "near_problems": near_counts[name],
            "steps": steps[name][0],
            "shared_steps": steps[name][1],
        }
        for name in sizes
    }


def select(trees: pl.DataFrame, params: Build, hits: Sequence[Hit]) -> tuple[pl.DataFrame, dict[str, int]]:
    """The trees that stay, and the records dropped by reason."""
    dropped: dict[str, int] = {}

    def note(reason: str, kept: pl.DataFrame, before: pl.DataFrame) -> pl.DataFrame:
        if lost := records_of(before) - records_of(kept):
            dropped[reason] = lost
        return kept

    if params.remove_overlap:
        held = sorted({hit.problem_id for hit in hits})
        trees = note("overlap", trees.filter(~pl.col("problem_id").is_in(held)), trees)
    human = pl.col("source") == "prm800k"
    mixed = pl.concat([trees.filter(human), take(trees.filter(~human), params.mistral_records, params.seed)])
    trees = note("mix", mixed, trees)
    if params.max_records:
        trees = note("limit", take(trees, params.max_records, params.seed), trees)
    return trees, dropped


def main(argv: Sequence[str] | None = None) -> None:
    """Run the stage."""
    every = load_params()
    params, sets = every.build, every.search.sets
    with recorded("build"), Progress("build", 4, "parts") as progress:
        if not read_json(Path("metrics/validate.json"))["success"]:
            raise DataError("metrics/validate.json: the data did not pass validation; mend it before building on it")
        trees = read_trees()
        progress.advance(note="overlap with the benchmarks")
        problems = dict(zip(trees["problem_id"], trees["problem"], strict=True))
        items = benchmark_texts(sets)
        hits = problem_hits(problems, items, params.near_duplicate_jaccard)
        progress.advance(note="split")
        chosen, dropped = select(trees, params, hits)
        group = groups({key: problems[key] for key in chosen["problem_id"]}, params.near_duplicate_jaccard)
        is_test = pl.Series(
            [draw(params.seed, group[key]) < params.test_share for key in chosen["problem_id"]], dtype=pl.Boolean
        )
        train, test = chosen.filter(~is_test), chosen.filter(is_test)
        if not len(train) or not len(test):
            raise DataError(
                f"the split leaves {len(train)} training and {len(test)} test trees; change build.test_share"
            )
        progress.advance(note="write")
        write_parquet(TRAIN / "train.parquet", train)
        write_parquet(TRAIN / "test.parquet", test)
        write_parquet(OVERLAP, pl.DataFrame([_row(hit) for hit in hits], schema=HITS, orient="row"))
        write_json(
            METRICS,
            {
                "read": records_of(trees),
                "kept": records_of(chosen),
                "dropped": dropped,
                "quarantined": {},
                "train": _size(train),
                "test": _size(test),
                "near_duplicate_problems": len(group) - len(set(group.values())),
                "overlap": overlap_figures(hits, items, chosen),
            },
        )
        progress.advance()


def _row(hit: Hit) -> tuple[str, str, str, str, float]:
    return hit.problem_id, hit.benchmark, hit.benchmark_id, hit.kind, hit.similarity


def _size(trees: pl.DataFrame) -> dict[str, Any]:
    by_source = {str(name): records_of(rows) for (name,), rows in trees.group_by("source", maintain_order=True)}
    return {
        "records": records_of(trees),
        "trees": len(trees),
        "problems": trees["problem_id"].n_unique(),
        "sources": by_source,
    }


if __name__ == "__main__":
    main()
