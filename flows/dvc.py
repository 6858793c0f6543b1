"""DVC as a subprocess: the only caller. Every command leads its own process group, so that it can be ended whole.

DVC forwards no SIGTERM: a stage whose ``dvc`` is killed goes on writing. Ending the group ends the stage with it.
"""

from __future__ import annotations

import contextlib
import contextvars
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pathfinder.core.io import DataError, PathfinderError, TransientError

_GRACE_S = 10.0
_TAIL_LINES = 400
# Advice that DVC gives to people at a prompt, not to a flow.
_ADVICE = re.compile(
    r"To track the changes with git, run:|\tgit add |To enable auto staging, run:|\tdvc config core\.autostage"
    r"|Use `dvc push` to send|(Updating|Generating) lock file|Data and pipelines are up to date"
)
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_ERROR = re.compile(r"(?:ERROR:|error:|[A-Za-z_][\w.]*(?:Error|Exception):) ")
_TRANSIENT = re.compile(
    rf"exited with {TransientError.exit_status}\b"
    r"|is busy, it is being blocked by|Unable to acquire lock"
    r"|Could not connect to the endpoint|Connection (refused|reset|aborted|timed out)|Connect(ion)?TimeoutError"
    r"|Read timed out|Temporary failure in name resolution|Network is unreachable"
    r"|SlowDown|ServiceUnavailable|InternalError|RequestTimeout|Too Many Requests"
)
State = Literal["ran", "restored", "up to date"]


class Cancelled(RuntimeError):
    """The run is being ended: nothing new starts."""


class DvcError(PathfinderError, RuntimeError):
    """A DVC command failed. ``transient`` says whether the same command may succeed later."""

    def __init__(self, command: Sequence[str], code: int, tail: str) -> None:
        self.code, self.tail = code, tail
        errors = [line.strip() for line in tail.splitlines() if _ERROR.match(line.strip())]
        self.transient = any(_TRANSIENT.search(line) for line in errors)
        reason = " | ".join(dict.fromkeys(errors[-2:])) or f"exit code {code}"
        super().__init__(f"`dvc {' '.join(command)}` failed: {reason}")


@dataclass(frozen=True, slots=True)
class Result:
    """What a command printed: its standard output, and the last lines of both streams as they came."""

    stdout: str
    tail: str


class Dvc:
    """DVC in one project folder. Thread-safe; ``stop`` ends every running command and refuses new ones."""

    def __init__(self, root: Path, environment: Mapping[str, str] | None = None) -> None:
        self.root = root
        self._environment = dict(environment or {})
        self._running: set[subprocess.Popen[str]] = set()
        self._lock = threading.Lock()
        self._stopping = False

    def status(self) -> dict[str, list[Any]]:
        """What differs from dvc.lock, by stage or ``.dvc`` file, in DVC's own words."""
        result = self._run(["status", "--json"])
        status: dict[str, list[Any]] = json.loads(result.stdout or "{}")
        return status

    def reproduce(
        self, stage: str, force: bool = False, pull: bool = False, on_line: Callable[[str], None] | None = None
    ) -> State:
        """Run one stage where it is out of date, restore it from the run cache, or leave it as it is.

        With ``pull`` the remote's run cache counts too: what ran anywhere is fetched.
        """
        flags = [*(["--force"] if force else []), *(["--pull"] if pull else [])]
        tail = self._run(["repro", "--single-item", *flags, stage], on_line or _ignore).tail
        if re.search(rf"^Stage '{re.escape(stage)}' is cached", tail, re.MULTILINE):
            return "restored"
        if re.search(rf"^Stage '{re.escape(stage)}' didn't change", tail, re.MULTILINE):
            return "up to date"
        return "ran"

    def push(self, *stages: str) -> None:
        """Send the outputs of stages, and the run cache, to the remote."""
        self._run(["push", "--quiet", "--run-cache", *stages])

    def pull(self, target: str) -> None:
        """Fetch a target's content from its remote into the workspace."""
        self._run(["pull", "--quiet", target])

    def stop(self) -> None:
        """End every running command with all its children: SIGTERM, then SIGKILL after ten seconds."""
        with self._lock:
            self._stopping = True
            groups = [process.pid for process in self._running]
        _end(groups)

    def _run(self, arguments: Sequence[str], on_line: Callable[[str], None] | None = None) -> Result:
        process = self._start(["--wait-for-lock", *arguments])
        tail: deque[str] = deque(maxlen=_TAIL_LINES)
        printed: list[str] = []

        def read_errors() -> None:
            for line in process.stderr or ():
                _take(line, tail, on_line)

        # Prefect keeps a run's logger and server in context variables; a bare thread would log to another server.
        errors = threading.Thread(target=contextvars.copy_context().run, args=(read_errors,), daemon=True)
        errors.start()
        try:
            for line in process.stdout or ():
                if on_line is None:
                    printed.append(line)
                _take(line, tail, on_line)
            errors.join()
            code = process.wait()
        finally:
            if process.poll() is None:
                _end([process.pid])
            _end([process.pid])  # what the command left behind in its group
            process.wait()
            with self._lock:
                self._running.discard(process)
        if self._stopping:
            raise Cancelled(f"`dvc {' '.join(arguments)}` was ended")
        if code != 0:
            raise DvcError(arguments, code, "\n".join(tail))
        return Result("".join(printed), "\n".join(tail))

    def _start(self, arguments: Sequence[str]) -> subprocess.Popen[str]:
        interpreter = Path(sys.executable)
        environment = {
            **os.environ,
            # Stages say `python`: the interpreter that runs this flow.
            "PATH": os.pathsep.join([str(interpreter.parent), os.environ.get("PATH", "")]),
            "PYTHONUNBUFFERED": "1",
            **self._environment,
        }
        with self._lock:
            if self._stopping:
                raise Cancelled("the run is being ended")
            process = subprocess.Popen(
                [str(interpreter), "-m", "dvc", *arguments],
                cwd=self.root,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                encoding="utf-8",
                errors="replace",
                start_new_session=True,
            )
            self._running.add(process)
        return process


def require_project(root: Path) -> None:
    """Refuse to go on where ``root`` is no DVC project."""
    if not (root / ".dvc").is_dir() or not (root / "dvc.yaml").is_file():
        raise DataError(f"{root.absolute()}: no DVC project (.dvc/ and dvc.yaml); run this in the project's folder")


def _ignore(line: str) -> None:
    """Nobody listens; the tail is kept."""


def _take(line: str, tail: deque[str], on_line: Callable[[str], None] | None) -> None:
    # Stages print outside text: no control sequence of it may reach a terminal or a log store.
    text = _CONTROL.sub(lambda match: f"\\x{ord(match[0]):02x}", line.rstrip("\r\n"))
    tail.append(text)
    if on_line is not None and text.strip() and not _ADVICE.match(text):
        on_line(text)


def _end(groups: Sequence[int]) -> None:
    """Send SIGTERM to process groups, wait, then SIGKILL to what is left; groups that are gone are passed over."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        deadline = time.monotonic() + _GRACE_S
        groups = [group for group in groups if _signal(group, number)]
        while groups and time.monotonic() < deadline:
            time.sleep(0.05)
            groups = [group for group in groups if _alive(group)]
        if not groups:
            return


def _signal(group: int, number: int) -> bool:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, number)
        return True
    return False


def _alive(group: int) -> bool:
    """True while the group has a member that is no zombie."""
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = entry.read_text(errors="replace").rpartition(")")[2].split()
            if int(fields[2]) == group and fields[0] != "Z":
                return True
    return False
