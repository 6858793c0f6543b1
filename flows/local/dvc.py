"""DVC as a subprocess. This is the only module that starts it (``flows.local.forks`` runs it in forks).

DVC does not forward SIGTERM, so a stage would outlive its ``dvc``. Ending the whole process group ends the stage too.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Literal

from evidence.remote.guard import fetch_pointer
from flows.local import processes
from flows.local.transfer import prepare
from ground.io import DataError, PathfinderError, TransientError
from ground.text import printable, remedy_in

_TAIL_LINES = 400
State = Literal["ran", "restored", "up to date"]
# Advice that DVC prints for interactive use.
_ADVICE = re.compile(
    r"To track the changes with git, run:| +git add |To enable auto staging, run:| +dvc config core\.autostage"
    r"|Use `dvc push` to send|(Updating|Generating) lock file|Data and pipelines are up to date"
)
_ERROR = re.compile(r"(?:ERROR:|error:|[A-Za-z_][\w.]*(?:Error|Exception):) ")
_BLOCKER = re.compile(r"\(PID \d+\): ")
_TRANSIENT = re.compile(
    rf"exited with {TransientError.exit_status}\b"
    r"|is busy, it is being blocked by|Unable to acquire lock"
    r"|Could not connect to the endpoint|Connection (refused|reset|aborted|timed out)|Connect(ion)?TimeoutError"
    r"|[Cc]onnect timeout|[Rr]ead timed? ?out|Connection was closed|Temporary failure in name resolution"
    r"|Network is unreachable|SlowDown|reduce your request rate|ServiceUnavailable|InternalError|RequestTimeout"
    r"|Too Many Requests"
)
_FULL = re.compile(r"disk I/O error|database or disk is full|No space left on device|File too large|quota exceeded")
# Python 3.11 keeps a compiled module that a full disk cut, and every later import fails.
_CUT = re.compile(r"marshal data too short|bad marshal data")
# The lines that DVC prints before it decides about a stage; later lines may be the stage's own output.
_STATES: tuple[tuple[str, State], ...] = (
    ("Stage '{}' didn't change", "up to date"),
    ("Stage '{}' is cached", "restored"),
    ("Running stage '{}':", "ran"),
)
OnLine = Callable[[str], None]
_NO_SHELL = shutil.which("false") or "/bin/false"


class Cancelled(RuntimeError):
    """The run is ending; no new command starts."""


class DvcError(PathfinderError, RuntimeError):
    """A command failed with the exit status ``code`` after its ``last`` line; ``transient`` if it may succeed later."""

    def __init__(self, command: Sequence[str], code: int, tail: str) -> None:
        lines = [line.strip() for line in tail.splitlines()]
        errors = [line for line in lines if _ERROR.match(line)]
        self.code, self.last = code, next(filter(None, reversed(lines)), "")
        self.transient = any(_TRANSIENT.search(line) for line in errors)
        blockers = [line for line in lines if _BLOCKER.match(line)]
        first = next(filter(None, lines), f"exit code {code}")
        reason = " | ".join(dict.fromkeys([*errors[-2:], *blockers])) or first
        is_full = _FULL.search(reason) and "free space" not in reason
        remedies = ["free space on the disk (`df -h`, `ulimit -f`)"] if is_full else []
        if not is_full and (known := remedy_in(reason)):
            remedies.append(known.removesuffix(", then run the command again"))
        if _CUT.search(reason):
            remedies.append("delete the compiled modules that a full disk cut (`find . -name '*.pyc' -delete`)")
        if "No module named dvc" in reason:
            remedies.append("use `make env` or `pip install '.[pipeline]'`")
        remedy = f"; {', '.join(remedies)}, then run again" if remedies else ""
        super().__init__(f"`{' '.join(command)}` failed: {reason}{remedy}")


class TimeLimitError(PathfinderError, RuntimeError):
    """A command ran longer than its limit and was ended with all its processes."""


class Dvc:
    """DVC in one project folder. Thread-safe.

    ``environment`` are variables for all commands. With ``warm``, the commands are forks of one process, which starts
    now, and so are stages with PyTorch, unless the folder ``has_other_code``. Every method raises ``DvcError`` if
    its command fails and ``Cancelled`` after ``stop``.
    """

    def __init__(
        self, root: Path, environment: Mapping[str, str] | None = None, warm: bool = False, has_other_code: bool = False
    ) -> None:
        self.root = root
        self._environment = {"PYTHONUNBUFFERED": "1", **(environment or {})}
        self._running: dict[processes.Command | subprocess.Popen[str], str] = {}
        self._warm = processes.Warm(root, self._environment, has_other_code) if warm else None
        self._lock = threading.Lock()
        self._pushing = threading.Lock()
        self._stopping = False

    def status(self) -> dict[str, list[Any]]:
        """The differences from the lock by stage or ``.dvc`` file, as DVC reports them."""
        printed = self._run(["status", "--json"])
        return dict(json.loads(next((line for line in printed if line.startswith("{")), "{}")))

    def reproduce(
        self, stage: str, force: bool = False, on_line: OnLine | None = None, limit_s: float | None = None
    ) -> State:
        """Run a stage if it is out of date, or restore its outs; raises ``TimeLimitError`` after ``limit_s``."""
        states: list[State] = []
        flags = ["--force"] if force else []
        self._run(["repro", "--single-item", *flags, stage], _watching(stage, states, on_line), limit_s=limit_s)
        return states[0] if states else "restored"  # DVC announces every command that it runs

    def restore(self, stage: str) -> State | None:
        """Restore a stage's outs; ``None`` if it would have to run: DVC gets a shell that runs nothing."""
        states: list[State] = []
        try:
            self._run(["repro", "--single-item", stage], _watching(stage, states), variables={"SHELL": _NO_SHELL})
        except DvcError:
            if states[:1] == ["ran"]:
                return None
            raise
        return states[0] if states else "restored"

    def push(self, *stages: str) -> None:
        """Upload the outputs of stages from a separate folder, so no stage waits; raises as ``prepare`` does."""
        with self._pushing:
            printed = self._run(["push"], root=prepare(self.root, stages))
            if missing := [line for line in printed if line.startswith("md5: ")]:
                raise DvcError(["dvc", "push"], 1, f"ERROR: neither the cache nor the remote has {', '.join(missing)}")

    def checkout(self, *targets: str, force: bool = False) -> None:
        """Copy the content of stages or ``.dvc`` files from the cache to the workspace.

        Nothing is downloaded: DVC would trust the listings of folders in a remote, so ``evidence.remote``
        fills the cache. With ``force``, changed files in the workspace are replaced.
        """
        self._run(["checkout", *(["--force"] if force else []), *targets])

    def fetch(self, pointers: Iterable[str], say: Callable[[str, str], None] = lambda *_: None) -> None:
        """Download the content of ``.dvc`` files from the remote; ``say`` gets each with a sentence."""
        for pointer in pointers:
            say(pointer, "downloading its content from the remote")
            fetch_pointer(self.root, pointer)
            self.checkout(pointer)

    def call(
        self, module: str, *words: str, on_line: OnLine, root: Path | None = None, limit_s: float | None = None
    ) -> None:
        """Run another module with Python, in ``root`` if that is given; raises like ``reproduce``."""
        self._run(words, on_line, root, limit_s, module=module)

    def launch(self, command: Sequence[str], given: Path, on_line: OnLine) -> None:
        """Run a command of another program, which reads the file ``given``."""
        with given.open("rb") as stdin:
            self._run(command, on_line, module="", stdin=stdin)

    def check(self) -> None:
        """Raise ``Cancelled`` if the run is ending."""
        if self._stopping:
            raise Cancelled("the run is ending")

    def end(self, stage: str = "") -> None:
        """End the command that runs a stage, or every command, with all its children."""
        with self._lock:
            groups = [process.pid for process, last in self._running.items() if stage in ("", last)]
        processes.end(groups)

    def stop(self) -> None:
        """End every running command with all its children, and refuse new ones."""
        with self._lock:
            self._stopping = True
        self.end()
        self.close()

    def close(self) -> None:
        """End the warm process, if there is one. Later commands are separate processes."""
        warm, self._warm = self._warm, None
        if warm:
            warm.stop()

    def _run(
        self,
        arguments: Sequence[str],
        on_line: OnLine | None = None,
        root: Path | None = None,
        limit_s: float | None = None,
        variables: Mapping[str, str] | None = None,
        module: str = "dvc",
        stdin: int | IO[bytes] = subprocess.DEVNULL,
    ) -> Sequence[str]:
        """Run a command of DVC or of another module; returns the last lines that it and its stage printed."""
        mark = processes.new_mark(self.root)
        with self._lock:
            self.check()
            command = [*(["--wait-for-lock"] if module == "dvc" else []), *arguments]
            environment = {**self._environment, **(variables or {}), processes.MARK: mark}
            folder, forked = root or self.root, None
            if module == "dvc" and self._warm is not None:
                with contextlib.suppress(OSError):  # the warm process was killed, or cannot take the command
                    forked = self._warm.start(command, folder, environment)
            process = forked or processes.start(module, command, folder, environment, subprocess.PIPE, stdin)
            self._running[process] = arguments[-1]
        tail: deque[str] = deque(maxlen=_TAIL_LINES)
        expired = threading.Event()

        def expire() -> None:
            expired.set()
            processes.end([process.pid])
            processes.end_owned(mark)

        timer = threading.Timer(limit_s or 0.0, expire)
        if limit_s is not None:
            timer.start()
        try:
            for line in process.stdout or ():
                # Stages print untrusted text: its control sequences must not reach a terminal or a log.
                text = printable(line.rstrip("\r\n").expandtabs())
                tail.append(text)
                if on_line is not None and text.strip() and not _ADVICE.match(text):
                    on_line(text)
            code = process.wait()
        finally:
            timer.cancel()
            processes.end([process.pid])  # the command, or children that it left in its group
            processes.end_owned(mark)  # children that left the group
            process.wait()
            with self._lock:
                del self._running[process]
        if self._stopping:
            raise Cancelled(f"`{module} {' '.join(arguments)}` was ended")
        if expired.is_set():
            timer.join()
            raise TimeLimitError(
                f"`{module} {' '.join(arguments)}` reached its time limit of {limit_s or 0:.0f} s and was ended with "
                "all its processes; infra/resources.yaml has the limits"
            )
        if code != 0:
            raise DvcError([module, *arguments] if module else arguments, code, "\n".join(tail))
        return tail


def _watching(stage: str, states: list[State], on_line: OnLine | None = None) -> OnLine:
    """A function for the lines that DVC prints: it adds the states of a stage that they announce to ``states``."""

    def watch(line: str) -> None:
        states.extend(state for beginning, state in _STATES if line.startswith(beginning.format(stage)))
        if on_line is not None:
            on_line(line)

    return watch


def require_project(root: Path) -> None:
    """Raise ``DataError`` if ``root`` is not a DVC project in a git repository, or DVC cannot work in it."""
    folder = root.absolute()
    if not (root / ".dvc").is_dir() or not (root / "dvc.yaml").is_file():
        raise DataError(f"{folder}: no DVC project (.dvc/ and dvc.yaml); run this in the project's folder")
    if not any((parent / ".git").exists() for parent in (folder, *folder.parents)):
        raise DataError(f"{folder}: no git repository, which DVC needs; work in a clone, or run `git init` here")
    try:
        str(folder).encode()
    except UnicodeEncodeError as error:
        raise DataError(
            f"{folder}: a name that is not UTF-8, which DVC cannot write; move or rename the folder"
        ) from error
    if not os.access(folder / ".dvc", os.W_OK):
        raise DataError(f"{folder}/.dvc: cannot be written, which DVC needs even to compare; use a copy that can be")
