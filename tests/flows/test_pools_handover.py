"""Handover between the flow and a worker: committed code, inputs, and results that are checked before they count."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import nullcontext
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from uuid import uuid4

import pytest
from prefect.client.schemas.objects import FlowRun, Log, StateType
from prefect.client.schemas.objects import State as RunState
from prefect.settings import PREFECT_API_URL, temporary_settings
from prefect.states import Cancelled, Completed, Crashed, Failed, Pending, Running

from evidence.dvc.history import next_run
from evidence.dvc.lock import drop
from evidence.dvc.stores import object_file
from evidence.remote.made import Order, compare, hand_back, receive
from flows.local import storage
from flows.local.dvc import Cancelled as Ended
from flows.local.dvc import Dvc
from flows.local.graph import load_graph
from flows.places import WorkerLost
from flows.team.pools.away import Away, _new_lines
from flows.team.pools.order import changed_params, committed, needed, place
from flows.team.pools.table import Needs
from ground.io import DataError, TransientError
from tests.flows.conftest import Project
from tests.flows.test_branch import git

STAGE = "square@even"


def published(project: Project) -> Path:
    """The project in git, with recorded stages and an origin that has its commit; returns the origin."""
    pipeline = (project.root / "dvc.yaml").read_text()
    (project.root / "dvc.yaml").write_text(
        pipeline.replace("cmd: python make", "cmd: python -m evidence record -- python make")
    )
    (project.root / ".gitignore").write_text("/out/\n/metrics/\n/.pathfinder/\n/ran.txt\n__pycache__/\n")
    (project.root / ".dvc/.gitignore").write_text("/config.local\n/tmp\n/cache\n")
    git(project.root, "checkout", "-q", "-b", "main")
    git(project.root, "add", ".")
    git(project.root, "commit", "-qm", "A small project")
    origin = project.root.parent / f"{project.root.name}.git"
    git(project.root, "clone", "-q", "--bare", ".", str(origin))
    git(project.root, "remote", "add", "origin", str(origin))
    return origin


def test_only_code_that_everyone_can_fetch_is_sent(project: Project) -> None:
    root = project.root
    with pytest.raises(DataError, match="no git commit"):
        committed(root, load_graph(root), [STAGE])
    published(project)
    graph = load_graph(root)
    head = committed(root, graph, [STAGE])
    assert (len(head), changed_params(root)) == (40, "")
    (root / "notes.txt").write_text("no stage reads this\n")
    (root / "params.yaml").write_text("count: 5\n")
    assert committed(root, graph, [STAGE]) == head
    assert changed_params(root) == "count: 5\n", "parameters are sent, not committed"
    (root / "make.py").write_text((root / "make.py").read_text() + "\n")
    with pytest.raises(DataError, match=r"^make.py: not committed; .* `pool: here` in infra/resources.yaml"):
        committed(root, graph, [STAGE])
    git(root, "commit", "-qm", "A change", "make.py")
    with pytest.raises(DataError, match=r"is not on git's origin, where workers get their code; push it"):
        committed(root, graph, [STAGE])
    git(root, "push", "-q", "origin", "main")
    assert committed(root, graph, [STAGE]) != head


@pytest.mark.usefixtures("warm_starts")
def test_a_result_comes_back_as_the_worker_named_it(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    origin = published(project)
    monkeypatch.setenv(storage.REMOTE, str(tmp_path / "bucket"))
    worker = Dvc(tmp_path / "clone")
    git(tmp_path, "clone", "-q", str(origin), "clone")
    flow = Dvc(project.root)
    for each in (flow, worker):
        storage.configure(each.root)
    bucket = str(tmp_path / "bucket")
    head = committed(flow.root, load_graph(flow.root), [STAGE])

    flow.reproduce("numbers", on_line=print)
    assert flow.restore(STAGE) is None, "nothing has made it yet"
    assert project.ran() == ["numbers"], "and to ask does not run it"
    flow.push("numbers")
    inputs = needed(flow.root, load_graph(flow.root), STAGE)
    assert list(inputs) == ["numbers"]

    outside = {"numbers": [{"path": "../outside.txt", "md5": inputs["numbers"][0]["md5"]}]}
    with pytest.raises(DataError, match=r"'\.\./outside\.txt', which is not an output of dvc\.yaml"):
        place(worker, STAGE, outside)
    assert place(worker, STAGE, inputs) == 1
    assert worker.reproduce(STAGE, on_line=print) == "ran"
    assert (worker.root / "ran.txt").read_text().split()[0] == "even", "the stage before it did not run there"
    worker.push(STAGE)
    made = hand_back(worker.root, STAGE, "ran", bucket)
    assert made.outs.keys() == {"out/even.txt", "metrics/even.json"}

    content = object_file(tmp_path / "bucket", made.outs["out/even.txt"]).read_bytes()
    receive(flow.root, Order(next_run(flow.root, load_graph(flow.root).stages[STAGE]), head), made, bucket, print)
    drop(flow.root, {STAGE})
    assert flow.restore(STAGE) == "restored"
    compare(flow.root, STAGE, made)
    assert project.ran() == []
    assert (flow.root / "out/even.txt").read_bytes() == content
    with pytest.raises(DataError, match=r"square@even: the worker made out/even.txt with md5 other, but here it is"):
        compare(flow.root, STAGE, made.model_copy(update={"outs": {**made.outs, "out/even.txt": "other"}}))


@pytest.mark.parametrize(
    ("state", "error", "message"),
    [
        (
            Failed(name="Error", message="`dvc repro` failed:\nno"),
            DataError,
            "in pool gpu: `dvc repro` failed: no (run",
        ),
        (Failed(name="Transient", message="later"), TransientError, "later"),
        (Crashed(message="no heartbeat"), WorkerLost, "no heartbeat"),
        (Cancelled(), DataError, "was cancelled"),
    ],
)
def test_a_run_that_did_not_complete_is_one_line(
    project: Project, state: RunState[None], error: type[Exception], message: str
) -> None:
    away = Away(Dvc(project.root), load_graph(project.root), "s3://bucket")
    away.needs = {STAGE: Needs(pool="gpu")}
    run = FlowRun(id=uuid4(), flow_id=uuid4(), state=state)
    with pytest.raises(error) as caught:
        away._require_completed(STAGE, run)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_failure_of_a_worker_s_run_shows_no_traceback() -> None:
    """Prefect logs one of its own for each run that failed; the state has the cause."""
    texts = (
        "Running stage",
        "Engine execution exited with unexpected exception\nTraceback (most recent call last):\n  x",
    )
    logs = [
        Log(id=uuid4(), name="prefect.flow_runs", level=20, message=text, timestamp=datetime.now(UTC)) for text in texts
    ]
    server = cast(Any, SimpleNamespace(read_logs=lambda *_, **__: logs))
    assert [*_new_lines(server, uuid4(), {})] == ["Running stage"]


def test_the_threads_that_follow_parts_ask_the_server_of_the_run(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``make deploy`` sets no variable: only Prefect's settings in the context of the flow name that server."""
    asked: list[str | None] = []

    def follow(*_: object) -> FlowRun:
        asked.append(PREFECT_API_URL.value())
        return FlowRun(id=uuid4(), flow_id=uuid4(), state=Completed())

    away = Away(Dvc(project.root), load_graph(project.root), "s3://bucket")
    away.needs = {STAGE: Needs(pool="gpu", parts=2)}
    away._commit = "0" * 40
    for name, answer in (("_prepare", lambda *_: None), ("_start", lambda *_: None), ("_follow", follow)):
        monkeypatch.setattr(away, name, answer)
    with temporary_settings({PREFECT_API_URL: "http://team/api"}):
        assert away.run_parts(STAGE, False, print) is None
    assert asked == ["http://team/api"] * 2


def test_a_run_that_starts_while_the_flow_ends_is_cancelled(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    away = Away(Dvc(project.root), load_graph(project.root), "s3://bucket")
    away.needs, away._pools = {STAGE: Needs(pool="gpu")}, {"gpu": "gpu"}
    run, states = FlowRun(id=uuid4(), flow_id=uuid4(), state=Running()), list[RunState[None]]()
    answers = {"read_flow_run": lambda _: run, "read_logs": lambda *_, **__: []}
    server = SimpleNamespace(**answers, set_flow_run_state=lambda _, state, **__: states.append(state))
    monkeypatch.setattr("flows.team.pools.away.get_client", lambda **_: nullcontext(server))
    monkeypatch.setattr(away.leases, "watch", lambda *_: bool)
    away.stop()
    with pytest.raises(Ended, match="the run is ending"):
        away._follow(STAGE, run, print)
    assert [state.type for state in states] == [StateType.CANCELLING]


def test_a_run_whose_worker_is_lost_before_it_starts_is_lost(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other worker of the pool cannot take it: the run waits for no worker any more."""
    away = Away(Dvc(project.root), load_graph(project.root), "s3://bucket")
    away.needs, away._pools = {STAGE: Needs(pool="gpu")}, {"gpu": "gpu"}
    run = FlowRun(id=uuid4(), flow_id=uuid4(), state=Pending(), labels={"prefect.worker.name": "m1"})
    workers = [SimpleNamespace(name="m1", status="OFFLINE"), SimpleNamespace(name="m2", status="ONLINE")]
    server = SimpleNamespace(
        read_flow_run=lambda _: run,
        read_logs=lambda *_, **__: [],
        read_workers_for_work_pool=lambda _: workers,
        set_flow_run_state=lambda _, state, **__: setattr(run, "state", state),
    )
    monkeypatch.setattr("flows.team.pools.away.get_client", lambda **_: nullcontext(server))
    monkeypatch.setattr("flows.team.pools.away.LOST_AFTER_S", 0)
    monkeypatch.setattr("flows.team.pools.away.pause_s", lambda *_: 0.01)
    monkeypatch.setattr(away.leases, "watch", lambda *_: bool)
    threading.Timer(20, away.stop).start()
    with pytest.raises(WorkerLost, match="its machine or process is gone"):
        away._require_completed(STAGE, away._follow(STAGE, run, print))


def test_results_must_be_where_workers_reach_them(
    make_project: Callable[[], Project], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(storage.REMOTE, raising=False)
    root = make_project().root
    away = Away(Dvc(root), load_graph(root), str(storage.DEFAULT))
    away.check({STAGE})  # no stage leaves, so nothing is needed
    away.needs = {**away.needs, STAGE: Needs(pool="gpu")}
    for address in (str(storage.DEFAULT), str(tmp_path / "shared")):  # config.local may name an absolute one
        away.address = address
        with pytest.raises(DataError, match=f"square@even runs in pool gpu, but results go to {address}; set PATHF"):
            away.check({STAGE})
