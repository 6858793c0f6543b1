"""A local Prefect server on SQLite under ``.pathfinder/prefect``, for runs that name no server of their own.

Prefect's mode without a server loses records at exit, so a run starts one here and stops it again. A server that
``python -m flows.deploy up`` left running is used instead and stays.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from pathfinder.core.io import DataError, write_json

HOME = Path(".pathfinder/prefect")
_READY_S = 600.0  # a busy machine; a server that ends by itself is noticed at once
_STOP_S = 15.0


@dataclass(frozen=True, slots=True)
class Service:
    """A background process that we started: its process group, when it started (clock ticks), its address if any."""

    pid: int
    started: int
    url: str = ""


def home(root: Path) -> Path:
    """Prefect's folder of this project."""
    return (root / HOME).absolute()


def environment(root: Path, url: str = "") -> dict[str, str]:
    """Variables for Prefect processes: state under the project, nothing sent anywhere, quick heartbeats."""
    folder = home(root)
    values = {
        "PREFECT_HOME": str(folder),
        "PREFECT_SERVER_DATABASE_CONNECTION_URL": f"sqlite+aiosqlite:///{folder}/prefect.db",
        "PREFECT_FLOWS_HEARTBEAT_FREQUENCY": "30",
    }
    return {**values, "PREFECT_API_URL": url} if url else values


@contextlib.contextmanager
def local_server(root: Path) -> Iterator[str]:
    """Yield a server's address: the one that ``PREFECT_API_URL`` names, one already running here, or a fresh one.

    Only a fresh one is stopped at the end. ``os.environ`` carries the address meanwhile, for child processes.
    """
    named = os.environ.get("PREFECT_API_URL")
    if named:
        yield named
        return
    folder = home(root)
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "run.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise DataError("another run is in progress in this folder; wait for it or end it first") from error
        running = recorded(root, "server")
        service = running or start_server(root)
        before = dict(os.environ)
        os.environ.update(environment(root, service.url))
        try:
            yield service.url
        finally:
            os.environ.clear()
            os.environ.update(before)
            if running is None:
                stop(root, "server")


def start_server(root: Path) -> Service:
    """Start a server in the background and wait until it answers; its output goes to ``server.log``."""
    port = _free_port()
    arguments = ["server", "start", "--host", "127.0.0.1", "--port", str(port)]
    service = start(root, "server", arguments, f"http://127.0.0.1:{port}/api")
    deadline = time.monotonic() + _READY_S
    while not _healthy(service.url):
        if not _is_running(service) or time.monotonic() > deadline:
            stop(root, "server")
            raise DataError(f"the Prefect server did not come up; its output is in {HOME}/server.log")
        time.sleep(0.2)
    return service


def start(root: Path, name: str, arguments: list[str], url: str) -> Service:
    """Start ``prefect ARGUMENTS`` in the background, in a process group of its own, and record it as ``name``."""
    folder = home(root)
    folder.mkdir(parents=True, exist_ok=True)
    interpreter = Path(sys.executable)
    path = os.pathsep.join([str(interpreter.parent), os.environ.get("PATH", "")])
    with (folder / f"{name}.log").open("ab") as log:
        process = subprocess.Popen(
            [str(interpreter), "-m", "prefect", *arguments],
            cwd=root,
            env={**os.environ, **environment(root, url), "PATH": path},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    service = Service(process.pid, _started(process.pid), url)
    write_json(folder / f"{name}.json", asdict(service))
    return service


def recorded(root: Path, name: str) -> Service | None:
    """The service that was recorded as ``name``, where it still runs (and, with an address, answers)."""
    with contextlib.suppress(OSError, ValueError, TypeError):
        service = Service(**json.loads((home(root) / f"{name}.json").read_text()))
        if _is_running(service) and (name != "server" or _healthy(service.url)):
            return service
    return None


def stop(root: Path, name: str) -> bool:
    """End a recorded service with its children; False where none was running."""
    path = home(root) / f"{name}.json"
    try:
        service = Service(**json.loads(path.read_text()))
    except (OSError, ValueError, TypeError):
        return False
    was_running = _is_running(service)
    # The group outlives its leader where a child hangs on, so both signals go to the group.
    for number in (signal.SIGTERM, signal.SIGKILL) if was_running else ():
        with contextlib.suppress(ProcessLookupError):
            os.killpg(service.pid, number)
        deadline = time.monotonic() + _STOP_S
        while _is_running(service) and number == signal.SIGTERM and time.monotonic() < deadline:
            _reap(service.pid)
            time.sleep(0.05)
    _reap(service.pid)
    path.unlink(missing_ok=True)
    return was_running


def _healthy(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=5) as answer:  # noqa: S310  (our own http address)
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def _is_running(service: Service) -> bool:
    """True for the very process that was started: a number that the system gave to another does not count."""
    _reap(service.pid)
    return _started(service.pid) == service.started != 0


def _reap(pid: int) -> None:
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)


def _started(pid: int) -> int:
    """Start time of a process in clock ticks since boot; 0 where there is none or only a zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return 0
    return 0 if fields[0] == "Z" else int(fields[19])


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
