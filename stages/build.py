"""Make the training set: one tree a trajectory, split by problem, its overlap with every benchmark reported.

Reads   artifacts/steps, artifacts/clean, artifacts/raw/{processbench,prmbench,search}; params: build, search.sets
Writes  artifacts/train/{train,test}.parquet, artifacts/overlap/{overlap,steps,removed}.parquet,
        metrics/build.json
Run     python -m stages.build

A problem and everything near it falls on one side of the split (paper section 3.3; the published script splits over
samples, so that both sides share problems). Counts are records.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import polars as pl

from pathfinder.benchmarks.readers import read_prmbench, read_prmbench_originals, read_processbench, read_search
from pathfinder.core.io import DataError, read_json, read_parquet, write_json, write_parquet
from pathfinder.core.mixes import HUMAN, draw, records_of, take
from pathfinder.core.params import Build, load_params
from pathfinder.core.progress import Progress
from pathfinder.core.records import CLEAN, STEPS, TRAJECTORIES, TREES
from pathfinder.data.overlap import (
    BenchmarkText,
    Figures,
    Hit,
    NearIndex,
    StepIndex,
    StepMatch,
    best_of,
    counts,
    problem_figures,
    problem_hits,
    step_figures,
)
from pathfinder.provenance.stage import stage

STEPS_FOLDER = Path("artifacts/steps")
CLEAN_FILE = Path("artifacts/clean/clean.parquet")
RAW = Path("artifacts/raw")
TRAIN = Path("artifacts/train")
OVERLAP = Path("artifacts/overlap")
METRICS = Path("metrics/build.json")
HITS: dict[str, Any] = {
    "problem_id": pl.String(),
    "benchmark": pl.String(),
    "benchmark_id": pl.String(),
    "kind": pl.String(),
    "similarity": pl.Float64(),
}
STEP_HITS: dict[str, Any] = {
    "step_digest": pl.String(),  # of the training step: first 16 hexadecimal digits of sha256(normalise(step))
    "benchmark": pl.String(),
    "benchmark_id": pl.String(),
    "step_index": pl.Int64(),  # of the benchmark's step, from 0
    "kind": pl.String(),
    "similarity": pl.Float64(),
}
REMOVED: dict[str, Any] = {
    "tree_id": pl.String(),
    "problem_id": pl.String(),
    "source": pl.String(),
    "benchmark": pl.String(),
    "records": pl.Int64(),
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


def benchmark_texts(sets: Sequence[str]) -> list[BenchmarkText]:
    """Every item of ProcessBench, PRMBench (as published, and the solutions it was made from) and the search sets."""
    items = [
        BenchmarkText(f"processbench/{item.subset}", item.id, item.problem, item.steps)
        for item in read_processbench(RAW / "processbench").items
    ]
    prmbench = {
        "prmbench": read_prmbench(RAW / "prmbench").items,
        "prmbench-original": read_prmbench_originals(RAW / "prmbench"),
    }
    for name, rows in prmbench.items():
        items += [BenchmarkText(f"{name}/{item.classification}", item.idx, item.problem, item.steps) for item in rows]
    return items + [BenchmarkText(f"search/{p.set}", p.id, p.problem) for p in read_search(RAW / "search", sets).items]


def step_texts(trees: pl.DataFrame) -> pl.Series:
    """Every step that stands in the trees, followed or rated, each once."""
    followed, rated = trees["steps"].explode().drop_nulls(), trees["branches"].explode().drop_nulls()
    return pl.concat([followed, rated.struct.field("step").rename("steps")]).unique(maintain_order=True)


Found = Mapping[str, Mapping[int, StepMatch]]
"""Training texts that are near or equal to benchmark steps: these steps."""


def match_steps(trees: pl.DataFrame, items: Sequence[BenchmarkText], threshold: float) -> tuple[StepIndex, Found]:
    """The benchmarks' steps, and which of them the trees hold."""
    index = StepIndex(items, threshold)
    return index, index.match(step_texts(trees))


Part = tuple[str, bool]
"""A part of the training data: its source, and whether it stays in the training set."""


def step_matches(trees: pl.DataFrame, kept: pl.Series, found: Found) -> dict[Part, dict[int, StepMatch]]:
    """For each part of the trees: the benchmark steps that it holds. ``kept`` are the ids of the trees that stay."""
    parts = trees.with_columns(kept=pl.col("tree_id").is_in(kept.implode()))
    return {
        (str(source), bool(stays)): best_of(found[text] for text in step_texts(rows) if text in found)
        for (source, stays), rows in parts.partition_by("source", "kept", as_dict=True, maintain_order=True).items()
    }


def overlap_figures(
    items: Sequence[BenchmarkText],
    trees: pl.DataFrame,
    chosen: pl.DataFrame,
    hits: Sequence[Hit],
    index: StepIndex,
    parts: Mapping[Part, Mapping[int, StepMatch]],
) -> dict[str, Any]:
    """For each benchmark: its items and steps, how many of them all the trees hold, each source, and the chosen ones.

    An item or a step that is both exact and near counts as exact.
    """

    def figures(frame: pl.DataFrame, chosen_parts: Iterable[Mapping[int, StepMatch]]) -> tuple[Figures, Figures]:
        problems = set(frame["problem_id"])
        found = problem_figures(hit for hit in hits if hit.problem_id in problems)
        return found, step_figures(index, best_of(chosen_parts))

    sources = sorted(set(trees["source"]))
    whole = figures(trees, parts.values())
    stays = figures(chosen, (found for (_, kept), found in parts.items() if kept))
    each = {
        name: figures(trees.filter(source=name), (found for (source, _), found in parts.items() if source == name))
        for name in sources
    }
    sizes = Counter(item.benchmark for item in items)
    steps = Counter(item.benchmark for item, _, _ in index.occurrences)
    short = Counter(item.benchmark for item, _, number in index.occurrences if index.is_short[number])
    return {
        name: {"items": sizes[name], "steps": steps[name], "short_steps": short[name]}
        | counts(*whole, name)
        | {"kept": counts(*stays, name), "sources": {source: counts(*each[source], name) for source in sources}}
        for name in sizes
    }


def step_rows(index: StepIndex, matches: Mapping[int, StepMatch]) -> pl.DataFrame:
    """Each benchmark step that the training data hold, with its best match."""
    found = [(item, place, match) for item, place, number in index.occurrences if (match := matches.get(number))]
    rows = [(m.digest, item.benchmark, item.id, place, m.kind, m.similarity) for item, place, m in found]
    return pl.DataFrame(rows, schema=STEP_HITS, orient="row")


def removed_rows(trees: pl.DataFrame, hits: Sequence[Hit]) -> pl.DataFrame:
    """The trees whose problem a benchmark holds, one row a benchmark."""
    pairs = sorted({(hit.problem_id, hit.benchmark) for hit in hits})
    held = pl.DataFrame(pairs, schema={"problem_id": pl.String(), "benchmark": pl.String()}, orient="row")
    rows = trees.with_columns(records=pl.col("branches").list.len().cast(pl.Int64))
    return rows.join(held, on="problem_id", maintain_order="left_right").select(*REMOVED)


def removed_figures(removed: pl.DataFrame) -> dict[str, dict[str, int]]:
    """Problems and records removed for each benchmark; one that several hold counts for each."""
    rows = removed.group_by("benchmark").agg(pl.col("problem_id").n_unique(), pl.col("records").sum()).sort("benchmark")
    return {name: {"problems": problems, "records": records} for name, problems, records in rows.iter_rows()}


def select(trees: pl.DataFrame, params: Build, hits: Sequence[Hit]) -> tuple[pl.DataFrame, dict[str, pl.DataFrame]]:
    """The trees that stay, and those dropped by reason."""
    dropped: dict[str, pl.DataFrame] = {}

    def note(reason: str, kept: pl.DataFrame, before: pl.DataFrame) -> pl.DataFrame:
        if len(kept) < len(before):
            dropped[reason] = before.filter(~pl.col("tree_id").is_in(kept["tree_id"].implode()))
        return kept

    if params.remove_overlap:
        held = sorted({hit.problem_id for hit in hits})
        trees = note("overlap", trees.filter(~pl.col("problem_id").is_in(held)), trees)
    human = trees.filter(HUMAN)
    if params.prm800k_records:
        human = take(human, params.prm800k_records, params.seed)
    mixed = pl.concat([human, take(trees.filter(~HUMAN), params.mistral_records, params.seed)])
    trees = note("mix", mixed, trees)
    if params.max_records:
        trees = note("limit", take(trees, params.max_records, params.seed), trees)
    return trees, dropped


def accounting(trees: pl.DataFrame, chosen: pl.DataFrame, dropped: Mapping[str, pl.DataFrame]) -> dict[str, Any]:
    """Records read, kept and dropped by reason."""
    losses = {reason: records_of(rows) for reason, rows in dropped.items()}
    return {
        "read": records_of(trees),
        "kept": records_of(chosen),
        "dropped": {reason: records for reason, records in losses.items() if records},
        "quarantined": {},
    }


@stage
def main() -> None:
    """Run the stage."""
    every = load_params()
    params, sets = every.build, every.search.sets
    with Progress("build", 5, "parts") as progress, ThreadPoolExecutor(1) as beside:
        if not read_json(Path("metrics/validate.json"))["success"]:
            raise DataError("metrics/validate.json: the data did not pass validation; mend it before building on it")
        trees = read_trees()
        progress.advance(note="problems that the benchmarks hold")
        problems = dict(zip(trees["problem_id"], trees["problem"], strict=True))
        items = benchmark_texts(sets)
        # Steps are compared outside the interpreter's lock, problems inside it: one beside the other.
        steps = beside.submit(match_steps, trees, items, params.near_duplicate_jaccard)
        near = NearIndex(problems, params.near_duplicate_jaccard)
        hits = problem_hits(near, items)
        progress.advance(note="split")
        chosen, dropped = select(trees, params, hits)
        group = near.groups(sorted(set(chosen["problem_id"])))
        is_test = pl.Series(
            [draw(params.seed, group[key]) < params.test_share for key in chosen["problem_id"]], dtype=pl.Boolean
        )
        train, test = chosen.filter(~is_test), chosen.filter(is_test)
        if not len(train) or not len(test):
            raise DataError(
                f"the split leaves {len(train)} training and {len(test)} test trees; change build.test_share"
            )
        progress.advance(note="steps that the benchmarks hold")
        index, found = steps.result()
        parts = step_matches(trees, chosen["tree_id"], found)
        removed = removed_rows(dropped.get("overlap", trees.clear()), hits)
        progress.advance(note="write")
        write_parquet(TRAIN / "train.parquet", train)
        write_parquet(TRAIN / "test.parquet", test)
        write_parquet(OVERLAP / "overlap.parquet", pl.DataFrame([_row(h) for h in hits], schema=HITS, orient="row"))
        write_parquet(OVERLAP / "steps.parquet", step_rows(index, best_of(parts.values())))
        write_parquet(OVERLAP / "removed.parquet", removed)
        write_json(
            METRICS,
            accounting(trees, chosen, dropped)
            | {
                "sources": {
                    name: accounting(trees.filter(source=name), chosen.filter(source=name), _of(name, dropped))
                    for name in sorted(set(trees["source"]))
                },
                "train": _size(train),
                "test": _size(test),
                "near_duplicate_problems": len(group) - len(set(group.values())),
                "overlap": overlap_figures(items, trees, chosen, hits, index, parts),
                "removed": removed_figures(removed),
            },
        )
        progress.advance()


def _of(source: str, frames: Mapping[str, pl.DataFrame]) -> dict[str, pl.DataFrame]:
    return {reason: frame.filter(source=source) for reason, frame in frames.items()}


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
