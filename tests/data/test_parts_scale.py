"""Compare one process with three parts and their merging: conversion, and the search for near duplicates.

Run: PATHFINDER_SCALE=1000000 pytest -m benchmarks -s tests/data/test_parts_scale.py

The input is as in ``test_scale.py``. The conversion is also measured apart, with up to ten million completions: each
copy of the real file has a number before every problem and step. Every process has one core, as if each part had a
machine of its own; the parts of a stage run one after the other. Memory is the kernel's peak (``VmHWM``).
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ground.io import sha256_file, write_json
from tests.data.test_scale import Figures, write_input, write_labels
from tests.support.stage_inputs import write_params

pytestmark = pytest.mark.benchmarks
_SIZE = int(os.environ.get("PATHFINDER_SCALE", "50000"))
_PARTS = 3
_WRAPPED = """
import os, pathlib, runpy, sys, time
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
target, name, *sys.argv[1:] = sys.argv[1:]
start = time.perf_counter()
runpy.run_module(name, run_name="__main__", alter_sys=True)
peak = int(next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1])
pathlib.Path(target).write_text(f"{time.perf_counter() - start} {sum(os.times()[:2])} {peak / 2**20}")
"""


def measured(root: Path, folder: Path, *words: str) -> Figures:
    """Wall seconds, CPU seconds and peak GiB of ``python -m words`` in ``folder`` on one core."""
    figures = folder / "figures"
    command = [sys.executable, "-c", _WRAPPED, str(figures), *words]
    environment = os.environ | {"PYTHONPATH": str(root), "OMP_NUM_THREADS": "1"}
    with (folder / "log").open("w") as log:
        subprocess.run(command, cwd=folder, env=environment, check=True, stderr=log)
    wall, cpu, peak = map(float, figures.read_text().split())
    return wall, cpu, peak


def compared(root: Path, folder: Path, stage: str, outs: list[str]) -> None:
    """Run a stage in one process and in parts, print their figures, and compare the outs."""

    def digests() -> dict[str, str]:
        files = [file for out in outs for path in [folder / out] for file in [path, *path.rglob("*")] if file.is_file()]
        return {str(file): sha256_file(file) for file in files}

    one = measured(root, folder, f"stages.{stage}")
    whole = digests()
    assert whole
    parts = [measured(root, folder, f"stages.{stage}", "--part", f"{n}/{_PARTS}") for n in range(1, _PARTS + 1)]
    stored = sum(file.stat().st_size for file in (folder / f".pathfinder/parts/{stage}").rglob("*") if file.is_file())
    merge = measured(root, folder, f"stages.{stage}")
    used = f"{stage}: uses {_PARTS} of {_PARTS} parts"
    assert used in (folder / "log").read_text(), "a change of code between two commands makes the parts useless"
    for name, figures in (
        ("one process", one),
        *((f"part {n}", f) for n, f in enumerate(parts, 1)),
        ("merging", merge),
    ):
        print("  {:8}{:12}{:8.1f} s {:8.1f} CPU s {:6.2f} GiB".format(stage, name, *figures), flush=True)
    print(f"  {stage:8}{'stored':12}{stored / 2**20:8.1f} MiB", flush=True)
    assert digests() == whole


def _print_size(folder: Path, count: int) -> None:
    size = (folder / "artifacts/raw/prm800k/phase1_train.jsonl").stat().st_size
    print(f"\n{count:,} completions, {size / 2**20:.0f} MiB", flush=True)


def write_copies(mirror: Path, folder: Path, size: int) -> int:
    """Raw files with about ``size`` completions below ``folder``; returns their number."""
    raw = folder / "artifacts/raw"
    shutil.copytree(mirror / "mistral", raw / "mistral")
    (raw / "prm800k").mkdir()
    original = (mirror / "prm800k/phase1_train.jsonl").read_bytes()
    copies = max(1, size // original.count(b'"text": "'))
    with (raw / "prm800k/phase1_train.jsonl").open("wb") as file:
        for copy in range(copies):
            numbered = original
            for key in (b'"text": "', b'"problem": "'):
                numbered = numbered.replace(key, b"%b%d " % (key, copy))
            file.write(numbered)
    return copies * original.count(b'"text": "')


def test_the_conversion_in_three_parts(root: Path, mirror: Path, tmp_path: Path) -> None:
    write_params(tmp_path)
    count = write_copies(mirror, tmp_path, _SIZE)
    _print_size(tmp_path, count)
    compared(root, tmp_path, "prepare", ["artifacts/steps", "metrics/prepare.json"])
    shutil.rmtree(tmp_path)


def test_conversion_and_search_in_three_parts(root: Path, mirror: Path, tmp_path: Path) -> None:
    write_params(tmp_path, search={"sets": ["math"]})
    count = write_input(mirror, tmp_path, _SIZE)
    _print_size(tmp_path, count)
    compared(root, tmp_path, "prepare", ["artifacts/steps", "metrics/prepare.json"])
    write_labels(tmp_path)
    measured(root, tmp_path, "stages.filter")
    write_json(tmp_path / "metrics/validate.json", {"success": True})
    outs = ["artifacts/train", "artifacts/overlap", "artifacts/decisions.parquet", "metrics/build.json"]
    compared(root, tmp_path, "build", outs)
    shutil.rmtree(tmp_path)
