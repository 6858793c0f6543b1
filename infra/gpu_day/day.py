"""Where the parts of a GPU day run, how large they are, and how they report."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ground.io import DataError

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / ".pathfinder/gpu_day"
VLLM = ROOT / ".venv-vllm/bin/vllm"


@dataclass(frozen=True, slots=True)
class Day:
    """A day on the GPU, or its rehearsal on the CPU with tiny models and inputs."""

    rehearsal: bool
    folder: Path
    """Results and logs."""

    @property
    def work(self) -> Path:
        """The folder in which the stages run, with a params.yaml and artifacts of its own."""
        return self.folder / "work"

    @property
    def device(self) -> str:
        """torch's name of the device."""
        return "cpu" if self.rehearsal else "cuda"

    def size(self, real: int, rehearsed: int) -> int:
        """A number of items."""
        return rehearsed if self.rehearsal else real


@dataclass(slots=True)
class Report:
    """The result of a part: ``figures`` as (what, value) in words, and ``problems`` that make the part a failure."""

    figures: list[tuple[str, str]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def add(self, what: str, value: str) -> None:
        """Add a figure and print it, so that the log of an interrupted part has it."""
        self.figures.append((what, value))
        print(f"{what}: {value}", flush=True)

    def check(self, holds: bool, problem: str) -> None:
        """Add ``problem`` unless ``holds``."""
        if not holds:
            self.problems.append(problem)


def environment() -> dict[str, str]:
    """The environment of the day's commands: this code, and no network beyond what the inputs fetched."""
    return os.environ | {"PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1"}


def run(command: Sequence[str], folder: Path) -> tuple[float, int]:
    """Run a command whose output goes to the part's log; returns its wall seconds and its peak of resident bytes.

    Raises ``DataError`` if it fails.
    """
    print(f"$ {' '.join(command)}", flush=True)
    start = time.monotonic()
    process = subprocess.Popen(command, cwd=folder, env=environment())
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if status:
        raise DataError(f"{' '.join(command)} ended with status {process.returncode}; its error is in the log")
    return time.monotonic() - start, usage.ru_maxrss * 1024
