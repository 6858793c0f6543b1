"""Slots of a real server: held while a stage runs, given back if its process is killed or the server restarts."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
from prefect.client.schemas.actions import WorkPoolCreate

from flows import server
from flows.local.dvc import Cancelled
from flows.team.deployment.definition import ORDER, connected, equip, prioritise
from flows.team.pools.slots import LEASE_S, slots_held
from tests.flows.conftest import ROOT
from tests.flows.watch import gone, soon, wait_for

HOLD = """\
import time
from pathlib import Path
from flows.team.pools.slots import slots_held
with slots_held({"gpu": 1}, lambda: None, print):
    Path("held.txt").write_text("held\\n")
    time.sleep(900)
"""
pytestmark = pytest.mark.campaign


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with a running server that has one slot."""
    folder = tmp_path_factory.mktemp("server")
    service = server.start_server(folder)
    before = dict(os.environ)
    os.environ.update(server.environment(folder, service.url))
    try:
        with connected(folder, service.url) as client:
            equip(client, {"gpu": 4})
            equip(client, {"gpu": 1})
        yield folder
    finally:
        os.environ.clear()
        os.environ.update(before)
        server.stop(folder, "server")


def taken(root: Path) -> int:
    service = server.recorded(root, "server")
    assert service is not None
    return int(httpx.get(f"{service.url}/v2/concurrency_limits/gpu", timeout=60).json()["active_slots"])


def test_a_killed_process_gives_its_slot_back_and_a_restarted_server_knows_the_leases(root: Path) -> None:
    holder = subprocess.Popen([sys.executable, "-c", HOLD], cwd=root, env={**os.environ, "PYTHONPATH": str(ROOT)})
    try:
        wait_for(root / "held.txt")
        assert taken(root) == 1
        service = server.recorded(root, "server")
        assert service is not None
        os.killpg(service.pid, signal.SIGKILL)
        assert gone(service.pid)
        assert soon(lambda: server._port(service) == urlsplit(service.url).port), "its sockets close a moment later"
        assert server.start_server(root).url == service.url
        assert taken(root) == 1
    finally:
        holder.kill()
        holder.wait()
    begun = time.monotonic()
    lines: list[str] = []
    with connected(root, service.url), slots_held({"gpu": 1, "unlimited": 3}, lambda: None, lines.append):
        took = time.monotonic() - begun
        assert taken(root) == 1
    print(f"\nthe slot was free {took:.0f} s after the kill")
    assert lines == ["waits for 1 of the slots gpu"]
    assert took < LEASE_S + 60
    assert taken(root) == 0


def test_the_queues_of_a_pool_get_their_priorities_and_other_pools_stay(root: Path) -> None:
    service = server.recorded(root, "server")
    assert service is not None
    with connected(root, service.url) as client:
        for pool in ("pathfinder", "other"):
            client.create_work_pool(WorkPoolCreate(name=pool, type="process"))
        for name in sorted({*ORDER} - {"default"}):  # not in the order of their priorities
            client.create_work_queue(name, work_pool_name="pathfinder")
        for _ in range(2):
            prioritise(client)
            found = {queue.priority: queue.name for queue in client.read_work_queues(work_pool_name="pathfinder")}
            assert found == dict(enumerate(ORDER, start=1))
        assert [queue.priority for queue in client.read_work_queues(work_pool_name="other")] == [1]


def test_a_run_that_ends_stops_waiting(root: Path) -> None:
    service = server.recorded(root, "server")
    assert service is not None
    ended = threading.Event()
    told: list[str] = []

    def check() -> None:
        if ended.is_set():
            raise Cancelled("the run is ending")

    def wait() -> None:
        with contextlib.suppress(Cancelled), connected(root, service.url), slots_held({"gpu": 1}, check, told.append):
            told.append("held")

    with connected(root, service.url), slots_held({"gpu": 1}, lambda: None, print):
        thread = threading.Thread(target=wait)
        thread.start()
        assert soon(lambda: told, 60)
        ended.set()
        thread.join(60)
        assert not thread.is_alive()
    assert told == ["waits for 1 of the slots gpu"]
