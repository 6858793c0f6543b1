"""DVC as a subprocess. This is the only module that calls it.

DVC does not forward SIGTERM, so a stage would outlive its ``dvc``. Ending the whole process group ends the stage too.
"""

from __future__ import annotations

import json
import re
import subprocess
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from flows import processes
from pathfinder.core.io import DataError, PathfinderError, TransientError
from pathfinder.core.text import printable

_TAIL_LINES = 400
# Advice that DVC prints for interactive use.
_ADVICE = re.compile(
    r"To track the changes with git, run:| +git add |To enable auto staging, run:| +dvc config core\.autostage"
    r"|Use `dvc push` to send|(Updating|Generating) lock file|Data and pipelines are up to date"
)
_ERROR = re.compile(r"(?:ERROR:|error:|[A-Za-z_][\w.]*(?:Error|Exception):) ")
_TRANSIENT = re.compile(
    rf"exited with {TransientError.exit_status}\b"
    r"|is busy, it is being blocked by|Unable to acquire lock"
    r"|Could not connect to the endpoint|Connection (refused|reset|aborted|timed out)|Connect(ion)?TimeoutError"
    r"|Read timed out|Temporary failure in name resolution|Network is unreachable"
    r"|SlowDown|ServiceUnavailable|InternalError|RequestTimeout|Too Many Requests"
)
State = Literal["ran", "restored", "up to date"]
OnLine = Callable[[str], None]


class Cancelled(RuntimeError):
    """The run is ending; no new command starts."""


class DvcError(PathfinderError, RuntimeError):
    """A DVC command failed; ``transient`` if the same command may succeed later."""

    def __init__(self, command: Sequence[str], code: int, tail: str) -> None:
        errors = [line.strip() for line in tail.splitlines() if _ERROR.match(line.strip())]
        self.transient = any(_TRANSIENT.search(line) for line in errors)
        reason = " | ".join(dict.fromkeys(errors[-2:])) or f"exit code {code}"
        super().__init__(f"`dvc {' '.join(command)}` failed: {reason}")


class Dvc:
    """DVC in one project folder. Thread-safe.

    Every method raises ``DvcError`` if its command fails and ``Cancelled`` after ``stop``.
    """

    def __init__(self, root: Path, environment: Mapping[str, str] | None = None) -> None:
        self.root = root
        self._environment = {"PYTHONUNBUFFERED": "1", **(environment or {})}
        self._running: set[subprocess.Popen[str]] = set()
        self._lock = threading.Lock()
        self._stopping = False

    def status(self) -> dict[str, list[Any]]:
        """The differences from dvc.lock by stage or ``.dvc`` file, as DVC reports them."""
        printed = self._run(["status", "--json"])
        return dict(json.loads(next((line for line in printed if line.startswith("{")), "{}")))

    def reproduce(self, stage: str, force: bool = False, pull: bool = False, on_line: OnLine | None = None) -> State:
        """Run one stage if it is out of date, or restore its outs from the run cache.

        With ``pull``, the run cache of the remote is used too, so results of other machines are downloaded.
        """
        flags = [*(["--force"] if force else []), *(["--pull"] if pull else [])]
        printed = self._run(["repro", "--single-item", *flags, stage], on_line)
        if any(line.startswith(f"Stage '{stage}' is cached") for line in printed):
            return "restored"
        if any(line.startswith(f"Stage '{stage}' didn't change") for line in printed):
            return "up to date"
        return "ran"

    def push(self, *stages: str) -> None:
        """Upload the outputs of stages, and the run cache, to the remote."""
        self._run(["push", "--quiet", "--run-cache", *stages])

    def pull(self, target: str) -> None:
        """Download a target from its remote into the workspace."""
        self._run(["pull", "--quiet", target])

    def stop(self) -> None:
        """End every running command with all its children, and refuse new ones."""
        with self._lock:
            self._stopping = True
            groups = [process.pid for process in self._running]
        processes.end(groups)

    def _run(self, arguments: Sequence[str], on_line: OnLine | None = None) -> Sequence[str]:
        """Run a command; returns the last lines that it and its stage printed."""
        with self._lock:
            if self._stopping:
                raise Cancelled("the run is ending")
            command = ["--wait-for-lock", *arguments]
            process = processes.start("dvc", command, self.root, self._environment, subprocess.PIPE)
            self._running.add(process)
        tail: deque[str] = deque(maxlen=_TAIL_LINES)
        try:
            for line in process.stdout or ():
                # Stages print untrusted text: its control sequences must not reach a terminal or a log.
                text = printable(line.rstrip("\r\n").expandtabs())
                tail.append(text)
                if on_line is not None and text.strip() and not _ADVICE.match(text):
                    on_line(text)
            code = process.wait()
        finally:
            processes.end([process.pid])  # the command, or children that it left in its group
            process.wait()
            with self._lock:
                self._running.discard(process)
        if self._stopping:
            raise Cancelled(f"`dvc {' '.join(arguments)}` was ended")
        if code != 0:
            raise DvcError(arguments, code, "\n".join(tail))
        return tail


def require_project(root: Path) -> None:
    """Raise ``DataError`` if ``root`` is not a DVC project."""
    if not (root / ".dvc").is_dir() or not (root / "dvc.yaml").is_file():
        raise DataError(f"{root.absolute()}: no DVC project (.dvc/ and dvc.yaml); run this in the project's folder")
