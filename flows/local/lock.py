"""The lock of a project folder: one run at a time, whichever Prefect server it reports to.

The lock file says who holds it. A run that was killed releases the lock but leaves its entry: the next run finds it,
ends the processes that the dead run left behind, and can tell the server that the dead run has ended.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import subprocess
import time
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import IO, Any

from flows.local import guardian, processes
from ground.io import DataError, write_json

LOCK = Path(".pathfinder/run.lock")
DVC_LOCKS = Path(".dvc/tmp/rwlock")
"""DVC's list of the paths that its processes read and write. DVC replaces it in two steps."""
_WRITTEN_S, _NAMED_S = 0.5, 5.0


@dataclass(frozen=True, slots=True)
class Holder:
    """The run that holds the lock of a folder; its flow run has the tag ``tag`` before this process knows its id."""

    pid: int
    command: str
    since: str
    place: str
    flow_run: str = ""
    tag: str = ""

    def __str__(self) -> str:
        return f"PID {self.pid}, since {self.since}: {self.command}"


@dataclass
class Hold:
    """The lock while this process has it.

    ``previous`` is a run that did not end properly, ``ended`` are the commands that it had left running. Unless this
    run ``is_reported``, its flow run has no final state; the guardian gives it one, or else the next run.
    """

    holder: Holder
    previous: Holder | None
    ended: list[str]
    _root: Path
    _handle: IO[str]
    _guardian: subprocess.Popen[bytes]
    is_reported: bool = True
    _run: dict[str, Any] = field(default_factory=dict)

    def name_flow_run(self, flow_run: str, api: str = "", headers: Mapping[str, str] | None = None) -> None:
        """Remember the flow run: if this process is killed, the guardian tells ``api``, or else the next run does."""
        self.holder = replace(self.holder, flow_run=flow_run)
        _write(self._handle, json.dumps(asdict(self.holder)))
        if flow_run and api:
            self._run = {"root": str(self._root), "flow_run_id": flow_run, "api": api, "headers": dict(headers or {})}
            guardian.write(self._guardian, {**self._run, "cause": f"its process was killed: {self.holder}"})

    def lose_server(self) -> None:
        """Leave the end of the flow run to the guardian, should the server come back, or else to the next run."""
        self.is_reported = False
        if self._run:
            guardian.write(self._guardian, {**self._run, "cause": f"the Prefect server ended: {self.holder}"})


_held: dict[Path, Hold] = {}


@contextlib.contextmanager
def held(root: Path) -> Iterator[Hold]:
    """Hold the folder's lock; a second call in the same process shares it.

    Ends what a killed run left behind, tidies DVC's list of locks, and starts a guardian that ends what this
    run leaves. Raises ``DataError``, which names the holder, if another process has the lock.
    """
    folder = root.absolute()
    if folder in _held:
        yield _held[folder]
        return
    path = folder / LOCK
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+", encoding="utf-8") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise DataError(
                f"another run is in progress in this folder ({_present(handle)}); wait for it or end it"
            ) from error
        previous = _left(handle, folder)
        command, since = processes.command_of(os.getpid()), time.strftime("%Y-%m-%d %H:%M:%S")
        holder = Holder(os.getpid(), command, since, processes.place(folder), tag=f"run-{uuid.uuid4().hex[:16]}")
        _write(handle, json.dumps(asdict(holder)))
        left = processes.orphans(root)
        ended = [f"PID {pid}: {processes.command_of(pid)}" for pid in left]
        for mark in {*left.values()}:
            processes.end_owned(mark)
        _tidy(folder / DVC_LOCKS)
        watcher = guardian.start()
        hold = _held[folder] = Hold(holder, previous, ended, folder, handle, watcher)
        try:
            yield hold
        finally:
            del _held[folder]
            watcher.communicate(b"{}\n" if hold.is_reported else None)
            if hold.is_reported:
                _write(handle, "")


def _present(handle: IO[str]) -> Holder | str:
    """The run that has the lock: it writes its entry a moment later, over the entry of a run that was killed."""
    deadline = time.monotonic() + _NAMED_S
    while (holder := _read(handle)) is None or processes.command_of(holder.pid) != holder.command:
        if time.monotonic() > deadline:
            return holder or "it has just started"
        time.sleep(0.05)
    return holder


def left_by(root: Path) -> Holder | None:
    """The last run in the folder if it did not end properly; ``None`` if it ended properly or still runs."""
    if not (path := root / LOCK).exists():
        return None
    with path.open(encoding="utf-8") as handle, contextlib.suppress(BlockingIOError):
        if _read(handle):  # otherwise a run may need the lock at this moment
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return _left(handle, root)
    return None


def _left(handle: IO[str], root: Path) -> Holder | None:
    """The entry of a run in this folder; a copied file has the entry of a run elsewhere, which may continue."""
    holder = _read(handle)
    return holder if holder and processes.is_of_folder(holder.place, root) else None


def _tidy(path: Path) -> None:
    """Remove the entries of ended processes from DVC's list, or the list itself if it is torn.

    DVC refuses a torn list in every command, and takes a killed process for a live one until its parent has asked for
    its exit status; in many containers nobody asks.
    """
    for pause_s in (0.0, _WRITTEN_S):  # someone's own command of DVC may be writing the list
        time.sleep(pause_s)
        try:
            listed = json.loads(path.read_bytes())
        except FileNotFoundError:
            return
        except ValueError:
            continue
        writers = {name: one for name, one in listed.get("write", {}).items() if _runs(one)}
        readers = {name: [one for one in each if _runs(one)] for name, each in listed.get("read", {}).items()}
        live = {"write": writers, "read": {name: each for name, each in readers.items() if each}}
        if any(each != listed.get(kind, {}) for kind, each in live.items()):
            write_json(path, live)
        return
    path.unlink()


def _runs(entry: Mapping[str, Any]) -> bool:
    """Return whether the process of an entry of DVC's list has a command line: it has none once it is killed."""
    return bool(processes.command_of(entry["pid"]))


def _read(handle: IO[str]) -> Holder | None:
    handle.seek(0)
    with contextlib.suppress(ValueError, TypeError):
        return Holder(**json.loads(handle.read()))
    return None


def _write(handle: IO[str], text: str) -> None:
    """Replace the entry; raises ``OSError`` with the file if there is no space."""
    os.ftruncate(handle.fileno(), 0)
    try:
        # A separate writer: text that could not be written does not stay in the buffer of ``handle``.
        with open(handle.fileno(), "a", encoding="utf-8", closefd=False) as writer:
            writer.write(text)
    except OSError as error:
        error.filename = handle.name
        raise
