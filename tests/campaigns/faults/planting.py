"""Put a fixed defect back into a clone of the tree, and see the test fail that must notice it.

A fault is a replacement of named lines. It is an error if the lines are not found, if the test fails without the
fault, or if it passes with it.
"""

from __future__ import annotations

import ast
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue

_LIMIT_S, _SHOWN_EVERY_S, _END_S = 600, 15, 40
_LOG = "faults.txt"
_SKIPPED = -2
_stopped = threading.Event()
"""True if this process was told to end."""


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault: the lines that fix it, what they replaced, and the test that notices."""

    key: str
    words: str
    file: str
    fixed: str
    faulty: str
    test: str

    def edited(self, text: str) -> str:
        """The text of the file with the fault; raises ``ValueError`` if the text has no such lines."""
        if self.fixed not in text:
            raise ValueError(f"{self.file} has no {self.fixed!r}: the row {self.key} of the catalogue is out of date")
        return text.replace(self.fixed, self.faulty)


def misfit(fault: Fault, root: Path) -> str:
    """The reason why a row of the catalogue does not fit the tree at ``root``; empty if it fits."""
    file, (test, _, name) = root / fault.file, fault.test.partition("[")[0].partition("::")
    if not file.is_file():
        return f"there is no {fault.file}"
    try:
        edited = fault.edited(file.read_text(encoding="utf-8"))
        if file.suffix == ".py":
            ast.parse(edited)
    except (ValueError, SyntaxError) as error:
        return f"{error}"
    defined = (root / test).read_text(encoding="utf-8") if (root / test).is_file() else ""
    if not defined or (name and f"\ndef {name}(" not in defined):
        return f"there is no test {fault.test}"
    return "" if fault.fixed != fault.faulty else "the fault changes nothing"


@dataclass(frozen=True, slots=True)
class Planted:
    """The outcome: ``problem`` is empty if the test noticed the fault."""

    fault: Fault
    problem: str
    seconds: float


def check(clone: Path, faults: Iterable[Fault], on_wait: Callable[[str], None] = lambda _: None) -> str:
    """Run the tests of ``faults`` without a fault; returns the end of their output if one fails, otherwise nothing.

    ``on_wait`` receives the last line of the output every 15 seconds.
    """
    subprocess.run(["dvc", "pull", "-q", "data.dvc"], cwd=clone, env=_environment(clone), check=True)
    if not _status(clone, sorted({fault.test for fault in faults}), on_wait):
        return ""
    return "\n".join(_last_lines(clone, 20))


def plant_all(
    clones: Sequence[Path], faults: Sequence[Fault], on_done: Callable[[Planted], None] = lambda _: None
) -> list[Planted]:
    """Put the faults back one at a time in each clone; ``on_done`` receives each result. The results are in order."""
    free: SimpleQueue[Path] = SimpleQueue()
    for clone in clones:
        free.put(clone)

    def one(fault: Fault) -> Planted:
        clone = free.get()
        try:
            planted = plant(fault, clone)
        finally:
            free.put(clone)
        on_done(planted)
        return planted

    with ThreadPoolExecutor(len(clones)) as pool:
        try:
            return list(pool.map(one, faults))
        except BaseException:
            _stopped.set()  # the tests that run end first, then the pool
            raise


def plant(fault: Fault, clone: Path) -> Planted:
    """Put one fault back, run its test and restore the file."""
    start = time.monotonic()
    path = clone / fault.file
    before = path.read_text(encoding="utf-8")
    try:
        path.write_text(fault.edited(before), encoding="utf-8")
        status = _status(clone, [fault.test])
        known = {0: f"{fault.test} passes", 1: "", _SKIPPED: f"{fault.test} is skipped here"}
        problem = known.get(status, f"{fault.test} ends with status {status}")
    except ValueError as error:
        problem = str(error)
    finally:
        path.write_text(before, encoding="utf-8")
    return Planted(fault, problem, time.monotonic() - start)


def _environment(clone: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PATHFINDER_", "HF_"))}
    path = f"{clone / '.venv/bin'}{os.pathsep}{os.environ['PATH']}"
    return kept | {"PATH": path, "PYTHONPATH": str(clone), "OMP_NUM_THREADS": "1"}


def _status(clone: Path, tests: Sequence[str], on_wait: Callable[[str], None] = lambda _: None) -> int:
    """pytest's exit status: 1 if a test failed; ``_SKIPPED`` if none failed and none passed; -1 after the limit."""
    command = ["python", "-m", "pytest", "-v", "-x", "-p", "no:cacheprovider", *tests]
    log = clone.parent / _LOG
    start = log.stat().st_size if log.exists() else 0
    deadline = time.monotonic() + _LIMIT_S * len(tests)
    with log.open("ab") as output:
        process = subprocess.Popen(command, cwd=clone, env=_environment(clone), stdout=output, stderr=output)
    try:
        while not _ended(process):
            if time.monotonic() > deadline or _stopped.is_set():
                return -1
            on_wait("".join(_last_lines(clone, 1)))
    finally:
        _end(process)
    printed = log.read_bytes()[start:]
    return _SKIPPED if process.returncode == 0 and b" passed" not in printed else process.returncode


def _ended(process: subprocess.Popen[bytes]) -> bool:
    """True if the process ended within 15 seconds; waits no longer once this process is told to end."""
    for _ in range(_SHOWN_EVERY_S):
        with suppress(subprocess.TimeoutExpired):
            process.wait(1)
        if process.returncode is not None or _stopped.is_set():
            break
    return process.returncode is not None


def _end(process: subprocess.Popen[bytes]) -> None:
    """Interrupt pytest, whose tests then end what they have started; kill it if that takes long."""
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            process.wait(_END_S)
    process.kill()
    process.wait()


def _last_lines(clone: Path, count: int) -> list[str]:
    """The end of what the tests in ``clone`` have printed."""
    return (clone.parent / _LOG).read_text(encoding="utf-8", errors="replace").splitlines()[-count:]
