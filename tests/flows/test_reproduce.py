"""The flow on a real local server: order, retries, failures, cancelling, pushing, and the records of the server."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import sqlite3
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from flows import pushes, server
from tests.flows.conftest import Project
from tests.flows.test_dvc import alive, wait_for

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def served(make_project: Callable[[], Project]) -> Iterator[Project]:
    """A project that has run once, with a server that keeps running and serves later runs."""
    project = make_project()
    server.start_server(project.root)
    first = project.reproduce("--jobs", "2")
    (project.root / "first.log").write_text(first)
    (project.root / "first_ran.json").write_text(json.dumps(project.ran()))
    yield project
    server.stop(project.root, "server")


def query(project: Project, sql: str) -> list[tuple[object, ...]]:
    with contextlib.closing(sqlite3.connect(project.root / ".pathfinder/prefect/prefect.db")) as database:
        return database.execute(sql).fetchall()


def count(project: Project, number: int) -> None:
    (project.root / "params.yaml").write_text(f"count: {number}\n")


def clear(project: Project) -> None:
    for path in project.root.glob("trap_*.py"):
        path.unlink()


def test_every_stage_ran_once_in_order_with_its_name_before_each_line(served: Project) -> None:
    ran = json.loads((served.root / "first_ran.json").read_text())
    output = (served.root / "first.log").read_text()
    assert (ran[0], set(ran[1:3]), ran[3]) == ("numbers", {"even", "odd"}, "total")
    assert "[square@odd] this is odd" in output
    assert "[square@even] to standard error from even \\x1b[31m[bold]" in output
    assert re.search(r"total\s+│ ran\s+│\s+[\d.]+ │ out/total.txt", output)
    assert (served.root / "out/total.txt").read_text() == "285\n"
    assert "this is odd" in (served.root / ".pathfinder/logs/square@odd.log").read_text()
    assert "Time, inputs and outputs of every stage" in (served.root / ".pathfinder/stages.html").read_text()


def test_the_server_keeps_logs_states_and_metrics(served: Project) -> None:
    states = query(served, "select name, state_type from task_run")
    assert {name for name, _ in states} >= {"numbers", "square@even", "push numbers"}
    pushes = [str(name).removeprefix("push ") for name, _ in states if str(name).startswith("push ")]
    assert sorted(", ".join(pushes).split(", ")) == ["numbers", "square@even", "square@odd", "total"], (
        "each stage is pushed once"
    )
    assert len(pushes) < 4, "stages that end within a minute are pushed together"
    assert {state for _, state in states} == {"COMPLETED"}
    assert query(served, "select message from log where message like '%this is odd%' and task_run_id is not null")
    artifacts = {str(key): str(data) for key, data in query(served, "select key, cast(data as text) from artifact")}
    assert "| deep.sum | 165 |" in artifacts["metrics-odd"]
    assert "stages" in artifacts


def test_outs_and_run_cache_are_in_storage_with_a_manifest(served: Project) -> None:
    storage = served.root / ".pathfinder/storage"
    assert len(list((storage / "files/md5").rglob("*"))) >= 8
    assert any((storage / "runs").rglob("*"))
    assert (storage / "pathfinder/log/00000001.json").exists()


def test_dvc_agrees_and_a_second_run_does_nothing(served: Project) -> None:
    assert "up to date" in served.run("-m", "dvc", "repro")
    runs = query(served, "select count(*) from flow_run")
    output = served.reproduce()
    assert "nothing to do, everything is up to date (4 stages)" in output
    assert query(served, "select count(*) from flow_run") == runs
    assert served.ran() == []


def test_transient_failures_are_retried_and_others_stop_only_descendants(served: Project) -> None:
    count(served, 12)
    once = "import sys\nif not pathlib.Path('once').exists():\n    pathlib.Path('once').touch(); sys.exit(75)\n"
    served.trap("even", once)
    served.trap("odd", "raise ValueError('odd cannot be')")
    output = served.reproduce("--jobs", "2", code=1)
    ran = served.ran()
    assert (ran.count("even"), ran.count("odd"), ran.count("total")) == (2, 1, 0)
    assert "odd cannot be" in output
    assert re.search(r"square@odd\s+│ failed", output)
    assert re.search(r"square@even\s+│ ran", output)
    assert re.search(r"total\s+│ not started\s+│\s+│ needs square@odd", output)
    clear(served)
    output = served.reproduce()
    assert served.ran() == ["odd", "total"]
    assert re.search(r"numbers\s+│ up to date", output)


def test_ending_a_run_leaves_no_process_and_the_next_run_resumes(served: Project) -> None:
    count(served, 14)
    served.trap(
        "odd",
        "import subprocess, signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "child = subprocess.Popen(['sleep', '900'])\n"
        "pathlib.Path('pids.txt').write_text(f'{os.getpid()} {os.getppid()} {child.pid}\\n')\ntime.sleep(900)\n",
    )
    process = served.start("-m", "flows.reproduce", "--jobs", "2")
    pids = [int(pid) for pid in wait_for(served.root / "pids.txt", 200).split()]
    process.send_signal(signal.SIGTERM)
    output, _ = process.communicate(timeout=120)
    assert process.returncode != 0, output
    assert not [pid for pid in pids if alive(pid)]
    assert not _working_in(served.root) - _served(served)
    clear(served)
    served.reproduce()
    assert (served.root / "out/total.txt").read_text() == f"{sum(n * n for n in range(14))}\n"


def test_a_killed_run_leaves_nothing_and_the_next_one_reports_its_end(served: Project) -> None:
    count(served, 15)
    crashed = "select name from flow_run where state_type = 'CRASHED'"
    before = query(served, crashed)
    served.trap(
        "odd",
        "import subprocess\nchild = subprocess.Popen(['sleep', '900'], start_new_session=True)\n"
        "pathlib.Path('pids.txt').write_text(f'{os.getpid()} {child.pid}\\n')\ntime.sleep(900)\n",
    )
    (served.root / "pids.txt").unlink(missing_ok=True)
    process = served.start("-m", "flows.reproduce", "--jobs", "2")
    pids = [int(pid) for pid in wait_for(served.root / "pids.txt", 200).split()]
    process.kill()
    process.communicate()
    deadline = time.monotonic() + 30
    while [pid for pid in pids if alive(pid)]:
        assert time.monotonic() < deadline, "the guardian ends what the killed run had started"
        time.sleep(0.1)
    clear(served)
    output = served.reproduce()
    assert f"the last run here did not end in order (PID {process.pid}, since " in output
    assert query(served, crashed) == [*before, ("all stages",)]
    assert not query(served, "select name from flow_run where state_type = 'RUNNING'")


def test_parameters_changed_back_are_restored_not_run(served: Project) -> None:
    count(served, 12)
    served.reproduce()
    served.ran()
    count(served, 10)
    output = served.reproduce()
    assert served.ran() == []
    assert re.search(r"total\s+│ restored", output)
    assert (served.root / "out/total.txt").read_text() == "285\n"


def test_a_run_stops_the_server_that_it_started(project: Project) -> None:
    output = project.reproduce("numbers")
    assert "watch this run at http://127.0.0.1:" in output
    assert project.ran() == ["numbers"]
    assert not _working_in(project.root)
    assert {state for (state,) in query(project, "select state_type from task_run")} == {"COMPLETED"}


def _working_in(root: Path) -> set[int]:
    """Processes whose current folder is ``root`` or inside it."""
    found = set()
    time.sleep(0.2)
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if (entry / "cwd").resolve().is_relative_to(root) and alive(int(entry.name)):
                found.add(int(entry.name))
    return found


def _served(project: Project) -> set[int]:
    service = server.recorded(project.root, "server")
    assert service is not None
    return {pid for pid in _working_in(project.root) if os.getpgid(pid) == service.pid}


def test_outputs_wait_at_most_a_minute_for_the_next_push(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[list[str]] = []

    class Push:
        def submit(self, names: list[str], title: str) -> None:
            assert title == ", ".join(names)
            sent.append(names)

    clock = [1000.0]
    monkeypatch.setattr("flows.pushes.time.monotonic", lambda: clock[0])
    waiting = pushes.Pushes(Push())  # type: ignore[arg-type]
    assert waiting.due_in() is None
    waiting.add("first")
    assert sent == [["first"]], "the first is pushed immediately"
    clock[0] += 20
    waiting.add("second")
    waiting.add("third")
    assert (len(sent), waiting.due_in()) == (1, 40.0)
    clock[0] += 41
    assert waiting.due_in() == 0.0
    waiting.send()
    waiting.send()
    assert sent == [["first"], ["second", "third"]]
