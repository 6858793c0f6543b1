"""A local Prefect server under ``.pathfinder/prefect``, for runs without ``PREFECT_API_URL``.

Each run starts and stops one, because Prefect's serverless mode loses records at exit. A server that was started to
stay, as a deployment does it, is used instead. It keeps its port, so that a worker and runs find it again after it was
restarted. Its database is SQLite unless ``PREFECT_SERVER_DATABASE_CONNECTION_URL`` is set.
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import json
import os
import shutil
import socket
import ssl
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from http import HTTPStatus
from importlib import import_module
from pathlib import Path
from urllib.parse import urlsplit

import httpx

from flows.local import processes
from flows.local.storage import REMOTE
from ground.io import DataError, TransientError, write_bytes, write_json
from ground.remote import KINDS
from ground.settings import require_address, require_certificate

HOME = Path(".pathfinder/prefect")
_CODE, _SERVER = Path(__file__).parents[1], "flows.database"
_READY_S = 600.0  # long, for busy machines; a server that exits is noticed immediately
_STOP_S = 15.0
_SPACE = 50_000_000
"""Bytes. The database of one server holds 33 MB after a month of nightly runs."""
_ANSWER_S = 30.0  # a busy server must not be replaced
_WAIT_S = 10.0
_STARTS = 3  # another process can take a free port before the server does
_RETRIES = 2  # nobody restarts a server that a run has started
DATABASE = "PREFECT_SERVER_DATABASE_CONNECTION_URL"
LEASES = "PREFECT_SERVER_CONCURRENCY_LEASE_STORAGE"
HEARTBEAT_S = 30
RETENTION = {
    "PREFECT_SERVER_SERVICES_DB_VACUUM_ENABLED": "events,flow_runs",
    "PREFECT_SERVER_SERVICES_DB_VACUUM_RETENTION_PERIOD": str(14 * 24 * 3600),
    "PREFECT_SERVER_EVENTS_RETENTION_PERIOD": "P2D",
}
"""A server deletes records when it starts and every hour: runs with logs and artifacts two weeks after they ended, and
events, which need most of the space, after two days. Otherwise Prefect keeps every run for ever."""
EMPTY = Path(sys.prefix, "prefect.db")
"""A database without records, from ``make env``. A server takes 12 seconds to make its first one step by step."""
_NO_API = "{}: no Prefect API; correct PREFECT_API_URL, which ends in /api, as in http://127.0.0.1:4200/api"


@dataclass(frozen=True, slots=True)
class Service:
    """A background process: its group, its start time in clock ticks, its folder's place, and its address if any."""

    pid: int
    started: int
    place: str
    url: str = ""


def home(root: Path) -> Path:
    """The Prefect folder of this project."""
    return (root / HOME).absolute()


def environment(root: Path, url: str) -> dict[str, str]:
    """Variables for Prefect processes: state under the project, frequent heartbeats, and how long records are kept.

    An existing setting of the database, the leases or the retention is kept.
    """
    folder, page = home(root), url.removesuffix("/api")
    return {
        "PREFECT_HOME": str(folder),
        DATABASE: os.environ.get(DATABASE) or f"sqlite+aiosqlite:///{folder}/prefect.db",
        # Leases in memory would end with the server, and their slots would stay taken.
        LEASES: os.environ.get(LEASES) or "prefect.server.concurrency.lease_storage.filesystem",
        **{name: os.environ.get(name) or default for name, default in RETENTION.items()},
        "PREFECT_FLOWS_HEARTBEAT_FREQUENCY": str(HEARTBEAT_S),
        "PREFECT_WORKER_HEARTBEAT_SECONDS": "10",
        "PREFECT_API_URL": url,
        # Prefect's default lets a page of any site control the server through the user's browser. The server's own page
        # asks 127.0.0.1, also if it was opened as localhost.
        "PREFECT_SERVER_CORS_ALLOWED_ORIGINS": f"{page},{page.replace('//127.0.0.1:', '//localhost:')}",
    }


def named() -> str | None:
    """The address in ``PREFECT_API_URL`` or in Prefect's active profile; raises ``DataError`` if it is not valid."""
    url = os.environ.get("PREFECT_API_URL")
    if not url:
        from prefect.settings import PREFECT_API_URL

        url = PREFECT_API_URL.value() or None
    if url:
        require_address(url, "correct PREFECT_API_URL, as in http://127.0.0.1:4200/api")
    return url


def access() -> tuple[str, dict[str, str]]:
    """The address of the server that this process uses, and the headers with its password if it has one."""
    from prefect.settings import PREFECT_API_AUTH_STRING, PREFECT_API_KEY, PREFECT_API_URL

    password, key = PREFECT_API_AUTH_STRING.value(), PREFECT_API_KEY.value()
    basic = f"Basic {base64.b64encode(password.encode()).decode()}" if password else ""
    authorization = basic or (f"Bearer {key}" if key else "")
    return PREFECT_API_URL.value() or "", {"Authorization": authorization} if authorization else {}


def client(url: str, headers: Mapping[str, str]) -> httpx.Client:
    """A client of the server for code without Prefect, whose import takes seconds; see ``access``.

    It trusts the certificates that Prefect's client would. Raises ``OSError`` if a named file cannot be read.
    """
    named = os.environ.get("PREFECT_API_SSL_CERT_FILE")
    trusted = ssl.create_default_context(cafile=named) if named else httpx.create_ssl_context()  # reads SSL_CERT_FILE
    return httpx.Client(base_url=url, headers=headers, verify=trusted, timeout=_WAIT_S)


def require_answer(url: str) -> None:
    """Ask the server that this process uses, at ``url``, for its version; Prefect's own check ends in a traceback.

    Raises ``TransientError`` if it does not respond, and ``DataError`` if it refuses or is not a Prefect API.
    """
    from prefect.client.base import ServerType
    from prefect.client.orchestration import get_client

    with get_client(sync_client=True) as client:
        if client.server_type is ServerType.CLOUD:
            return
        try:
            client.api_version()
        except httpx.HTTPStatusError as error:
            status = error.response.status_code
            if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
                raise DataError(
                    f"{url}: the Prefect server refuses access (status {status}); set "
                    "PREFECT_API_AUTH_STRING=user:password"
                ) from error
            if error.response.is_server_error:
                raise TransientError(f"{url}: the Prefect server fails (status {status}); see its log") from error
            raise DataError(_NO_API.format(url)) from error
        except httpx.TransportError as error:
            require_certificate(error, url)
            raise TransientError(
                f"{url}: the Prefect server does not respond ({error}); check PREFECT_API_URL"
            ) from error
        except ValueError as error:
            raise DataError(_NO_API.format(url)) from error


def require_space(root: Path) -> None:
    """Raise ``DataError`` unless the disk of Prefect's folder has room for the records of a run."""
    folder = next(path for path in (home(root), *home(root).parents) if path.exists())
    if (free := shutil.disk_usage(folder).free) < _SPACE:
        raise DataError(
            f"{HOME}: its disk has {free / 1e6:.1f} MB left; Prefect's records of a run need {_SPACE / 1e6:.0f} MB; "
            "free space (`df -h`), then run again"
        )


@contextlib.contextmanager
def local_server(root: Path) -> Iterator[str]:
    """Yield the address of ``PREFECT_API_URL``, of a server already running here, or of a new one.

    Only a new server is stopped at the end, and calls to it are repeated less often. Child processes find the address
    in ``os.environ``. Raises ``DataError`` if the server does not start. The caller holds the folder's lock.
    """
    if address := named():
        yield address
        return
    with starting(root):
        running = recorded(root, "server")
        service = running or start_server(root, owned=True)
    from prefect.settings import PREFECT_CLIENT_MAX_RETRIES, temporary_settings

    before = dict(os.environ)
    os.environ.update(environment(root, service.url))
    try:
        with temporary_settings({} if running else {PREFECT_CLIENT_MAX_RETRIES: _RETRIES}):
            yield service.url
    finally:
        os.environ.clear()
        os.environ.update(before)
        if running is None:
            stop(root, "server")


@contextlib.contextmanager
def starting(root: Path) -> Iterator[None]:
    """Let one process at a time look for the folder's server and start it."""
    home(root).mkdir(parents=True, exist_ok=True)
    with (home(root) / "start.lock").open("a") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def start_server(root: Path, owned: bool = False) -> Service:
    """Start a server in the background and wait until it responds; its output goes to ``server.log``.

    It gets the port of the folder's last server if that is free. An ``owned`` server ends with this process. Raises
    ``DataError`` if the server exits or does not respond in time.
    """
    last = _read(root, "server")
    if last and not processes.is_of_folder(last.place, root):
        last = None
    stop(root, "server")  # one that does not respond
    database = home(root) / "prefect.db"
    if EMPTY.exists() and not database.exists() and DATABASE not in os.environ:
        write_bytes(database, EMPTY.read_bytes())
    for _ in range(_STARTS):
        port = _port(last)
        command = [_SERVER, "server", "start", "--host", "127.0.0.1", "--port", str(port)]
        service = start(root, "server", command, f"http://127.0.0.1:{port}/api", owned)
        with contextlib.ExitStack() as unless_ready:
            unless_ready.callback(stop, root, "server")  # also if the run is interrupted
            if owned:
                import_module("prefect.main")  # which this process needs next, and which takes seconds as well
            if _responds(service, root):
                unless_ready.pop_all()
                return service
        if _port(service) == port:  # nobody took the port, so a different one would not help
            break
    raise DataError(f"the Prefect server did not start; see {HOME}/server.log")


def _responds(service: Service, root: Path) -> bool:
    """Wait until the server responds; false if it exits or does not respond in time."""
    deadline = time.monotonic() + _READY_S
    while not _is_ready(service):
        if not _is_running(service, root) or time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    return True


def _is_ready(service: Service) -> bool:
    """Return whether this server responds, and not a different one on its port."""
    with contextlib.suppress(httpx.HTTPError):
        if processes.listens(service.pid, urlsplit(service.url).port or 0):
            return httpx.get(f"{service.url}/health", timeout=_ANSWER_S).status_code == 200
    return False


def _port(last: Service | None) -> int:
    """The port of the last server if it can be bound, otherwise a free one."""
    for port in (urlsplit(last.url).port or 0 if last else 0, 0):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # closed connections of the last server remain
            probe.bind(("127.0.0.1", port))
            return int(probe.getsockname()[1])
    raise DataError("127.0.0.1: no free port for the Prefect server")


def start(root: Path, name: str, command: list[str], url: str, owned: bool = False) -> Service:
    """Start a module with its arguments in the background and record it as ``name``; output goes to ``NAME.log``.

    An ``owned`` service ends with this process. Any other service does not get the remote of this shell, which a worker
    would pass on to its runs: their deployments name the remote.
    """
    folder = home(root)
    folder.mkdir(parents=True, exist_ok=True)
    remote = (REMOTE, *(kind.variable for kind in KINDS.values()))
    variables = {processes.MARK: processes.new_mark(root)} if owned else dict.fromkeys(remote, "")
    variables["PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL"] = "ERROR"  # its log needs what the console of a run does not
    variables["PYTHONPATH"] = os.pathsep.join(filter(None, [str(_CODE), os.environ.get("PYTHONPATH")]))
    with (folder / f"{name}.log").open("ab") as log:
        process = processes.start(command[0], command[1:], root, {**environment(root, url), **variables}, log)
    service = Service(process.pid, processes.start_time(process.pid), processes.place(root), url)
    write_json(folder / f"{name}.json", asdict(service))
    return service


def recorded(root: Path, name: str) -> Service | None:
    """The service of this folder recorded as ``name`` if it still runs and, for a server, responds."""
    service = _read(root, name)
    if service is None or not _is_running(service, root) or (name == "server" and not _is_ready(service)):
        return None
    return service


def stop(root: Path, name: str) -> None:
    """End a recorded service of this folder with its children, if it still runs, and delete the record."""
    service = _read(root, name)
    if service is not None:
        if _is_running(service, root):
            processes.end([service.pid], _STOP_S)
        (home(root) / f"{name}.json").unlink(missing_ok=True)


def _read(root: Path, name: str) -> Service | None:
    with contextlib.suppress(OSError, ValueError, TypeError):
        return Service(**json.loads((home(root) / f"{name}.json").read_text()))
    return None


def known(root: Path) -> str | None:
    """The address of the server that Prefect's settings name, or of the one that runs in this folder."""
    return named() or (running.url if (running := recorded(root, "server")) else None)


def _is_running(service: Service, root: Path) -> bool:
    """Compare places and start times: a copied record names a process elsewhere, and the system reuses numbers."""
    return processes.is_here(service.place, root) and processes.start_time(service.pid) == service.started != 0
