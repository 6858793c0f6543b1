"""Measure prepare, filter, validate and build on paper-sized data, compared with a straightforward implementation.

Run: PATHFINDER_SCALE=1000000 pytest -m benchmarks -s tests/data/test_scale.py

The input repeats the real phase-1 file. Each copy replaces letters by their successors, so that no copy is a near
duplicate of another. Labels come from the ratings, without a judge. Every step is a process. Its memory is the kernel's
peak (``VmHWM``) plus, if it has workers, the peak of the largest worker times their number. CPU seconds include the
workers; on a busy machine they are more reliable than wall seconds. ``tests/support/straightforward.py`` is the other
implementation; its step "near" is a part of build.
"""

from __future__ import annotations

import json
import os
import shutil
import string
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from ground.io import read_json, read_jsonl, read_parquet, write_parquet
from pathfinder.core.records import ANSWERS, LABELS, STEPS
from tests.support.stage_inputs import write_params

pytestmark = pytest.mark.benchmarks
_SIZE = int(os.environ.get("PATHFINDER_SCALE", "50000"))
_ANSWER = "The step repeats the text above it and adds nothing.\n" * 8 + "Score A: {}\nScore B: {}\nScore C: {}"
Figures = tuple[float, float, float]  # wall seconds, CPU seconds, peak GiB
_WRAPPED = """
import os, pathlib, resource, runpy, sys
target, name, *sys.argv[1:] = sys.argv[1:]
runpy.run_module(name, run_name="__main__", alter_sys=True)
own = int(next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1])
worker = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
pathlib.Path(target).write_text(f"{sum(os.times()[:4])} {own + worker * os.cpu_count()}")
"""


def _moved(value: Any, table: dict[int, int], copy: int) -> Any:
    """The same line with other words: every problem and step is translated by ``table`` and numbered."""
    if isinstance(value, dict):
        return {
            key: f"{part.translate(table)} {copy}"
            if key in ("text", "problem") and isinstance(part, str)
            else _moved(part, table, copy)
            for key, part in value.items()
        }
    return [_moved(part, table, copy) for part in value] if isinstance(value, list) else value


def write_input(mirror: Path, folder: Path, size: int) -> int:
    """Raw files with at least ``size`` completions below ``folder``; returns their number."""
    raw, lower, upper = folder / "artifacts" / "raw", string.ascii_lowercase, string.ascii_uppercase
    for name in ("mistral", "processbench", "prmbench", "search"):
        shutil.copytree(mirror / name, raw / name)
    lines = [value for _, value in read_jsonl(mirror / "prm800k" / "phase1_train.jsonl")]
    count = copy = 0
    (raw / "prm800k").mkdir()
    with (raw / "prm800k" / "phase1_train.jsonl").open("w", encoding="utf-8") as handle:
        while count < size:
            by = copy % len(lower)
            table = str.maketrans(lower + upper, lower[by:] + lower[:by] + upper[by:] + upper[:by])
            for line in lines:
                count += sum(len(step["completions"] or []) for step in line["label"]["steps"])
                handle.write(json.dumps(_moved(line, table, copy)) + "\n")
                if count >= size:
                    break
            copy += 1
    return count


def write_labels(folder: Path) -> None:
    """Write labels and answers of the prepared steps, for both sides; every tenth wrong step is labelled correct."""
    steps = read_parquet(folder / "artifacts/steps/steps.parquet", STEPS)
    rating, wrong = pl.col("rating"), pl.col("rating") == -1
    lenient = wrong & (pl.int_range(pl.len()) % 10 == 0)
    judged = wrong | (pl.col("source") != "prm800k")
    labels = steps.select(
        "id",
        math=pl.when(rating.is_not_null()).then((~wrong | lenient).cast(pl.Int8)),
        consistency=pl.when(rating.is_not_null()).then(pl.lit(1, pl.Int8)),
        optimality=pl.when(rating.is_not_null()).then(((rating == 1) | lenient).cast(pl.Int8)),
        origin=pl.when(rating.is_null())
        .then(pl.lit("none"))
        .when(judged)
        .then(pl.lit("judge"))
        .otherwise(pl.lit("rating")),
        outcome=pl.when(rating.is_null())
        .then(pl.lit("unrated"))
        .when(judged)
        .then(pl.lit("parsed"))
        .otherwise(pl.lit("given")),
        attempts=(judged & rating.is_not_null()).cast(pl.Int64),
    ).cast(pl.Schema(LABELS))
    answers = (
        labels.filter(pl.col("attempts") == 1)
        .select(
            "id",
            attempt=pl.lit(0, pl.Int64),
            round=pl.lit(0, pl.Int64),
            prompt_digest=pl.lit("0123456789abcdef" * 4),
            answer=pl.format(_ANSWER, "math", "consistency", "optimality"),
            outcome=pl.lit("parsed"),
        )
        .cast(pl.Schema(ANSWERS))
    )
    write_parquet(folder / "artifacts/labels/labels.parquet", labels)
    write_parquet(folder / "artifacts/labels/answers.parquet", answers)
    human = pl.col("id").str.starts_with("prm800k")
    for name, table in (("labels", labels), ("answers", answers)):
        (folder / "straightforward").mkdir(exist_ok=True)
        with (folder / "straightforward" / f"{name}.json").open("w", encoding="utf-8") as handle:
            json.dump(table.filter(human).to_dicts(), handle)


def measured(root: Path, folder: Path, module: str, *arguments: str) -> Figures:
    """Wall seconds, CPU seconds and peak GiB of ``python -m module`` in ``folder``."""
    figures = folder / "figures"
    command = [sys.executable, "-c", _WRAPPED, str(figures), module, *arguments]
    start = time.perf_counter()
    subprocess.run(
        command, cwd=folder, env=os.environ | {"PYTHONPATH": str(root)}, check=True, stdout=subprocess.DEVNULL
    )
    wall = time.perf_counter() - start
    cpu, peak = figures.read_text().split()
    return wall, float(cpu), int(peak) / 2**20


def whole(steps: list[Figures]) -> Figures:
    """Total times of the steps, and the highest peak."""
    wall, cpu, peak = zip(*steps, strict=True)
    return sum(wall), sum(cpu), max(peak)


def _row(figures: Figures) -> str:
    return "{:8.1f} s {:8.1f} CPU s {:6.2f} GiB".format(*figures)


def _ratios(own: Figures, other: Figures) -> str:
    ratios = (theirs / ours for ours, theirs in zip(own, other, strict=True))
    return "  = {:.1f} times the time, {:.1f} the CPU, {:.1f} the memory".format(*ratios)


@pytest.mark.parametrize("size", [_SIZE // 4, _SIZE // 2, _SIZE])
def test_paper_sized_data(size: int, root: Path, mirror: Path, tmp_path: Path) -> None:
    write_params(tmp_path, search={"sets": ["math"]}, validate={"min_parsed_share": 0.5})
    count = write_input(mirror, tmp_path, size)
    ours: dict[str, Figures] = {}
    theirs: dict[str, Figures] = {}
    for step in ("prepare", "filter", "validate", "build"):
        ours[step] = measured(root, tmp_path, f"stages.{step}")
        if step == "prepare":
            write_labels(tmp_path)
        theirs[step] = measured(root, tmp_path, "tests.support.straightforward", step)
    own, other = whole(list(ours.values())), whole(list(theirs.values()))
    print(f"\n{count:,} completions: stage | straightforward")
    for step in ours:
        print(f"  {step:9}{_row(ours[step])} |{_row(theirs[step])}")
    print(f"  all      {_row(own)} |{_row(other)}{_ratios(own, other)}")
    if size == _SIZE // 4:  # the slowest step; its time is proportional to the size
        near = measured(root, tmp_path, "tests.support.straightforward", "near")
        print(f"  near     {'in build':>34} |{_row(near)}\n  with near{'':>34} |{_ratios(own, whole([other, near]))}")
    dropped = read_json(tmp_path / "metrics/filter.json")["sources"]["prm800k"]["dropped"]
    assert sum(dropped.values()) == len(read_json(tmp_path / "straightforward/drops.json"))
    shutil.rmtree(tmp_path)
