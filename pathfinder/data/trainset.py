"""The training set: trees of records, overlap with benchmarks, selection, split by problem, and decisions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from ground.io import DataError, read_parquet
from pathfinder.benchmarks.readers import read_prmbench, read_prmbench_originals, read_processbench, read_search
from pathfinder.core.mixes import IS_HUMAN, draw, records_of, take
from pathfinder.core.params import Build
from pathfinder.core.records import BRANCH, CLEAN, DECISIONS, STEPS, TRAJECTORIES, TREES, as_trained
from pathfinder.data.metrics import Overlap, Removed, Shared, Side
from pathfinder.data.overlap import BenchmarkText, ProblemHit, StepIndex, StepMatch, best_of, overlap_counts

_TEXT = pl.String()
PROBLEM_HITS: dict[str, Any] = {
    **dict.fromkeys(("problem_id", "benchmark", "benchmark_id", "kind"), _TEXT),
    "similarity": pl.Float64(),
}
STEP_HITS: dict[str, Any] = {
    "step_digest": _TEXT,  # of the training step: first 16 hexadecimal digits of sha256(normalise(step))
    "benchmark": _TEXT,
    "benchmark_id": _TEXT,
    "step_index": pl.Int64(),  # of the benchmark step, from 0
    "kind": _TEXT,
    "similarity": pl.Float64(),
}
REMOVED: dict[str, Any] = {
    **dict.fromkeys(("tree_id", "problem_id", "source", "benchmark"), _TEXT),
    "records": pl.Int64(),
}
_NOTHING = pl.lit(None, pl.String())
_LIMITS = pl.when(IS_HUMAN).then(pl.lit("build.prm800k_records")).otherwise(pl.lit("build.mistral_records"))
TextMatches = Mapping[str, Mapping[int, StepMatch]]
"""Training texts and the benchmark steps that they match."""
PartMatches = Mapping[tuple[str, bool], Mapping[int, StepMatch]]
"""Parts of the data, by source and by membership in the training set, and the benchmark steps that they match."""


def gather_trees(steps: Path, clean: Path, preset: str) -> pl.DataFrame:
    """The clean records by trajectory (``records.TREES``), in their order, with the texts for training.

    Raises ``DataError`` if a clean record is not among the steps.
    """
    tables = read_parquet(steps / "trajectories.parquet", TRAJECTORIES), read_parquet(steps / "steps.parquet", STEPS)
    trajectories, rated = as_trained(*tables, preset)
    kept = read_parquet(clean, CLEAN)
    records = kept.join(rated.drop("source"), on="id", how="inner", validate="1:1", maintain_order="left")
    if len(records) != len(kept):
        raise DataError(f"{clean}: {len(kept) - len(records)} ids are not in the steps; re-run filter")
    branches = records.group_by("trajectory_id", maintain_order=True).agg(branches=pl.struct(*BRANCH))
    trees = trajectories.join(branches, on="trajectory_id", how="inner", maintain_order="left")
    return trees.rename({"trajectory_id": "tree_id"}).select(*TREES)


def exclude(trees: pl.DataFrame, ids: pl.Series) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The trees without the records ``ids``, and the same trees with only these records; empty trees are left out."""
    if ids.is_empty():
        return trees, trees.clear()
    rest, branches = trees.drop("branches"), trees.select("tree_id", "branches").explode("branches").drop_nulls()
    is_excluded = pl.col("branches").struct.field("id").is_in(ids.implode())  # in a list, each tree would read all ids
    kept, left_out = (
        rest.join(branches.filter(wanted).group_by("tree_id").agg("branches"), on="tree_id", maintain_order="left")
        for wanted in (~is_excluded, is_excluded)
    )
    return kept.select(trees.columns), left_out.select(trees.columns)


def benchmark_texts(raw: Path, sets: Sequence[str]) -> list[BenchmarkText]:
    """Every item of ProcessBench, PRMBench (with the solutions it was made from) and the search sets."""
    processbench = read_processbench(raw / "processbench").items
    items = [BenchmarkText(f"processbench/{item.subset}", item.id, item.problem, item.steps) for item in processbench]
    modified, originals = read_prmbench(raw / "prmbench").items, read_prmbench_originals(raw / "prmbench")
    for name, rows in (("prmbench", modified), ("prmbench-original", originals)):
        items += [BenchmarkText(f"{name}/{item.classification}", item.idx, item.problem, item.steps) for item in rows]
    return items + [BenchmarkText(f"search/{p.set}", p.id, p.problem) for p in read_search(raw / "search", sets).items]


def step_texts(trees: pl.DataFrame) -> pl.Series:
    """The distinct steps of the trees, followed or rated."""
    followed, rated = trees["steps"].explode().drop_nulls(), trees["branches"].explode().drop_nulls()
    return pl.concat([followed, rated.struct.field("step").rename("steps")]).unique(maintain_order=True)


def part_matches(trees: pl.DataFrame, kept: pl.Series, matches: TextMatches) -> PartMatches:
    """The matches of each part of the trees; ``kept`` are the ids of the trees that stay in the training set."""
    parts = trees.with_columns(kept=pl.col("tree_id").is_in(kept.implode()))
    return {
        (str(source), bool(stays)): best_of(matches[text] for text in step_texts(rows) if text in matches)
        for (source, stays), rows in parts.partition_by("source", "kept", as_dict=True, maintain_order=True).items()
    }


def overlap_figures(
    trees: pl.DataFrame, chosen: pl.DataFrame, hits: Sequence[ProblemHit], index: StepIndex, parts: PartMatches
) -> dict[str, Overlap]:
    """For each benchmark, its items and steps, and their numbers in all trees, chosen trees and each source."""

    def counts(frame: pl.DataFrame, matches: Iterable[Mapping[int, StepMatch]]) -> dict[str, Shared]:
        problems = set(frame["problem_id"])
        found = overlap_counts((hit for hit in hits if hit.problem_id in problems), index, best_of(matches))
        return {name: Shared(**each) for name, each in found.items()}

    whole = counts(trees, parts.values())
    kept = counts(chosen, (found for (_, stays), found in parts.items() if stays))
    sources = {
        name: counts(trees.filter(source=name), (found for (source, _), found in parts.items() if source == name))
        for name in sorted(set(trees["source"]))
    }
    steps = Counter(item.benchmark for item, _, _ in index.occurrences)
    short = Counter(item.benchmark for item, _, number in index.occurrences if index.is_short[number])
    return {
        name: Overlap(
            **dict(whole[name]),
            items=items,
            steps=steps[name],
            short_steps=short[name],
            kept=kept[name],
            sources={source: found[name] for source, found in sources.items()},
        )
        for name, items in index.benchmarks.items()
    }


def step_rows(index: StepIndex, parts: PartMatches) -> pl.DataFrame:
    """Every benchmark step that the trees contain, with its best match (``STEP_HITS``)."""
    best = best_of(parts.values())
    found = [(item, place, match) for item, place, number in index.occurrences if (match := best.get(number))]
    rows = [(m.digest, item.benchmark, item.id, place, m.kind, m.similarity) for item, place, m in found]
    return pl.DataFrame(rows, schema=STEP_HITS, orient="row")


def removed_rows(trees: pl.DataFrame, hits: Sequence[ProblemHit]) -> pl.DataFrame:
    """The trees whose problem a benchmark contains, one row per tree and benchmark (``REMOVED``)."""
    pairs = sorted({(hit.problem_id, hit.benchmark) for hit in hits})
    held = pl.DataFrame(pairs, schema=dict.fromkeys(("problem_id", "benchmark"), _TEXT), orient="row")
    rows = trees.with_columns(records=pl.col("branches").list.len().cast(pl.Int64))
    return rows.join(held, on="problem_id", maintain_order="left_right").select(*REMOVED)


def removed_figures(removed: pl.DataFrame) -> dict[str, Removed]:
    """Problems and records removed per benchmark; a problem in several benchmarks counts for each."""
    rows = removed.group_by("benchmark").agg(pl.col("problem_id").n_unique(), pl.col("records").sum()).sort("benchmark")
    return {name: Removed(problems=problems, records=records) for name, problems, records in rows.iter_rows()}


def select(
    trees: pl.DataFrame, params: Build, hits: Sequence[ProblemHit]
) -> tuple[pl.DataFrame, dict[str, pl.DataFrame]]:
    """The trees of the training set, and the dropped trees by reason."""
    dropped: dict[str, pl.DataFrame] = {}

    def note(reason: str, kept: pl.DataFrame, before: pl.DataFrame) -> pl.DataFrame:
        if len(kept) < len(before):
            dropped[reason] = before.filter(~pl.col("tree_id").is_in(kept["tree_id"].implode()))
        return kept

    if params.remove_overlap:
        held = sorted({hit.problem_id for hit in hits})
        trees = note("overlap", trees.filter(~pl.col("problem_id").is_in(held)), trees)
    human = trees.filter(IS_HUMAN)
    if params.prm800k_records:
        human = take(human, params.prm800k_records, params.seed)
    mixed = pl.concat([human, take(trees.filter(~IS_HUMAN), params.mistral_records, params.seed)])
    trees = note("mix", mixed, trees)
    if params.max_records:
        trees = note("limit", take(trees, params.max_records, params.seed), trees)
    return trees, dropped


def split(trees: pl.DataFrame, groups: Mapping[str, str], params: Build) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Training and test trees; all problems of a group are on the same side.

    Raises ``DataError`` if a side is empty.
    """
    draws = [draw(params.seed, groups[key]) < params.test_share for key in trees["problem_id"]]
    is_test = pl.Series(draws, dtype=pl.Boolean)
    train, test = trees.filter(~is_test), trees.filter(is_test)
    if not len(train) or not len(test):
        raise DataError(f"the split leaves {len(train)} training and {len(test)} test trees; change build.test_share")
    return train, test


def sizes(trees: pl.DataFrame) -> Side:
    """Records, trees and problems, and records by source."""
    return Side(
        records=records_of(trees),
        trees=len(trees),
        problems=trees["problem_id"].n_unique(),
        sources={str(name): records_of(rows) for (name,), rows in trees.group_by("source", maintain_order=True)},
    )


def decisions(
    trees: pl.DataFrame,
    sides: Mapping[str, pl.DataFrame],
    dropped: Mapping[str, pl.DataFrame],
    groups: Mapping[str, str],
    hits: Sequence[ProblemHit],
    excluded: pl.DataFrame,
) -> pl.DataFrame:
    """Each record of ``trees`` (``TREES``) with the reason for dropping it, or the side that it is on (``DECISIONS``).

    Rows follow the order of ``trees``. ``sides`` has the trees of each side. ``dropped`` has, by reason, trees with the
    dropped records.
    ``groups`` names the group of near duplicates of each chosen problem. ``hits`` explains the reason "overlap", and
    ``excluded`` (``exclusions.EXCLUDED``) the reason "excluded".
    """
    found: dict[str, str] = {}
    for hit in hits:
        found.setdefault(hit.problem_id, f"{hit.kind} problem of {hit.benchmark} {hit.benchmark_id}")
    details: dict[str, pl.Expr] = {
        "overlap": pl.col("problem_id").replace_strict(found, default=None, return_dtype=pl.String()),
        "mix": _LIMITS,
        "limit": pl.lit("build.max_records"),
    }
    parts = [
        _decided(rows, pl.lit(reason), details.get(reason, _NOTHING), _NOTHING, _NOTHING)
        for reason, rows in dropped.items()
    ]
    group = pl.col("problem_id").replace_strict(groups, default=None, return_dtype=pl.String())
    parts += [_decided(rows, _NOTHING, _NOTHING, pl.lit(side), group) for side, rows in sides.items()]
    decided = pl.concat(parts).join(excluded.rename({"detail": "exclusion"}), on="id", how="left")
    decided = decided.with_columns(detail=pl.coalesce("detail", "exclusion"))
    order = trees.select("branches").explode("branches").select(id=pl.col("branches").struct.field("id"))
    return order.join(decided, on="id", how="left", maintain_order="left", validate="1:1").select(*DECISIONS)


def _decided(trees: pl.DataFrame, reason: pl.Expr, detail: pl.Expr, side: pl.Expr, group: pl.Expr) -> pl.DataFrame:
    rows = trees.select("tree_id", "branches", reason=reason, detail=detail, side=side, group=group)
    exploded = rows.explode("branches").with_columns(id=pl.col("branches").struct.field("id"))
    return exploded.select(pl.col(name).cast(kind) for name, kind in DECISIONS.items())
