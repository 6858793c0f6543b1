"""Build the training set: one tree per trajectory, split by problem, and its overlap with every benchmark.

Reads   artifacts/steps, artifacts/clean, artifacts/raw/{processbench,prmbench,search}, metrics/validate.json,
        exclusions.jsonl; params: build, search.sets, prepare.preset
Writes  artifacts/train/{train,test}.parquet, artifacts/overlap/{overlap,steps,removed}.parquet,
        artifacts/decisions.parquet, metrics/build.json
Run     python -m stages.build [--part NUMBER/COUNT]

With ``--part``, only that part of the search for near duplicates is done and stored for the stage (docs/data.md); it
needs artifacts/steps and the benchmarks.

A problem and its near duplicates are on the same side of the split. The paper describes no split, and the
published script splits samples, so both sides share problems. Counts are records.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import polars as pl

from evidence.record.stage import stage
from ground.io import DataError, read_json, read_parquet, write_parquet
from ground.progress import Progress
from pathfinder.core.metrics import account, write_metrics
from pathfinder.core.params import load_params
from pathfinder.core.parts import Part
from pathfinder.core.records import LINES
from pathfinder.data import trainset
from pathfinder.data.exclusions import excluded_records, read_exclusions
from pathfinder.data.matched_parts import match_parts, match_steps, write_part
from pathfinder.data.metrics import Build
from pathfinder.data.overlap import ProblemIndex, problem_hits

STEPS_FOLDER = Path("artifacts/steps")
CLEAN_FILE = Path("artifacts/clean/clean.parquet")
RAW = Path("artifacts/raw")
VALIDATION = Path("metrics/validate.json")
TRAIN = Path("artifacts/train")
OVERLAP = Path("artifacts/overlap")
DECISIONS_FILE = Path("artifacts/decisions.parquet")
METRICS = Path("metrics/build.json")


@stage
def main(*, part: Annotated[str, "do only this part of the search, for example 2/3"] = "") -> None:
    """Run the stage."""
    every = load_params()
    params, threshold = every.build, every.build.near_duplicate_jaccard
    benchmarks = [RAW / name for name in ("processbench", "prmbench", "search")]
    stored = match_parts(STEPS_FOLDER, benchmarks, every.search.sets, threshold)
    if part:
        if every.prepare.preset == "official":
            raise DataError(
                "prepare.preset official changes texts after labelling, so the build has no parts; run it whole"
            )
        items = trainset.benchmark_texts(RAW, every.search.sets)
        write_part(stored, Part.parse(part), STEPS_FOLDER, items, threshold)
        return
    if not read_json(VALIDATION)["success"]:
        raise DataError(f"{VALIDATION}: the data did not pass validation; fix the data before building on it")
    with Progress("build", 4, "parts") as progress:
        gathered = trainset.gather_trees(STEPS_FOLDER, CLEAN_FILE, every.prepare.preset)
        lines = read_parquet(STEPS_FOLDER / "lines.parquet", LINES)
        excluded = excluded_records(read_exclusions(), lines, gathered)
        trees, left_out = trainset.exclude(gathered, excluded["id"])
        items = trainset.benchmark_texts(RAW, every.search.sets)
        progress.advance(note="problems of the benchmarks")
        problems = ProblemIndex(dict(zip(trees["problem_id"], trees["problem"], strict=True)), threshold)
        hits = problem_hits(problems, items)
        chosen, dropped = trainset.select(trees, params, hits)
        groups = problems.groups(sorted(set(chosen["problem_id"])))
        dropped = {"excluded": left_out} | dropped if len(left_out) else dropped
        train, test = trainset.split(chosen, groups, params)
        progress.advance(note="steps of the benchmarks")
        steps, matches = match_steps(trainset.step_texts(trees), items, threshold, stored.collect())
        parts = trainset.part_matches(trees, chosen["tree_id"], matches)
        removed = trainset.removed_rows(dropped.get("overlap", trees.clear()), hits)
        decided = trainset.decisions(gathered, {"train": train, "test": test}, dropped, groups, hits, excluded)
        figures = Build(
            **dict(account(decided.join(gathered.select("tree_id", "source"), on="tree_id"))),
            train=trainset.sizes(train),
            test=trainset.sizes(test),
            near_duplicate_problems=len(groups) - len(set(groups.values())),
            overlap=trainset.overlap_figures(trees, chosen, hits, steps, parts),
            removed=trainset.removed_figures(removed),
        )
        progress.advance(note="write")
        write_parquet(TRAIN / "train.parquet", train)
        write_parquet(TRAIN / "test.parquet", test)
        write_parquet(OVERLAP / "overlap.parquet", pl.DataFrame(hits, schema=trainset.PROBLEM_HITS))
        write_parquet(OVERLAP / "steps.parquet", trainset.step_rows(steps, parts))
        write_parquet(OVERLAP / "removed.parquet", removed)
        write_parquet(DECISIONS_FILE, decided)
        write_metrics(METRICS, figures)
        stored.clear()
        progress.advance()


if __name__ == "__main__":
    main()
