"""A miniature DVC project with trivial stages and a real cache and remote."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support import warm

ROOT = Path(__file__).resolve().parent.parent.parent
CONFIG = """\
[core]
    remote = storage
    analytics = false
    check_update = false
[cache]
    type = copy
['remote "storage"']
    url = ../.pathfinder/storage
    verify = true
"""
PIPELINE = """\
stages:
  numbers:
    cmd: python make.py numbers
    deps: [make.py]
    params: [count]
    outs: [out/numbers.txt]
  square:
    matrix:
      kind: [even, odd]
    cmd: python make.py ${item.kind}
    deps: [make.py, out/numbers.txt]
    outs: ["out/${item.kind}.txt"]
    metrics: ["metrics/${item.kind}.json": {cache: false}]
  total:
    cmd: python make.py total
    deps: [make.py, out/even.txt, out/odd.txt]
    outs: [out/total.txt]
"""
MAKE = """\
import json, os, pathlib, sys, time

what = sys.argv[1]
out = pathlib.Path("out")
out.mkdir(exist_ok=True)
pathlib.Path("metrics").mkdir(exist_ok=True)
print("this is", what, flush=True)
print("to standard error from", what, "\\x1b[31m[bold]", file=sys.stderr, flush=True)
with open("ran.txt", "a") as handle:
    handle.write(f"{what} {time.time()} {os.environ.get('OMP_NUM_THREADS')}\\n")
if (trap := pathlib.Path(f"trap_{what}.py")).exists():
    exec(trap.read_text())
if what == "numbers":
    count = int(pathlib.Path("params.yaml").read_text().split(":")[1])
    (out / "numbers.txt").write_text("".join(f"{n}\\n" for n in range(count)))
elif what == "total":
    values = [int(line) for kind in ("even", "odd") for line in (out / f"{kind}.txt").read_text().split()]
    (out / "total.txt").write_text(f"{sum(values)}\\n")
else:
    wanted = 0 if what == "even" else 1
    values = [int(line) ** 2 for line in (out / "numbers.txt").read_text().split() if int(line) % 2 == wanted]
    (out / f"{what}.txt").write_text("".join(f"{value}\\n" for value in values))
    pathlib.Path(f"metrics/{what}.json").write_text(json.dumps({"count": len(values), "deep": {"sum": sum(values)}}))
"""


@dataclass(frozen=True, slots=True)
class Project:
    """The folder, and commands that run in it."""

    root: Path
    environment: dict[str, str]

    def start(self, *command: str) -> subprocess.Popen[str]:
        return warm.Popen(
            [sys.executable, *command],
            cwd=self.root,
            env=self.environment,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def run(self, *command: str, code: int | None = 0) -> str:
        process = self.start(*command)
        try:
            output, _ = process.communicate(timeout=900)
        finally:
            if process.poll() is None:
                process.terminate()  # the flow ends its stages and its server with itself
                process.wait(60)
        assert code is None or process.returncode == code, output
        return output

    def reproduce(self, *arguments: str, code: int | None = 0) -> str:
        return self.run("-m", "flows.reproduce", *arguments, code=code)

    def ran(self) -> list[str]:
        """Names of the stages that were executed since the last call, in order."""
        path = self.root / "ran.txt"
        names = [line.split()[0] for line in path.read_text().splitlines()] if path.exists() else []
        path.unlink(missing_ok=True)
        return names

    def trap(self, stage: str, code: str) -> None:
        """Make ``stage`` execute this code first."""
        (self.root / f"trap_{stage}.py").write_text(code)


def project_in(root: Path) -> Project:
    """A new project in an empty folder."""
    (root / ".dvc").mkdir()
    (root / ".dvc" / "config").write_text(CONFIG)
    (root / "dvc.yaml").write_text(PIPELINE)
    (root / "make.py").write_text(MAKE)
    (root / "params.yaml").write_text("count: 10\n")
    shutil.copy(ROOT / "evidence.toml", root)
    subprocess.run(["git", "init", "-q"], cwd=root, check=True)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PREFECT_", "PATHFINDER_"))}
    added = {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    return Project(root, {**kept, **warm.inherited(), **warm.NO_BLOCKS, **added})


@pytest.fixture(scope="session")
def make_project(tmp_path_factory: pytest.TempPathFactory) -> Callable[[], Project]:
    return lambda: project_in(tmp_path_factory.mktemp("project"))


@pytest.fixture
def project(make_project: Callable[[], Project]) -> Project:
    return make_project()
