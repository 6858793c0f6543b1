"""Training beside TRL's PRMTrainer, which is installed for this test.

Run: pytest -m benchmarks -s tests/training/test_trl.py
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

_TRL = "trl==1.13.0"


@pytest.mark.benchmarks
def test_the_same_steps_as_trl_in_less_time(root: Path, tmp_path: Path) -> None:
    """Losses and weights after five steps on solutions without a common step; time of an epoch on solutions with some.

    Every label counts in TRL, and here a step that several rows repeat counts once.
    """
    install = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(tmp_path / "trl"), _TRL]
    done = subprocess.run(install, capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"{_TRL} cannot be installed: {done.stderr[-300:]}")
    command = [sys.executable, "-m", "tests.training.trl_cost", str(tmp_path / "trl"), str(tmp_path), "60"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    theirs, ours = found["losses"]
    assert ours == pytest.approx(theirs, abs=1e-5)
    assert found["weights_differ"] < 1e-4
    apart = max(abs(a - b) for a, b in zip(theirs, ours, strict=True))
    (other, mine), (others, own), (long, short) = found["labels"], found["steps"], found["seconds"]
    print(
        f"\n{_TRL}: losses of 5 steps differ by at most {apart:.1e}, "
        f"weights by {found['weights_differ']:.1e}; {found['rows']} rows, one epoch: {other} labels in {others} steps "
        f"and {long:.1f} s, here {mine} in {own} and {short:.1f} s, {long / short:.1f}x"
    )
