"""Memory of a labelling run of 100,000 prompts through a server.

Run: pytest -m benchmarks -s tests/judge/test_labelling_memory.py
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from pathfinder.core.records import STEPS, TRAJECTORIES
from pathfinder.engines.journal import Journal
from pathfinder.engines.metering import Meter
from pathfinder.judge.judge import open_judge
from pathfinder.judge.labelling import Labelling, Prompts, choose
from tests.engines.test_journal_speed import resident_mib
from tests.judge.test_judge import params
from tests.support.judge_process import judge_process

pytestmark = pytest.mark.benchmarks
_PROMPTS = int(os.environ.get("PATHFINDER_PROMPTS", "100000"))
_STEPS = 10  # prompts per trajectory


class Watched(Meter):
    """Records the size of the process after every tenth of the calls; ``marks`` are (calls, MiB, seconds)."""

    marks: list[tuple[int, float, float]]
    began: float

    def answered(self, key: str, entry: Any) -> None:
        super().answered(key, entry)
        if self.calls % (_PROMPTS // 10) == 0:
            self.marks.append((self.calls, resident_mib(), time.perf_counter() - self.began))
            print(f"{self.calls:>8,} calls: {self.marks[-1][1]:.0f} MiB, {self.marks[-1][2]:.0f} s", flush=True)


def tables() -> tuple[pl.DataFrame, pl.DataFrame]:
    text = "We add the two numbers and carry the ten, which gives the digit in question. "
    trajectories = []
    for n in range(_PROMPTS // _STEPS):
        trunk = [f"{n} {k} {text}" for k in range(_STEPS)]
        trajectories.append((f"t{n}", "rlhflow_mistral", "f", n, f"p{n}", f"Problem {n}: what is the sum? " * 5, trunk))
    steps = [
        (f"r{n}-{k}", f"t{n}", "rlhflow_mistral", k, 0, f"{n} {k} {text}", 1 if k % 2 else -1)
        for n in range(_PROMPTS // _STEPS)
        for k in range(_STEPS)
    ]
    return (
        pl.DataFrame(steps, schema=STEPS, orient="row"),
        pl.DataFrame(trajectories, schema=TRAJECTORIES, orient="row"),
    )


def test_memory_stays_flat(tmp_path: Path, root: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "weights").write_text("1", encoding="utf-8")
    steps, trajectories = tables()
    with judge_process(str(root)) as url:
        settings = params(
            engine="openai", base_urls=[f"{url}/v1"], concurrency=64, mistral_per_rating=_PROMPTS, parse_attempts=1
        )
        with (
            open_judge(tmp_path / "model", settings, tmp_path) as judge,
            Journal(tmp_path / "journal.jsonl") as journal,
        ):
            chosen = choose(steps, settings)
            before, start = resident_mib(), time.perf_counter()
            prompts = Prompts(steps, trajectories, chosen, judge, "repaired")
            print(f"\n{len(prompts.rows):,} prompts named in {time.perf_counter() - start:.1f} s")
            meter = Watched(settings)
            meter.marks, meter.began = [(0, resident_mib(), 0.0)], time.perf_counter()
            print(f"       0 calls: {resident_mib():.0f} MiB (before the prompts: {before:.0f} MiB)")
            labelling = Labelling(steps, prompts, judge, journal, settings, chosen, meter)
            labelling.run()
    characters = sum(len(prompts.text(place)) for place in range(0, len(prompts.rows), 100)) * 100
    answers = (tmp_path / "journal.jsonl").stat().st_size
    first, last = meter.marks[1], meter.marks[-1]
    print(
        f"from {first[0]:,} to {last[0]:,} calls: {last[1] - first[1]:+.0f} MiB; prompts and answers as text would be "
        f"{(characters + answers) / 2**20:,.0f} MiB; {last[0] / last[2]:,.0f} calls/s through one event loop"
    )
    assert len(meter.marks) == 11
