"""``make doctor`` on disk space, locks and processes: each line is made wrong and right."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from flows.local import lock, processes
from infra.doctor import machine
from pathfinder.planning import gpu_plan, profiles


def test_too_little_space_is_named(tmp_path: Path) -> None:
    wrong = machine.disk(tmp_path, needed_gb=1e6)
    assert wrong.is_wrong
    assert "1000000 GB are needed: make room, or let `garbage`" in wrong.line()
    assert not machine.disk(tmp_path, needed_gb=0).is_wrong


def test_the_active_profile_needs_as_much_disk_as_its_plan_says(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hf" / "hub"))
    (tmp_path / "params.yaml").write_text(profiles.render(root, "paper"))
    needed = sum(gpu_plan.plan_of(tmp_path).disk().values())
    for free, is_wrong in ((needed - 1, True), (needed, False)):
        monkeypatch.setattr("shutil.disk_usage", lambda _, free=free: SimpleNamespace(free=free))
        (found,) = machine.disks(tmp_path)
        assert found.is_wrong is is_wrong
        assert f"profile paper needs {needed / 1e9:.0f} GB more" in found.line()
    (tmp_path / "params.yaml").write_text(profiles.render(root, "quickstart"))
    assert [found.line() for found in machine.disks(tmp_path)] == [f"disk       {needed / 1e9:.1f} GB free: ok"]
    (tmp_path / "params.yaml").write_text("profile: paper\n")
    found, broken = machine.disks(tmp_path)
    assert (found.is_wrong, broken.is_wrong) == (False, True)
    assert "params.yaml" in broken.line()


def test_what_would_end_a_run_before_its_first_stage_is_named(tmp_path: Path) -> None:
    assert machine.project(tmp_path) == []
    (tmp_path / ".dvc").mkdir()
    (tmp_path / "dvc.yaml").write_text("stages: {}\n")
    (found,) = machine.project(tmp_path)
    assert found.is_wrong
    assert f"{tmp_path}: no git repository" in found.line()
    (tmp_path / ".git").mkdir()
    assert machine.project(tmp_path) == []
    (tmp_path / "dvc.lock").write_text("stages:\n<<<<<<< HEAD\n  a: 1\n")
    (found,) = machine.project(tmp_path)
    assert "dvc.lock: a merge left conflict markers (line 2)" in found.line()


def test_nothing_is_left_over_in_a_folder_without_runs(tmp_path: Path) -> None:
    assert [finding.line() for finding in machine.stale(tmp_path)] == [
        "locks      no run, lock or process is left over: ok"
    ]


def test_a_lock_of_a_killed_run_is_named_and_that_of_a_living_one_is_not(tmp_path: Path) -> None:
    code = "import sys, time; from pathlib import Path; from flows.local import lock\n"
    code += "with lock.held(Path(sys.argv[1])): print('held', flush=True); time.sleep(600)"
    run = subprocess.Popen([sys.executable, "-c", code, tmp_path], stdout=subprocess.PIPE, text=True)
    assert run.stdout is not None
    assert run.stdout.readline() == "held\n"
    assert not any(finding.is_wrong for finding in machine.stale(tmp_path))
    entry = json.loads((tmp_path / lock.LOCK).read_text())
    host, _, folder = entry["place"].split(" ")
    far = {**entry, "pid": 2**22 + 1, "place": f"{host} other-boot:1 {folder}"}  # on another machine, or in a container
    (tmp_path / lock.LOCK).write_text(json.dumps(far))
    assert not any(finding.is_wrong for finding in machine.stale(tmp_path))
    (tmp_path / lock.LOCK).write_text(json.dumps(entry))
    run.kill()
    run.wait()
    run.stdout.close()
    wrong = machine.stale(tmp_path)
    assert [finding.what for finding in wrong] == ["run lock"]
    assert f"PID {run.pid}" in wrong[0].line()
    with lock.held(tmp_path):
        pass
    assert not any(finding.is_wrong for finding in machine.stale(tmp_path))


def test_a_process_of_an_ended_run_is_named(tmp_path: Path) -> None:
    mark = f"{2**22 + 1}.1.1:{processes.place(tmp_path)}"  # of a process whose number no process can have
    left = subprocess.Popen(["sleep", "600"], env={**os.environ, processes.MARK: mark}, start_new_session=True)
    try:
        deadline = time.monotonic() + 20
        while not processes.orphans(tmp_path) and time.monotonic() < deadline:  # its variables are not visible at once
            time.sleep(0.01)
        assert [finding.remedy for finding in machine.stale(tmp_path)] == [f"kill {left.pid}"]
    finally:
        left.kill()
        left.wait()


def test_an_old_lock_of_git_is_named(tmp_path: Path) -> None:
    index = tmp_path / ".git" / "index.lock"
    index.parent.mkdir()
    index.touch()
    assert not any(finding.is_wrong for finding in machine.stale(tmp_path))
    an_hour_ago = time.time() - 3600
    os.utime(index, (an_hour_ago, an_hour_ago))
    wrong = machine.stale(tmp_path)
    assert wrong[0].line() == f"git lock   .git/index.lock is 60 minutes old: WRONG; rm {index}"


@pytest.mark.usefixtures("warm_starts")
def test_the_command_lists_everything_and_fails_if_something_is_wrong(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    command = [sys.executable, "-m", "infra.doctor"]
    root = Path(__file__).resolve().parents[3]
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PATHFINDER_", "PREFECT_"))}
    environment = kept | {"PYTHONPATH": str(root), "PREFECT_HOME": str(tmp_path), "PATH": "/nowhere"}
    environment["PATHFINDER_SIGNING_KEY"] = str(tmp_path / "signing.pem")

    def run() -> subprocess.CompletedProcess[str]:
        return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)

    done = run()
    assert done.returncode == 0, done.stdout + done.stderr
    assert [line.split()[0] for line in done.stdout.splitlines()] == [
        *("disk", "locks", "server", "key", "remote", "card")
    ]
    (tmp_path / ".pathfinder").mkdir(exist_ok=True)
    holder = {"pid": 2**22 + 1, "command": "pathfinder run", "since": "2026-01-01 00:00:00", "flow_run": ""}
    holder["place"] = processes.place(tmp_path)
    (tmp_path / lock.LOCK).write_text(json.dumps(holder))
    done = run()
    assert done.returncode == 1
    assert "run lock" in done.stdout
    assert "1 of these is wrong" in done.stderr
