"""The nightly deployment of ``prefect.yaml``.

Run     python -m flows.deploy up [--active] [--cron "0 2 * * *"]
        python -m flows.deploy down | status

``up`` starts a server that keeps running (unless ``PREFECT_API_URL`` names one), creates the process work pool, deploys
and starts a worker. ``down`` deletes the deployment and stops the processes that ``up`` started.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import yaml

from flows import server
from pathfinder.core.io import DataError, PathfinderError, write_text
from pathfinder.provenance.pipeline import read_yaml

POOL = "pathfinder"
DEPLOYMENT = "reproduce/nightly"


def up(root: Path, active: bool = False, cron: str | None = None) -> str:
    """Deploy, or update the deployment, and start the processes that it needs; returns the server's address.

    Raises ``DataError`` if there is no prefect.yaml, the server does not start, or a Prefect command fails.
    """
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
    return url


def down(root: Path) -> None:
    """Delete the deployment and stop the worker with its flow runs, and the server if ``up`` started it."""
    server.stop(root, "worker")
    if url := _address(root):
        _prefect(root, url, "--no-prompt", "deployment", "delete", DEPLOYMENT, must_succeed=False)
    server.stop(root, "server")


def status(root: Path) -> str:
    """The server, the worker and the deployments as text."""
    url = _address(root)
    worker = server.recorded(root, "worker")
    lines = [f"server: {url.removesuffix('/api') if url else 'none'}", f"worker: {worker.pid if worker else 'none'}"]
    if url:
        lines.append(_prefect(root, url, "deployment", "ls").rstrip())
    return "\n".join(lines)


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


def main(argv: Sequence[str] | None = None) -> None:
    """Start, stop or show the deployment."""
    parser = argparse.ArgumentParser(prog="python -m flows.deploy", description=(__doc__ or "").split("\n", 1)[0])
    verbs = parser.add_subparsers(dest="verb", required=True)
    start = verbs.add_parser("up", help="deploy; start a server and a worker unless they run")
    start.add_argument("--active", action="store_true", help="activate the schedule")
    start.add_argument("--cron", help="schedule to use instead of the one in prefect.yaml")
    verbs.add_parser("down", help="delete the deployment; stop the worker and the server")
    verbs.add_parser("status", help="show the server, the worker and the deployments")
    arguments = parser.parse_args(argv)
    root = Path.cwd()
    try:
        if arguments.verb == "up":
            url = up(root, arguments.active, arguments.cron)
            print(f"{DEPLOYMENT} is deployed at {url.removesuffix('/api')}; start a run with")
            print(f"  PREFECT_API_URL={url} prefect deployment run {DEPLOYMENT}")
        elif arguments.verb == "down":
            down(root)
            print(f"{DEPLOYMENT} is deleted")
        else:
            print(status(root))
    except PathfinderError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
