"""Run the fault campaign, two parts at a time, and show one table: python -m tests.campaigns.faults.all [PART …].

A part that fails does not stop the others. Their outputs and results are in .pathfinder/faults. Exits with status 1 if
a part fails or finds something wrong.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from ground.io import DataError
from ground.text import errors_without_traceback
from pathfinder.pages.page import markdown_table
from tests.campaigns.faults import results

ROOT = Path(__file__).resolve().parents[3]
FOLDER = ROOT / ".pathfinder/faults"
_DONE = re.compile(r"^\[(\d+)/(\d+)\]", re.MULTILINE)
_SHOWN, _LOOK_S, _SAY_S, _END_S = 15, 1.0, 300.0, 60.0


@dataclass(frozen=True, slots=True)
class Part:
    """A part: the arguments of Python, whether it takes ``--seed``, and the seconds that it usually takes.

    A part without a result is a file of tests: the table shows only whether they pass.
    """

    name: str
    arguments: tuple[str, ...]
    usual_s: float
    is_seeded: bool = True
    has_result: bool = True


def _tests(name: str, usual_s: float) -> Part:
    """The tests with the marker faults in ``tests/campaigns/faults/test_NAME.py``."""
    arguments = ("-m", "pytest", "-q", "-m", "faults", f"tests/campaigns/faults/test_{name}.py")
    return Part(name, arguments, usual_s, is_seeded=False, has_result=False)


PARTS = (
    Part("kills", ("-m", "tests.campaigns.faults.kills", "--runs", "100", "--minutes", "45"), 2700),
    Part("planted", ("-m", "tests.campaigns.faults", "--lanes", "1"), 1500, is_seeded=False),
    Part("gameday", ("-m", "tests.campaigns.faults.gameday", "--faults", "1000"), 1200),
    Part("calls", ("-m", "tests.campaigns.faults.syscalls"), 160),
    Part("answers", ("-m", "tests.campaigns.faults.inputs", "--answers", "100000"), 120),
    Part("inputs", ("-m", "tests.campaigns.faults.inputs"), 200),
    _tests("store", 60),
    _tests("power", 10),
)
"""The longest first: a lane takes the next part as soon as it is free."""


@dataclass(slots=True)
class Running:
    """A part at work: its process, when it started and ended (monotonic seconds), and the file with its output."""

    part: Part
    process: subprocess.Popen[bytes]
    output: Path
    start: float
    end: float = 0.0

    @property
    def seconds(self) -> float:
        """How long it has run, or took."""
        return (self.end or time.monotonic()) - self.start

    def progress(self) -> tuple[int, int]:
        """How many are done and of how many, by the output's last line ``[done/total]``; zeros before there is one."""
        found = _DONE.findall(self.output.read_text(encoding="utf-8", errors="replace"))
        return (int(found[-1][0]), int(found[-1][1])) if found else (0, 0)

    def left_s(self) -> float:
        """How many seconds it will still need, by its progress or by what is usual."""
        done, total = self.progress()
        if done:
            return self.seconds * max(0, total - done) / done
        return max(0.0, self.part.usual_s - self.seconds)


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.campaigns.faults.all", description=__doc__)
    names = [part.name for part in PARTS]
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"{', '.join(names)} (default: all)")
    parser.add_argument("--lanes", type=int, default=2, help="parts side by side (default: 2)")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6), help="decides faults and moments")
    parser.add_argument("--write", action="store_true", help="write the results of the last run to the page, and stop")
    given = parser.parse_args()
    if unknown := set(given.parts) - {*names}:
        parser.error(f"no part {', '.join(sorted(unknown))}; there are {', '.join(names)}")
    parts = [part for part in PARTS if part.name in given.parts or not given.parts]
    with errors_without_traceback():
        if given.write:
            results.write_page([results.read(_result(FOLDER, part)) for part in parts if part.has_result])
        else:
            sys.exit(campaign(parts, FOLDER, given.seed, given.lanes))


def campaign(parts: Sequence[Part], folder: Path, seed: int, lanes: int = 2) -> int:
    """Run the parts and show the table of what they found; returns 1 if something is wrong, otherwise 0.

    ``folder`` receives their outputs and results.
    """
    start = time.monotonic()
    folder.mkdir(parents=True, exist_ok=True)
    print(f"{len(parts)} parts in {lanes} lanes, seed {seed}; outputs: {folder}", flush=True)
    ended = run(parts, folder, seed, lanes)
    rows = []
    for one in sorted(ended, key=lambda one: parts.index(one.part)):
        faults, wrong = _found(one, folder)
        rows.append([one.part.name, faults, wrong, f"{one.seconds:.0f}"])
        if one.process.returncode:
            print(f"\n{one.part.name} ended with status {one.process.returncode}; the end of {one.output}:")
            print("\n".join(_lines(one.output)[-_SHOWN:]))
    print(f"\n{markdown_table(('part', 'faults', 'wrong', 'seconds'), rows)}")
    failed = [one.part.name for one in ended if one.process.returncode]
    said = f"failed: {', '.join(failed)}" if failed else "nothing was wrong"
    print(f"\nseed {seed}, {time.monotonic() - start:.0f} s; {said}", flush=True)
    return int(bool(failed))


def run(parts: Sequence[Part], folder: Path, seed: int, lanes: int) -> list[Running]:
    """Run the parts to their ends, ``lanes`` at a time.

    SIGTERM and Ctrl-C end them and raise ``SystemExit``.
    """
    waiting, running, ended = list(parts), list[Running](), list[Running]()
    say = _reporter()
    with _signals() as caught:
        while (waiting or running) and not caught:
            while waiting and len(running) < lanes:
                part = waiting.pop(0)
                arguments = _arguments(part, folder, seed)
                say(f"{part.name}: python {' '.join(arguments)}", True)
                running.append(_start(part, arguments, folder))
            time.sleep(_LOOK_S)
            for one in [one for one in running if one.process.poll() is not None]:
                one.end = time.monotonic()
                running.remove(one)
                ended.append(one)
                state = f"status {one.process.returncode}" if one.process.returncode else "right"
                say(f"{one.part.name}: {state} after {one.seconds:.0f} s", True)
            say(_progress(running, waiting, lanes), False)
        if running:
            say(f"interrupted; ending {', '.join(one.part.name for one in running)}", True)
            _end(running)
    if caught:
        sys.exit(128 + caught[0])
    return ended


@contextmanager
def _signals() -> Iterator[list[int]]:
    """The signals to end that arrive during the block: none of them interrupts the start of a part."""
    caught: list[int] = []
    before = {
        number: signal.signal(number, lambda number, _: caught.append(number))
        for number in (signal.SIGTERM, signal.SIGINT)
    }
    try:
        yield caught
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _arguments(part: Part, folder: Path, seed: int) -> list[str]:
    seeded = ["--seed", str(seed)] if part.is_seeded else []
    return [*part.arguments, *seeded, *(["--result", str(_result(folder, part))] if part.has_result else [])]


def _start(part: Part, arguments: Sequence[str], folder: Path) -> Running:
    _result(folder, part).unlink(missing_ok=True)
    output = folder / f"{part.name}.txt"
    with output.open("wb") as file:
        # A session of its own: Ctrl-C ends this process, which ends the part in order.
        process = subprocess.Popen(
            [sys.executable, *arguments],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            start_new_session=True,
        )
    return Running(part, process, output, time.monotonic())


def _end(running: Sequence[Running]) -> None:
    """End parts with what they have started; kill those that do not end."""
    for one in running:
        one.process.terminate()
    deadline = time.monotonic() + _END_S
    for one in running:
        with suppress(subprocess.TimeoutExpired):
            one.process.wait(max(0.0, deadline - time.monotonic()))
        with suppress(ProcessLookupError):
            os.killpg(one.process.pid, signal.SIGKILL)
        one.process.wait()


def _result(folder: Path, part: Part) -> Path:
    return folder / f"{part.name}.json"


def _found(one: Running, folder: Path) -> tuple[str, str]:
    """The faults of a part and how many were wrong, as cells of the table."""
    with suppress(DataError):
        found = results.read(_result(folder, one.part))
        return f"{found.faults:,}", str(found.wrong)
    return "–", "unknown" if one.process.returncode else "0"


def _progress(running: Sequence[Running], waiting: Sequence[Part], lanes: int) -> str:
    """One line with the progress of each running part, and the minutes that are left."""
    left = [one.left_s() for one in running]
    total = sum(left) + sum(part.usual_s for part in waiting)
    seconds = max(total / lanes, *left, 0.0)
    done = ", ".join(f"{one.part.name} {'/'.join(map(str, one.progress()))}" for one in running)
    return f"{done}, {len(waiting)} parts wait; about {seconds / 60:.0f} min left"


def _reporter() -> Callable[[str, bool], None]:
    """A function that shows a line. On a terminal the next line replaces it unless it is kept.

    Elsewhere, lines that are not kept are shown every few minutes.
    """
    is_live, last = sys.stdout.isatty(), time.monotonic()

    def say(line: str, is_kept: bool) -> None:
        nonlocal last
        if is_live:
            line = line if is_kept else line[: shutil.get_terminal_size().columns - 1]
            print(f"\r\x1b[K{line}", end="\n" if is_kept else "", flush=True)
        elif is_kept or time.monotonic() - last > _SAY_S:
            last = time.monotonic()
            print(line, flush=True)

    return say


def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8", errors="replace").splitlines()


if __name__ == "__main__":
    main()
