"""Measure what a local Prefect server on SQLite sustains: python -m tests.campaigns.fleet.server [SECONDS].

Prints the requests of one run of a deployment without the looks at it, its rows and bytes in the database,
and, with 4 and 32 clients at once, how many requests of those that follow, and how many lives of runs, it answers in a
second. The flow prints five lines; a worker of Prefect executes it.
"""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from pathlib import Path
from statistics import quantiles
from typing import Any

import httpx

from flows import server
from tests.support.prefect_cli import prefect_commands
from tests.support.servers import free_ports

_SERVER = """\
import collections, json, sys
import flows.database  # a server on SQLite that does not refuse writers who come at the same time
import uvicorn
from prefect.server.api.server import create_app
app, counts = create_app(), collections.Counter()
async def counted(scope, receive, send):
    if scope.get("path") == "/counts":
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": json.dumps(counts).encode()})
        return
    if scope["type"] in ("http", "websocket"):
        counts[scope.get("method", "socket") + " " + scope["path"].removeprefix("/api")] += 1
    await app(scope, receive, send)
uvicorn.run(counted, port=int(sys.argv[1]), log_level="error")
"""
_FLOW = """\
import time
from prefect import flow, get_run_logger
@flow(name="stage", persist_result=False)
def stage(seconds: float = 2.0) -> None:
    for number in range(5):
        get_run_logger().info("line %d", number)
    time.sleep(seconds)
"""
_RUNS = 12


def main() -> None:
    """Run the command line."""
    seconds = float(sys.argv[1]) if sys.argv[1:] else 10.0
    with tempfile.TemporaryDirectory(prefix="server-") as home, httpx.Client(timeout=60) as client:
        root, (port,) = Path(home), free_ports(1)
        url = f"http://127.0.0.1:{port}/api"
        (root / "flow.py").write_text(_FLOW)
        environment = {**os.environ, **server.environment(root, url), "PYTHONPATH": os.getcwd()}
        server.home(root).mkdir(parents=True)

        def start(*words: str) -> subprocess.Popen[bytes]:
            return subprocess.Popen([sys.executable, *words], cwd=root, env=environment, stdout=subprocess.DEVNULL)

        processes = [start("-c", _SERVER, str(port))]
        try:
            _until(lambda: client.get(f"{url}/health").status_code == 200)
            deploy = ("--no-prompt", "deploy", "flow.py:stage", "-n", "cpu", "-p", "cpu", "--tag", "pathfinder")
            assert (
                start(*prefect_commands([("work-pool", "create", "cpu", "--type", "process"), deploy])).wait(300) == 0
            )
            processes.append(start("-m", "prefect", "worker", "start", "--pool", "cpu", "--limit", "4"))
            _until(lambda: client.post(f"{url}/work_pools/cpu/workers/filter", json={}).json())
            _life(client, url, server.home(root) / "prefect.db")
            processes.pop().terminate()
            run = client.post(f"{url}/flow_runs/filter", json={"limit": 1}).json()[0]["id"]
            deployment = client.get(f"{url}/deployments/name/stage/cpu").json()["id"]
            print("load:", *os.getloadavg())
            for clients in (4, 32):
                _hammer("requests that follow runs", 2, partial(_follow, url=url, run=run), clients, seconds)
                _hammer("lives of runs", 1, partial(_live, url=url, deployment=deployment), clients, seconds)
        finally:
            for process in processes:
                process.terminate()
                process.wait(60)


def _life(client: httpx.Client, url: str, database: Path) -> None:
    """Print the requests, rows and bytes of a run that a worker executes."""
    deployment = client.get(f"{url}/deployments/name/stage/cpu").json()["id"]
    time.sleep(30)  # the worker's own requests
    idle = _counts(client, url)
    time.sleep(30)
    before, rows, begin = _counts(client, url), _rows(database), time.monotonic()
    rate = {name: (before[name] - idle[name]) / 30 for name in before}
    runs = [client.post(f"{url}/deployments/{deployment}/create_flow_run", json={}).json()["id"] for _ in range(_RUNS)]
    for run in runs:
        _until(partial(_is_completed, client, f"{url}/flow_runs/{run}"), 5.0)
    time.sleep(15)  # the last logs and events
    spent, now = time.monotonic() - begin, _counts(client, url)
    own = Counter({name: (now[name] - before[name] - rate.get(name, 0.0) * spent) / _RUNS for name in now})
    print("a worker without runs, requests a second:", {name: round(n, 2) for name, n in rate.items() if n > 0.02})
    print("requests of a run:", round(sum(own.values()), 1), {name: round(n, 1) for name, n in own.most_common(14)})
    after = _rows(database)
    more = {name: (after[name][0] - rows.get(name, (0, 0))[0]) / _RUNS for name in after}
    print("rows of a run:", {name: round(number, 1) for name, number in more.items() if number > 0.2})
    size = sum(after[name][1] - rows.get(name, (0, 0))[1] for name in after) / _RUNS
    kept = sum(after[name][1] - rows.get(name, (0, 0))[1] for name in ("events", "event_resources"))
    print(f"bytes of a run in the database: {size:.0f}; of one event: {kept / _RUNS / more['events']:.0f}")


def _is_completed(client: httpx.Client, url: str) -> bool:
    return bool(client.get(url).json()["state_type"] == "COMPLETED")


def _follow(client: httpx.Client, url: str, run: str) -> None:
    """One look at a run as flows.team.pools.away takes it: its state and its new lines."""
    client.get(f"{url}/flow_runs/{run}").raise_for_status()
    wanted = {"flow_run_id": {"any_": [run]}, "timestamp": {"after_": "2026-01-01T00:00:00Z"}}
    client.post(f"{url}/logs/filter", json={"logs": wanted, "limit": 200}).raise_for_status()


def _live(client: httpx.Client, url: str, deployment: str) -> None:
    """The writes of a run's life: it is created, changes its state three times, and has a line."""
    run = client.post(f"{url}/deployments/{deployment}/create_flow_run", json={}).raise_for_status().json()["id"]
    for state in ("PENDING", "RUNNING", "COMPLETED"):
        change = {"state": {"type": state}, "force": True}
        client.post(f"{url}/flow_runs/{run}/set_state", json=change).raise_for_status()
    line = {"name": "x", "level": 20, "message": "line", "timestamp": "2026-11-28T00:00:00Z", "flow_run_id": run}
    client.post(f"{url}/logs/", json=[line]).raise_for_status()


def _hammer(name: str, each: int, act: Callable[[httpx.Client], None], clients: int, seconds: float) -> None:
    end, took, failed = time.monotonic() + seconds, list[float](), list[str]()

    def again(_: int) -> None:
        with httpx.Client(timeout=60) as client:
            while (begin := time.monotonic()) < end:
                try:
                    act(client)
                except httpx.HTTPError as error:
                    failed.append(str(error))
                else:
                    took.append(time.monotonic() - begin)

    with ThreadPoolExecutor(clients) as threads:
        list(threads.map(again, range(clients)))
    slow = quantiles(took, n=20)[-1] if len(took) > 1 else seconds
    print(
        f"{name}, {clients} clients: {each * len(took) / seconds:.0f} a second, 95 % within {slow:.2f} s, "
        f"{len(failed)} refused"
    )


def _counts(client: httpx.Client, url: str) -> Counter[str]:
    """The requests until now, with one name for all runs."""
    found: Mapping[str, int] = client.get(url.removesuffix("/api") + "/counts").json()
    counts = Counter[str]()
    for name, number in found.items():
        counts["/".join("ID" if len(part) == 36 else part for part in name.split("/"))] += number
    counts.pop("GET /flow_runs/ID", None)  # this script asks it
    return counts


def _rows(database: Path) -> dict[str, tuple[int, int]]:
    """The rows and bytes of each table, with its indexes."""
    with closing(sqlite3.connect(database)) as connection:
        tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        sizes = "SELECT SUM(d.payload) FROM dbstat d JOIN sqlite_master m ON m.name = d.name WHERE m.tbl_name = ?"
        return {
            name: (
                connection.execute(f'SELECT COUNT(*) FROM "{name}"').fetchone()[0],  # noqa: S608
                connection.execute(sizes, (name,)).fetchone()[0] or 0,
            )
            for name in tables
        }


def _until(is_true: Callable[[], Any], pause_s: float = 0.5, patience_s: float = 300.0) -> None:
    end = time.monotonic() + patience_s
    while time.monotonic() < end:
        try:
            if is_true():
                return
        except httpx.TransportError:
            pass
        time.sleep(pause_s)
    raise TimeoutError("the server or a run was not ready in time")


if __name__ == "__main__":
    main()
