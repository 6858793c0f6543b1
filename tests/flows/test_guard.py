"""A killed run: its processes end, its lock says who it was, and time limits end everything that a stage started."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, cast

import httpx
import pytest
from prefect.concurrency.asyncio import ConcurrencySlotAcquisitionError
from prefect.futures import PrefectFuture
from prefect.states import Failed

from flows.endings import lost_server, server_needed
from flows.local import processes
from flows.local.dvc import Dvc, DvcError, TimeLimitError
from flows.local.lock import DVC_LOCKS, LOCK, held
from flows.reproduce import run_on_server
from flows.tasks import ended
from ground.io import DataError, TransientError
from tests.conftest import FullDisk
from tests.flows.conftest import ROOT, Project
from tests.flows.watch import alive, gone, guardians_of, soon, wait_for

HOLD = """\
import os, subprocess, sys, time
from pathlib import Path
from flows.local import processes
from flows.local.lock import held
with held(Path.cwd()) as hold:
    hold.name_flow_run("run-1")
    mark = {**os.environ, processes.MARK: processes.new_mark(Path.cwd())}
    child = subprocess.Popen(["sleep", "600"], env=mark, start_new_session=True)
    Path("child.txt").write_text(f"{child.pid}\\n")
    time.sleep(600)
"""
DETACHED = """\
import subprocess
child = subprocess.Popen(["sleep", "100"], start_new_session=True)
pathlib.Path("pids.txt").write_text(f"{os.getpid()} {child.pid}\\n")
time.sleep(100)
"""
"""A stage that hangs for longer than its limit. It ends with its child, so that a test without a limit fails soon."""


def start_holder(root: Path) -> tuple[subprocess.Popen[bytes], int]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen([sys.executable, "-c", HOLD], cwd=root, env=environment)
    return process, int(wait_for(root / "child.txt"))


def guardian_of(pid: int) -> int:
    assert soon(lambda: guardians_of(pid))
    return guardians_of(pid)[0]


def test_a_lock_that_a_full_disk_refuses_is_named_and_released(tmp_path: Path, full_disk: FullDisk) -> None:
    with pytest.raises(OSError, match=rf"File too large: '{tmp_path}/{LOCK}'"), held(tmp_path) as hold, full_disk():
        hold.name_flow_run("run-1")
    with held(tmp_path) as hold:
        assert hold.previous is None


@pytest.mark.parametrize("wrapped", [False, True])
def test_a_run_whose_server_has_ended_is_left_to_the_next_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, wrapped: bool
) -> None:
    """Prefect's log worker writes its last error without a newline; the message of the run has a line of its own."""
    causes = list[str]()
    monkeypatch.setattr("flows.local.guardian.write", lambda _, run: causes.append(run["cause"].partition(":")[0]))
    with pytest.raises(TransientError, match=r"the Prefect server has ended .*run again"), held(tmp_path) as hold:
        hold.name_flow_run("run-1", "http://127.0.0.1:9/api")
        with server_needed("http://127.0.0.1:9/api", hold):
            print("All connection attempts failed", end="", file=sys.stderr)
            try:
                httpx.get("http://127.0.0.1:9/api/health")
            except httpx.ConnectError as error:
                raise RuntimeError("Failed to reach API") if wrapped else error from error
    assert causes == ["its process was killed", "the Prefect server ended"], "the guardian reports the last one"
    assert capsys.readouterr().err == "All connection attempts failed\n"
    with held(tmp_path) as hold:
        assert hold.previous is not None
        assert hold.previous.flow_run == "run-1"
    with held(tmp_path) as hold:
        assert hold.previous is None


def test_only_an_error_of_prefects_client_says_that_the_server_has_ended(tmp_path: Path) -> None:
    refused = TransientError("the Prefect server does not respond")
    refused.__cause__ = httpx.ConnectError("refused")
    with (
        pytest.raises(TransientError, match=r"^the Prefect server does not respond$"),
        held(tmp_path) as hold,
        server_needed("here", hold),
    ):
        raise refused
    assert lost_server("here", KeyError("a fault of the code")) is None
    message = "here: the Prefect server has ended (refused); run again: finished stages are not repeated"
    assert str(lost_server("here", httpx.ConnectError("refused"))) == message


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (DataError("no stage succeeded"), 1),
        (TransientError("no answer from the store"), 75),
        (httpx.ConnectError("refused"), 75),
        (OSError(errno.ENOSPC, "No space left on device", "file"), 1),
    ],
)
def test_a_run_that_may_succeed_later_has_its_own_exit_status(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, status: int
) -> None:
    for name in ("server.require_answer", "settle"):
        monkeypatch.setattr(f"flows.reproduce.{name}", lambda _: None)
    monkeypatch.setattr("flows.reproduce.reproduce", lambda *_, **__: Failed(data=error))
    with held(tmp_path) as hold:
        assert run_on_server("http://127.0.0.1:9/api", tmp_path, hold, (), False, False, 0) == status


def test_a_server_that_ends_before_a_task_begins_is_named_in_one_line() -> None:
    """Prefect asks its server for a slot of the task, and raises an error of its own, from the client's."""

    class Future:
        def wait(self) -> None:
            raise ConcurrencySlotAcquisitionError("no slots on ['tag:run-1']") from httpx.ConnectError("refused")

    with pytest.raises(TransientError, match=r"^the Prefect server does not respond \(refused\); run again: "):
        ended(cast(PrefectFuture[Any], Future()))


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


@pytest.mark.usefixtures("warm_starts")
@pytest.mark.parametrize("torn", ["", '{"out/total.txt": {"wri'])
def test_a_list_of_locks_that_a_killed_dvc_left_torn_is_removed(project: Project, torn: str) -> None:
    path, dvc = project.root / DVC_LOCKS, Dvc(project.root)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(torn)
    with pytest.raises(DvcError, match="rwlock"):
        dvc.status()
    with held(project.root):
        assert not path.exists()
        assert dvc.status()
    path.write_text("{}")
    with held(project.root):
        assert path.read_text() == "{}"


@pytest.mark.usefixtures("warm_starts")
def test_a_killed_dvc_whose_exit_status_nobody_asked_for_blocks_nothing(project: Project) -> None:
    path, dvc = project.root / DVC_LOCKS, Dvc(project.root)
    path.parent.mkdir(parents=True, exist_ok=True)
    killed = subprocess.Popen(["sleep", "600"])
    killed.kill()
    assert gone(killed.pid, 5)
    dead, live = ({"pid": pid, "cmd": "dvc repro"} for pid in (killed.pid, os.getpid()))
    odd, numbers = (str(project.root / name) for name in ("metrics/odd.json", "out/numbers.txt"))
    path.write_text(json.dumps({"write": {odd: dead}, "read": {numbers: [dead]}}))
    with pytest.raises(DvcError, match="is busy"):
        dvc.status()
    with held(project.root):
        assert dvc.status()
    listed = {"write": {odd: dead, "even": live}, "read": {"elsewhere": [dead, live]}}
    path.write_text(json.dumps(listed))
    with held(project.root):
        assert json.loads(path.read_text()) == {"write": {"even": live}, "read": {"elsewhere": [live]}}
    killed.wait()


def test_a_process_without_an_ended_owner_is_no_orphan(tmp_path: Path) -> None:
    mark = {**os.environ, processes.MARK: processes.new_mark(tmp_path)}
    child = subprocess.Popen(["sleep", "600"], env=mark)
    try:
        assert not processes.orphans(tmp_path)
        # The kernel shows the variables only a moment after the start.
        assert soon(lambda: processes.owned(processes.owner_prefix()))
        assert [*processes.owned(processes.owner_prefix())] == [child.pid]
    finally:
        child.kill()
        child.wait()


@pytest.mark.parametrize("mark", ["", "me", "1.2", "1.2.3", "a.b.c:/", "1..3:/"])
def test_a_variable_of_that_name_with_another_form_is_no_mark(tmp_path: Path, mark: str) -> None:
    child = subprocess.Popen(["sleep", "600"], env={**os.environ, processes.MARK: mark})
    try:
        environment = Path(f"/proc/{child.pid}/environ")
        assert soon(lambda: f"{processes.MARK}={mark}\0".encode() in environment.read_bytes())
        assert child.pid not in processes.owned("")
        assert not processes.orphans(tmp_path)
    finally:
        child.kill()
        child.wait()


@pytest.mark.usefixtures("warm_starts")
def test_a_stage_that_reaches_its_limit_is_ended_with_everything_it_started(project: Project) -> None:
    project.trap("numbers", DETACHED)
    pids, limit_s = project.root / "pids.txt", 2.0
    while not pids.exists():  # on a busy machine the limit may end the stage before it starts anything
        limit_s *= 2
        assert limit_s < 100
        begun = time.monotonic()
        with pytest.raises(TimeLimitError, match=rf"reached its time limit of {limit_s:.0f} s .*infra/resources.yaml"):
            Dvc(project.root).reproduce("numbers", limit_s=limit_s)
        assert time.monotonic() - begun < limit_s + 30
    assert not [pid for pid in map(int, wait_for(pids, 0).split()) if alive(pid)]
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
