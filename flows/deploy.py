"""The deployments of ``prefect.yaml`` for this folder: a worker here runs them here.

Run     python -m flows.deploy up [--active] [--cron "0 2 * * *"]
        python -m flows.deploy down | status
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer
import yaml

from flows import server
from flows.deployment import definition
from pathfinder.cli import Verbs
from pathfinder.core.io import DataError, write_text

_WORKER_S = 90.0
app = typer.Typer(
    cls=Verbs, help="The deployments of prefect.yaml here.", add_completion=False, pretty_exceptions_enable=False
)


@app.command()
def up(
    active: Annotated[
        bool | None, typer.Option("--active/--inactive", help="Activate or pause schedules (default: as they are).")
    ] = None,
    cron: Annotated[str | None, typer.Option(help="Schedule of the nightly (default: as it is).")] = None,
) -> None:
    """Deploy, or update what is deployed; start a worker and, unless Prefect's settings name one, a server.

    Refuses to report success before the worker reports to the server.
    """
    from flows.deployment import records

    root = Path.cwd()
    list(definition.names(root))  # before anything starts
    url = server.named() or (server.recorded(root, "server") or server.start_server(root)).url
    with records.connected(root, url) as client:
        records.ensure_pool(client, root)
        present = records.present(client, root)
        file = root / server.HOME / "prefect.yaml"
        write_text(file, yaml.safe_dump(definition.adjusted(root, present, active, cron)))
        _prefect(root, url, "--no-prompt", "deploy", "--all", "--prefect-file", str(file))
        records.watch_heartbeats(client, root)
        since = records.now()
        worker = server.recorded(root, "worker")
        if worker is None or worker.url != url or not records.wait_for_worker(client, root, since, _WORKER_S / 2):
            server.stop(root, "worker")
            _start_worker(root, url)
            if not records.wait_for_worker(client, root, since, _WORKER_S):
                raise DataError(f"the worker does not report to {url}; see {server.HOME}/worker.log")
    print(f"{_listed(root)} deployed at {url.removesuffix('/api')}; start a run with")
    print(f"  PREFECT_API_URL={url} prefect deployment run {'/'.join(next(definition.names(root)))}")


@app.command()
def down() -> None:
    """Delete this folder's deployments and stop the worker with its flow runs, and the server if ``up`` started it."""
    root = Path.cwd()
    server.stop(root, "worker")
    try:
        if url := _address(root):
            from flows.deployment import records

            with records.connected(root, url) as client:
                print(f"deleted: {', '.join(records.remove(client, root)) or 'nothing'}")
    finally:
        server.stop(root, "server")


@app.command()
def status() -> None:
    """Show the server, the worker and the deployments."""
    root = Path.cwd()
    url, worker = _address(root), server.recorded(root, "worker")
    print(f"server: {url.removesuffix('/api') if url else 'none'}\nworker: {worker.pid if worker else 'none'}")
    if url:
        print(_prefect(root, url, "deployment", "ls").rstrip())


def _listed(root: Path) -> str:
    found = ["/".join(name) for name in definition.names(root)]
    return f"{', '.join(found)} {'is' if len(found) == 1 else 'are'}"


def _start_worker(root: Path, url: str) -> None:
    pool = definition.pool_name(root)
    server.start(root, "worker", ["worker", "start", "--pool", pool, "--type", "process", "--name", pool], url)


def _address(root: Path) -> str | None:
    running = server.recorded(root, "server")
    return server.named() or (running.url if running else None)


def _prefect(root: Path, url: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "prefect", *arguments],
        cwd=root,
        env={**os.environ, **server.environment(root, url)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise DataError(f"`prefect {' '.join(arguments)}` failed:\n{done.stdout}{done.stderr}")
    return done.stdout


if __name__ == "__main__":
    app()
