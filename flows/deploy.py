"""The nightly deployment of ``prefect.yaml``.

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
from pathfinder.cli import Verbs
from pathfinder.core.io import DataError, write_text
from pathfinder.core.settings import read_yaml

POOL = "pathfinder"
DEPLOYMENT = "reproduce/nightly"
app = typer.Typer(
    cls=Verbs, help="The nightly deployment of prefect.yaml.", add_completion=False, pretty_exceptions_enable=False
)


@app.command()
def up(
    active: Annotated[bool, typer.Option("--active", help="Activate the schedule.")] = False,
    cron: Annotated[str | None, typer.Option(help="Schedule to use instead of the one in prefect.yaml.")] = None,
) -> None:
    """Deploy, or update the deployment; start a worker and, unless PREFECT_API_URL names one, a server."""
    root = Path.cwd()
    definition = read_yaml(root / "prefect.yaml")
    for deployment in definition["deployments"]:
        for schedule in deployment.get("schedules", ()):
            schedule |= {"active": active or schedule["active"], "cron": cron or schedule["cron"]}
    url = _address(root) or server.start_server(root).url
    _prefect(root, url, "work-pool", "create", POOL, "--type", "process", "--overwrite")
    adjusted = root / server.HOME / "prefect.yaml"
    write_text(adjusted, yaml.safe_dump(definition))
    _prefect(root, url, "--no-prompt", "deploy", "--all", "--prefect-file", str(adjusted))
    if server.recorded(root, "worker") is None:
        server.start(root, "worker", ["worker", "start", "--pool", POOL, "--type", "process", "--name", POOL], url)
    print(f"{DEPLOYMENT} is deployed at {url.removesuffix('/api')}; start a run with")
    print(f"  PREFECT_API_URL={url} prefect deployment run {DEPLOYMENT}")


@app.command()
def down() -> None:
    """Delete the deployment and stop the worker with its flow runs, and the server if ``up`` started it."""
    root = Path.cwd()
    server.stop(root, "worker")
    if url := _address(root):
        _prefect(root, url, "--no-prompt", "deployment", "delete", DEPLOYMENT, must_succeed=False)
    server.stop(root, "server")
    print(f"{DEPLOYMENT} is deleted")


@app.command()
def status() -> None:
    """Show the server, the worker and the deployments."""
    root = Path.cwd()
    url, worker = _address(root), server.recorded(root, "worker")
    print(f"server: {url.removesuffix('/api') if url else 'none'}\nworker: {worker.pid if worker else 'none'}")
    if url:
        print(_prefect(root, url, "deployment", "ls").rstrip())


def _address(root: Path) -> str | None:
    running = server.recorded(root, "server")
    return os.environ.get("PREFECT_API_URL") or (running.url if running else None)


def _prefect(root: Path, url: str, *arguments: str, must_succeed: bool = True) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "prefect", *arguments],
        cwd=root,
        env={**os.environ, **server.environment(root, url)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode and must_succeed:
        raise DataError(f"`prefect {' '.join(arguments)}` failed:\n{done.stdout}{done.stderr}")
    return done.stdout


if __name__ == "__main__":
    app()
