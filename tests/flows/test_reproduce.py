"""The flow on a real local server: order, retries, failures, cancelling, pushing, and the records of the server."""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import signal
import sqlite3
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from flows import server, tasks
from flows.terminal import Terminal
from tests.flows.conftest import Project
from tests.flows.watch import alive, soon, wait_for, working_in
from tests.support import warm
from tests.support.verbs import checked

pytestmark = pytest.mark.slow


@dataclass(frozen=True, slots=True)
class First:
    """The first run, which started and stopped a server of its own."""

    project: Project
    output: str
    ran: list[str]
    left: set[int]


@pytest.fixture(scope="module")
def first(make_project: Callable[[], Project]) -> First:
    project = make_project()
    output = project.reproduce("--jobs", "2")
    return First(project, output, project.ran(), working_in(project.root))


@pytest.fixture(scope="module")
def served(first: First) -> Iterator[Project]:
    """The project after its first run, with a server that keeps running and serves later runs."""
    with warm.starts(), pytest.MonkeyPatch.context() as patch:
        for name, value in warm.NO_BLOCKS.items():
            patch.setenv(name, value)
        server.start_server(first.project.root)
    yield first.project
    server.stop(first.project.root, "server")


def query(project: Project, sql: str) -> list[tuple[object, ...]]:
    with contextlib.closing(sqlite3.connect(project.root / ".pathfinder/prefect/prefect.db")) as database:
        return database.execute(sql).fetchall()


def materialized(project: Project, since: str = "") -> list[dict[str, Any]]:
    """The payloads of the events about outputs, oldest first, with the key of the asset and of those upstream."""
    sql = "select resource_id, payload, related from events where event = 'prefect.asset.materialization.succeeded'"
    found = []
    for key, payload, related in query(project, f"{sql} and occurred > '{since}' order by occurred"):
        from_ = {entry["prefect.resource.id"] for entry in json.loads(str(related)) if role(entry) == "asset"}
        kinds = {role(entry) for entry in json.loads(str(related))}
        found.append({**json.loads(str(payload)), "key": key, "from": from_, "kinds": kinds})
    return found


def now() -> str:
    """The moment, as the server's database writes it."""
    return datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S.%f")


def role(entry: dict[str, str]) -> str:
    return entry["prefect.resource.role"]


def md5(path: Path) -> str:
    return hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest()


def count(project: Project, number: int) -> None:
    (project.root / "params.yaml").write_text(f"count: {number}\n")


def states_by_json(project: Project, code: int, *words: str) -> tuple[dict[str, str], str]:
    """The state of each stage in the document of a run with ``--json``, and what the run wrote on standard error."""
    run = [sys.executable, "-m", "flows.reproduce", "--json", *words]
    done = warm.run(run, cwd=project.root, env=project.environment, capture_output=True, text=True)
    assert done.returncode == code, done.stderr
    return {stage["name"]: stage["state"] for stage in checked("run", done.stdout)["stages"]}, done.stderr


def clear(project: Project) -> None:
    for path in project.root.glob("trap_*.py"):
        path.unlink()


def test_a_run_that_cannot_sign_ends_before_it_starts_anything(project: Project, tmp_path: Path) -> None:
    (tmp_path / ".config").mkdir()
    (tmp_path / ".config/pathfinder").write_text("")  # also root cannot make a file in it
    kept = {name: value for name, value in project.environment.items() if name != "XDG_CONFIG_HOME"}
    output = replace(project, environment={**kept, "HOME": str(tmp_path)}).reproduce(code=1)
    (line,) = [line for line in output.splitlines() if "error" in line]
    assert f"{tmp_path}/.config/pathfinder/signing.pem: cannot be used for signatures" in line
    assert line.endswith("name another file in PATHFINDER_SIGNING_KEY")
    assert project.ran() == []
    assert not (project.root / server.HOME / "server.log").exists()


@pytest.mark.campaign
@pytest.mark.parametrize("days, nights", [(4, 9), pytest.param(14, 30, marks=pytest.mark.campaign)])
def test_the_database_of_the_server_does_not_grow_after_its_days(
    first: First, tmp_path: Path, days: int, nights: int
) -> None:
    """Each night repeats the rows of the first run, and Prefect deletes what the settings of the server tell it to.

    The settings keep a run for 14 days; a smaller number shows the same sooner.
    """
    path = tmp_path / "nights.db"
    files = (first.project.root / ".pathfinder/prefect/prefect.db", path)
    with contextlib.ExitStack() as stack:
        database, copy = (stack.enter_context(contextlib.closing(sqlite3.connect(file))) for file in files)
        database.backup(copy)
    told = server.environment(tmp_path, "") | {server.DATABASE: f"sqlite+aiosqlite:///{path}"}
    kept = "PREFECT_SERVER_SERVICES_DB_VACUUM_RETENTION_PERIOD"
    assert told[kept] == str(14 * 24 * 3600)
    told[kept] = str(days * 24 * 3600)
    command = [sys.executable, "-m", "tests.support.nights", str(path), "2", str(nights)]
    environment = first.project.environment | told
    done = warm.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=True)
    sizes, runs = zip(*json.loads(done.stdout), strict=True)
    assert runs[: days - 1] == tuple(range(3, 2 * days + 1, 2)), "nothing is deleted before its time"
    assert set(runs[days:]) == {runs[days]}, "and everything after it"
    assert max(sizes) < 1.05 * sizes[days + 1] < 2 * sizes[days // 2 - 1], sizes


def test_every_stage_ran_once_in_order_with_its_name_before_each_line(first: First) -> None:
    ran, output, root = first.ran, first.output, first.project.root
    assert (ran[0], set(ran[1:3]), ran[3]) == ("numbers", {"even", "odd"}, "total")
    assert "[square@odd] this is odd" in output
    assert "[square@even] to standard error from even \\x1b[31m[bold]" in output
    assert re.search(r"total\s+│ ran\s+│\s+[\d.]+ │ out/total.txt", output)
    assert (root / "out/total.txt").read_text() == "285\n"
    assert "this is odd" in (root / ".pathfinder/logs/square@odd.log").read_text()
    assert "Lineage of the pipeline" in (root / ".pathfinder/stages.html").read_text()


def test_a_run_stops_the_server_that_it_started(first: First) -> None:
    assert "watch this run at http://127.0.0.1:" in first.output
    assert not first.left


def test_the_server_keeps_logs_states_and_metrics(first: First) -> None:
    states = query(first.project, "select name, state_type from task_run")
    assert {name for name, _ in states} >= {"numbers", "square@even", "push numbers"}
    pushes = [str(name).removeprefix("push ") for name, _ in states if str(name).startswith("push ")]
    assert sorted(", ".join(pushes).split(", ")) == ["numbers", "square@even", "square@odd", "total"], (
        "each stage is pushed once"
    )
    assert len(pushes) < 4, "stages that end within a minute are pushed together"
    assert {state for _, state in states} == {"COMPLETED"}
    logged = "select message from log where message like '%this is odd%' and task_run_id is not null"
    assert query(first.project, logged)
    found = query(first.project, "select key, cast(data as text) from artifact")
    artifacts = {str(key): str(data) for key, data in found}
    assert "| deep.sum | 165 |" in artifacts["metrics-odd"]
    assert "stages" in artifacts


@pytest.mark.parametrize("content", [None, b"\xff", b"stages:\n  one:\n    cmd: [\n"])
def test_no_lock_that_cannot_be_read_fails_a_stage_that_succeeded(content: bytes | None, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "dvc.lock").write_bytes(content)
    assert tasks._made(tmp_path, "one") == {}


def test_the_events_tell_what_each_stage_made_and_from_what(first: First) -> None:
    root = first.project.root
    found = {event["path"]: event for event in materialized(first.project)}
    assert found.keys() == {
        "out/numbers.txt",
        *(f"out/{kind}.txt" for kind in ("even", "odd", "total")),
        *(f"metrics/{kind}.json" for kind in ("even", "odd")),
    }
    for path, event in found.items():
        assert (event["key"], event["md5"]) == (f"dvc://pathfinder-prm/{path}", md5(root / path))
        assert event["kinds"] >= {"flow-run", "task-run", "asset-materialized-by"}
    assert {event["state"] for event in found.values()} == {"ran"}
    total, even = found["out/total.txt"], found["out/even.txt"]
    key = "dvc://pathfinder-prm/{}".format
    assert total["from"] >= {key("make.py"), key("out/even.txt"), key("out/odd.txt")}
    assert even["from"] == {key("make.py"), key("out/numbers.txt")}
    assert even["stage"] == "square@even"
    referenced = query(
        first.project, "select distinct resource_id from events where event = 'prefect.asset.referenced'"
    )
    assert {name for (name,) in referenced} == {*total["from"], *even["from"]}


def test_outs_are_in_storage_with_a_manifest(first: First) -> None:
    storage = first.project.root / ".pathfinder/storage"
    assert len(list((storage / "files/md5").rglob("*"))) >= 8
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
    states, output = states_by_json(served, 1, "--jobs", "2")
    assert states == {"numbers": "ran", "square@even": "ran", "square@odd": "failed", "total": "not started"}
    ran = served.ran()
    assert (ran.count("even"), ran.count("odd"), ran.count("total")) == (2, 1, 0)
    assert "odd cannot be" in output
    unprefixed = [line for line in output.splitlines() if not line.startswith(("[", "│", "┃", "┏", "┡", "├", "└"))]
    assert unprefixed == [], "this project prints the end of a stage, and Prefect no traceback"
    assert output.count("[pathfinder] failed or not started: square@odd, total") == 1
    assert re.search(r"square@odd\s+│ failed", output)
    assert re.search(r"square@even\s+│ ran", output)
    assert re.search(r"total\s+│ not started\s+│\s+│ needs square@odd", output)
    clear(served)
    states, output = states_by_json(served, 0)
    assert served.ran() == ["odd", "total"]
    assert states == {"numbers": "up to date", "square@even": "up to date", "square@odd": "ran", "total": "ran"}
    assert re.search(r"numbers\s+│ up to date", output)


def test_ending_a_run_leaves_no_process_and_the_next_run_resumes(served: Project) -> None:
    before = working_in(served.root)
    count(served, 14)
    served.trap(
        "odd",
        "import subprocess, signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "child = subprocess.Popen(['sleep', '900'])\n"
        "pathlib.Path('pids.txt').write_text(f'{os.getpid()} {os.getppid()} {child.pid}\\n')\ntime.sleep(900)\n",
    )
    process = served.start("-m", "flows.reproduce", "--jobs", "2", "--json")
    pids = [int(pid) for pid in wait_for(served.root / "pids.txt", 200).split()]
    process.send_signal(signal.SIGTERM)
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 128 + signal.SIGTERM, output
    notes, _, document = output.rpartition("\n{\n")
    assert notes.endswith("interrupted; repeat the command to resume")
    named = {stage["name"] for stage in json.loads("{" + document)["stages"]}
    assert "numbers" in named
    assert "square@odd" not in named
    assert not [pid for pid in pids if alive(pid)]
    assert soon(lambda: working_in(served.root) <= before, 5)
    clear(served)
    served.ran()
    served.reproduce()
    assert set(served.ran()) <= {"even", "odd", "total"}, "what had ended is not run again"
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
    assert soon(lambda: not any(map(alive, pids))), "the guardian ends what the killed run had started"
    clear(served)
    served.ran()
    output = served.reproduce("numbers")  # it has nothing to do but to report
    assert served.ran() == []
    assert f"the last run here did not end properly (PID {process.pid}, since " in output
    assert query(served, crashed) == [*before, ("all stages",)]
    assert not query(served, "select name from flow_run where state_type = 'RUNNING'")


@pytest.mark.campaign
def test_a_run_that_is_killed_before_it_knows_its_flow_run_gets_an_end(served: Project) -> None:
    count(served, 16)
    running = "select name from flow_run where state_type in ('PENDING', 'RUNNING')"
    crashed = "select name from flow_run where state_type = 'CRASHED'"
    before = query(served, crashed)
    kill = "lambda *_: os.kill(os.getpid(), signal.SIGKILL)"
    words = "import os, signal; from flows import start; from flows.local.lock import Hold; "
    words += f"Hold.name_flow_run = {kill}; start.main(())"
    served.run("-c", words, code=-9)
    assert query(served, running) == [("all stages",)]
    assert "the last run here did not end properly" in served.reproduce("numbers")
    assert query(served, running) == []
    assert query(served, crashed) == [*before, ("all stages",)]


@pytest.mark.campaign
def test_parameters_changed_back_are_restored_not_run(served: Project) -> None:
    count(served, 12)
    served.run("-m", "dvc", "repro", "-q")
    served.ran()
    count(served, 10)
    since = now()
    output = served.reproduce()
    assert served.ran() == []
    assert re.search(r"total\s+│ restored", output)
    assert soon(lambda: len(materialized(served, since)) >= 6), "the server writes events every few seconds"
    restored = {event["path"]: event for event in materialized(served, since)}
    assert {event["state"] for event in restored.values()} == {"restored"}
    assert {path: event["md5"] for path, event in restored.items()} == {p: md5(served.root / p) for p in restored}
    assert len(restored) == 6
    assert restored["out/total.txt"]["from"] > {"dvc://pathfinder-prm/out/odd.txt"}
    assert (served.root / "out/total.txt").read_text() == "285\n"


def test_outputs_wait_at_most_a_minute_for_the_next_push(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[list[str]] = []

    class Push:
        def submit(self, *names: str) -> None:
            sent.append([*names])

    monkeypatch.setattr(tasks, "store_task", lambda *_: Push())
    clock = [1000.0]
    monkeypatch.setattr("flows.tasks.time.monotonic", lambda: clock[0])
    waiting = tasks.Pushes(print, Terminal())
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
