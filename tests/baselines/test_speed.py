"""The nine systems on real solutions: the engine gives the scripts' scores in less processor time.

Run: pytest -m benchmarks -s tests/baselines/test_speed.py
"""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest
import torch

from pathfinder.baselines.adapter import AUTHORS
from pathfinder.baselines.registry import SYSTEMS
from pathfinder.baselines.scorer import BaselineScorer
from pathfinder.benchmarks.readers import read_prmbench, read_processbench
from pathfinder.core.steps import Solution
from pathfinder.models.folders import open_model
from tests.baselines.authors_scripts import METHODS
from tests.baselines.model_folders import FOLDERS

pytestmark = pytest.mark.benchmarks
_ITEMS = 8
"""Items per subset or class."""


def test_real_solutions(tmp_path: Path, mirror: Path) -> None:
    first = read_processbench(mirror / "processbench", _ITEMS).items
    second = read_prmbench(mirror / "prmbench", _ITEMS).items
    solutions = [Solution(f"{i.subset} {i.id}", i.problem, tuple(map(_line, i.steps))) for i in first]
    solutions += [Solution(i.idx, i.problem, tuple(map(_line, i.steps))) for i in second]
    solutions = [s for s in solutions if all(s.steps) and len(s.problem) + sum(map(len, s.steps)) < 1500]
    steps = sum(len(solution.steps) for solution in solutions)
    print(f"\n{len(solutions)} solutions, {steps} steps")
    for name, write in FOLDERS.items():
        write(tmp_path / name)
        scorer = BaselineScorer(open_model(tmp_path / name), SYSTEMS[name].methods[AUTHORS])
        with torch.inference_mode():
            METHODS[name][AUTHORS](tmp_path / name, solutions[0])  # loads the script's model once
        start = time.process_time()
        mine = scorer.score(solutions)
        middle = time.process_time()
        with torch.inference_mode():
            theirs = [METHODS[name][AUTHORS](tmp_path / name, solution) for solution in solutions]
        end = time.process_time()
        for solution, found, expected in zip(solutions, mine, theirs, strict=True):
            assert [step.reward for step in found] == pytest.approx(expected, rel=1e-3, abs=1e-5), solution.id
        print(f"{name:17s} engine {middle - start:6.2f} s, script {end - middle:6.2f} s: {_ratio(start, middle, end)}")


def _line(step: str) -> str:
    """A step as one line: Skywork's and Llemma's scripts take a line break inside a step for the end of a step."""
    return re.sub(r"\s*\n\s*", " ", step).strip()


def _ratio(start: float, middle: float, end: float) -> str:
    return f"{(end - middle) / (middle - start):.1f}x"
