"""The nightly deployment of ``prefect.yaml``: up, down, status.

Run     python -m flows.deploy up [--active] [--cron "0 2 * * *"]
        python -m flows.deploy down | status

``up`` starts a server that stays (unless ``PREFECT_API_URL`` names one), makes the process work pool, deploys, and
starts a worker. ``down`` pauses the schedule, deletes the deployment and stops what ``up`` started.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from flows import server
from pathfinder.core.io import DataError, write_text

POOL = "pathfinder"
DEPLOYMENT = "reproduce/nightly"


def up(root: Path, active: bool = False, cron: str | None = None) -> str:
    """Deploy and start what serves the deployment; repeating it renews the deployment. Returns the server's address."""
    definition = root / "prefect.yaml"
    if not definition.is_file():
        raise DataError(f"{definition.absolute()}: no such file; run this in the project's folder")
    url = _address(root) or server.start_server(root).url
    _prefect(root, url, "work-pool", "create", POOL, "--type", "process", "--overwrite")
    adjusted = root / server.HOME / "prefect.yaml"
    write_text(adjusted, yaml.safe_dump(_scheduled(yaml.safe_load(definition.read_text()), active, cron)))
    _prefect(root, url, "--no-prompt", "deploy", "--all", "--prefect-file", str(adjusted))
    if server.recorded(root, "worker") is None:
        server.start(root, "worker", ["worker", "start", "--pool", POOL, "--type", "process", "--name", POOL], url)
    return url


def down(root: Path) -> None:
    """Take the deployment down and stop the worker and the server that ``up`` started, flow runs included."""
    server.stop(root, "worker")
    url = _address(root)
    if url:
        _prefect(root, url, "--no-prompt", "deployment", "delete", DEPLOYMENT, fails_well=True)
    server.stop(root, "server")


def status(root: Path) -> str:
    """One line about each part."""
    url = _address(root)
    worker = server.recorded(root, "worker")
    lines = [f"server: {url.removesuffix('/api') if url else 'none'}", f"worker: {worker.pid if worker else 'none'}"]
    if url:
        lines.append(_prefect(root, url, "deployment", "ls").rstrip())
    return "\n".join(lines)


def _address(root: Path) -> str | None:
    named = os.environ.get("PREFECT_API_URL")
    running = server.recorded(root, "server")
    return named or (running.url if running else None)


def _scheduled(definition: dict[str, Any], active: bool, cron: str | None) -> dict[str, Any]:
    for deployment in definition["deployments"]:
        for schedule in deployment.get("schedules", ()):
            schedule["active"] = active or schedule["active"]
            schedule["cron"] = cron or schedule["cron"]
    return definition


def _prefect(root: Path, url: str, *arguments: str, fails_well: bool = False) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "prefect", *arguments],
        cwd=root,
        env={**os.environ, **server.environment(root, url)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode and not fails_well:
        raise DataError(f"`prefect {' '.join(arguments)}` failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def main(argv: Sequence[str] | None = None) -> None:
    """Put the deployment up, take it down, or show it."""
    parser = argparse.ArgumentParser(prog="python -m flows.deploy", description=(__doc__ or "").split("\n", 1)[0])
    verbs = parser.add_subparsers(dest="verb", required=True)
    start = verbs.add_parser("up", help="deploy, and start server and worker where none is")
    start.add_argument("--active", action="store_true", help="switch the schedule on")
    start.add_argument("--cron", help="another schedule than prefect.yaml's")
    verbs.add_parser("down", help="delete the deployment, stop worker and server")
    verbs.add_parser("status", help="what is up")
    arguments = parser.parse_args(argv)
    root = Path.cwd()
    try:
        if arguments.verb == "up":
            url = up(root, arguments.active, arguments.cron)
            print(f"{DEPLOYMENT} is up at {url.removesuffix('/api')}; start it now with")
            print(f"  PREFECT_API_URL={url} prefect deployment run {DEPLOYMENT}")
        elif arguments.verb == "down":
            down(root)
            print(f"{DEPLOYMENT} is down")
        else:
            print(status(root))
    except DataError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
