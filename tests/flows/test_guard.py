"""A killed run: its processes end, its lock says who it was, and time limits end everything that a stage started."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from flows import processes
from flows.dvc import Dvc, DvcError, TimeLimitError
from flows.guard.limits import limits
from flows.guard.lock import LOCK, held
from pathfinder.core.io import DataError
from tests.flows.conftest import ROOT, Project
from tests.flows.test_dvc import alive, wait_for

HOLD = """\
import os, subprocess, sys, time
from pathlib import Path
from flows import processes
from flows.guard.lock import held
with held(Path.cwd()) as hold:
    hold.name_flow_run("run-1")
    mark = {**os.environ, processes.MARK: processes.new_mark(Path.cwd())}
    child = subprocess.Popen(["sleep", "600"], env=mark, start_new_session=True)
    Path("child.txt").write_text(f"{child.pid}\\n")
    time.sleep(600)
"""
DETACHED = """\
import subprocess
child = subprocess.Popen(["sleep", "600"], start_new_session=True)
pathlib.Path("pids.txt").write_text(f"{os.getpid()} {child.pid}\\n")
time.sleep(600)
"""


def gone(pid: int, seconds: float = 30.0) -> bool:
    deadline = time.monotonic() + seconds
    while alive(pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not alive(pid)


def start_holder(root: Path) -> tuple[subprocess.Popen[bytes], int]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen([sys.executable, "-c", HOLD], cwd=root, env=environment)
    return process, int(wait_for(root / "child.txt"))


def guardian_of(pid: int) -> int:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        for path in Path("/proc").glob("[0-9]*"):
            if f"guard.guardian {pid}." in processes.command_of(int(path.name)):
                return int(path.name)
    raise AssertionError("no guardian")


def test_what_a_killed_run_started_ends_with_it(tmp_path: Path) -> None:
    process, child = start_holder(tmp_path)
    with pytest.raises(DataError, match=rf"another run is in progress .*PID {process.pid}, since .*: -c"):
        held(tmp_path).__enter__()
    guardian_of(process.pid)
    process.kill()
    process.wait()
    assert gone(child), "it left the process group, and yet it is ended"
    with held(tmp_path) as hold:
        assert hold.previous is not None
        assert (hold.previous.pid, hold.previous.flow_run) == (process.pid, "run-1")
    with held(tmp_path) as hold, held(tmp_path) as same:
        assert hold is same
        assert hold.previous is None, "the last run ended in order"


def test_the_next_run_ends_what_the_guardian_could_not(tmp_path: Path) -> None:
    process, child = start_holder(tmp_path)
    for pid in (guardian_of(process.pid), process.pid):
        os.kill(pid, signal.SIGKILL)
    process.wait()
    assert alive(child)
    with held(tmp_path) as hold:
        assert [line.partition(":")[0] for line in hold.ended] == [f"PID {child}"]
    assert gone(child, 5)
    assert (tmp_path / LOCK).read_text() == ""


def test_a_process_without_an_ended_owner_is_no_orphan(tmp_path: Path) -> None:
    mark = {**os.environ, processes.MARK: processes.new_mark(tmp_path)}
    child = subprocess.Popen(["sleep", "600"], env=mark)
    try:
        assert processes.orphans(tmp_path) == []
        deadline = time.monotonic() + 30  # the kernel shows the variables only a moment after the start
        while not (found := processes.owned(processes.owner_prefix())) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert [process.pid for process in found] == [child.pid]
    finally:
        child.kill()
        child.wait()


def test_a_stage_that_reaches_its_limit_is_ended_with_everything_it_started(project: Project) -> None:
    project.trap("numbers", DETACHED)
    begun = time.monotonic()
    with pytest.raises(TimeLimitError, match=r"numbers` reached its time limit of 4 s .*infra/resources.yaml"):
        Dvc(project.root).reproduce("numbers", limit_s=4)
    assert time.monotonic() - begun < 30
    if (pids := project.root / "pids.txt").exists():
        assert not [pid for pid in map(int, pids.read_text().split()) if alive(pid)]
    (project.root / "trap_numbers.py").unlink()
    assert Dvc(project.root).reproduce("numbers", limit_s=300) == "ran", "its locks are free"


def test_a_stage_that_someone_else_runs_names_them(project: Project) -> None:
    project.trap("numbers", "pathlib.Path('pids.txt').write_text('1\\n')\ntime.sleep(600)\n")
    other = project.start("-m", "dvc", "repro", "--single-item", "numbers")
    wait_for(project.root / "pids.txt")
    blocked = rf"is busy, it is being blocked by: \| \(PID {other.pid}\): .*dvc.* repro"
    with pytest.raises(DvcError, match=blocked) as caught:
        Dvc(project.root).reproduce("numbers")
    assert caught.value.transient
    os.killpg(other.pid, signal.SIGKILL)
    other.communicate()


def test_limits_are_those_of_the_first_line_that_matches(tmp_path: Path) -> None:
    stages = ["label", "train@full", "report"]
    assert limits(tmp_path, stages) == {}
    (tmp_path / "infra").mkdir()
    (tmp_path / "params.yaml").write_text("profile: quickstart\n")
    file = tmp_path / "infra/resources.yaml"
    lines = ("{stage: label, time: 1.5h}", "{profile: paper, stage: '*', time: 2d}", "{stage: 'train@*', time: 30m}")
    file.write_text("limits:\n" + "".join(f"- {line}\n" for line in lines))
    assert limits(tmp_path, stages) == {"label": 5400.0, "train@full": 1800.0}
    file.write_text("limits:\n- {stage: label, time: soon}\n")
    with pytest.raises(DataError, match=r"limits, label: time is 'soon'; expected for example 30m"):
        limits(tmp_path, stages)
    (tmp_path / "params.yaml").write_text((ROOT / "params.yaml").read_text())
    file.write_text((ROOT / "infra/resources.yaml").read_text())
    assert limits(tmp_path, stages).keys() == set(stages)
