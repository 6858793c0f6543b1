"""Labelling and training twice at once: one proceeds, the other names it in one line, and the bytes are right."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from ground.io import TransientError
from tests.stages.test_label import grade, set_params
from tests.stages.test_label import outs as label_outs
from tests.stages.test_label import project as label_project  # noqa: F401
from tests.stages.test_train import OUTS
from tests.stages.test_train import project as train_project  # noqa: F401
from tests.support.servers import JudgeServer, judge_server

pytestmark = [pytest.mark.slow, pytest.mark.campaign]
PIPELINE = """\
stages:
  label: {cmd: python -m stages.label, deps: [params.yaml], outs: [artifacts/labels, metrics/label.json]}
  train@full: {cmd: python -m stages.train full, deps: [params.yaml], outs: [models/full, metrics/train]}
"""


def start(root: Path, folder: Path, *words: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": str(root)}
    return subprocess.Popen(
        [sys.executable, "-m", *words], cwd=folder, env=environment, stderr=subprocess.PIPE, text=True
    )


def both(root: Path, folder: Path, *words: str) -> None:
    """Start a stage twice at once: one process ends right, the other names it."""
    (folder / "dvc.yaml").write_text(PIPELINE)
    for name in ("stages", "ground", "pathfinder", "world", "infra"):  # what a record names
        (folder / name).symlink_to(root / name)
    processes = [start(root, folder, *words) for _ in range(2)]
    errors = [process.communicate(timeout=400)[1] for process in processes]
    codes = [process.returncode for process in processes]
    assert sorted(codes) == [0, TransientError.exit_status], errors
    first = processes[codes.index(0)]
    cmd = " ".join(["python -m", *words])
    named = rf"error: `{cmd}` already runs in this folder \(PID {first.pid}, since [^)]*\); wait for it or end it\n"
    assert re.fullmatch(named, said := errors[1 - codes.index(0)]), said


def slow_grade(prompt: str, seed: int) -> str:
    time.sleep(0.5)
    return grade(prompt, seed)


def test_labelling_twice(label_project: Path, root: Path) -> None:  # noqa: F811
    with judge_server(JudgeServer(slow_grade)) as judge:
        set_params(label_project, engine="openai", base_urls=[judge.url], concurrency=1, timeout_s=60.0)
        both(root, label_project, "stages.label")
        calls, labelled = judge.calls, label_outs()
        assert start(root, label_project, "stages.label").wait() == 0
        assert (judge.calls, label_outs()) == (calls, labelled), "the journal has every answer once"


def test_training_twice(train_project: Any, root: Path) -> None:  # noqa: F811
    once, twice = (train_project(name, epochs=40.0) for name in ("once", "twice"))
    alone = start(root, once, "stages.train", "full")
    assert alone.wait() == 0
    both(root, twice, "stages.train", "full")
    for out in OUTS:
        assert (once / out).read_bytes() == (twice / out).read_bytes(), out
