"""Disturb a task at every system call that changes a file, run it again, and compare its files."""

from __future__ import annotations

import hashlib
import os
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path

from tests.campaigns.faults.shim.forks import Fault, Forks, Run
from tests.campaigns.faults.shim.library import KINDS

_AGED_S = 7200
OUTCOMES = ("same bytes at once", "one clear line", "killed and resumed", "wrong")
_NO_ROOM = ("no space",)


@dataclass(frozen=True, slots=True)
class Task:
    """``work`` (``module:function``) to repeat with ``argv``, in a copy of ``template``.

    ``expected`` has the sha256 of every file after an undisturbed run; files that match ``volatile`` are not compared.
    """

    name: str
    work: str
    template: Path
    expected: dict[str, str]
    calls: tuple[str, ...]
    argv: tuple[str, ...] = ()
    volatile: tuple[str, ...] = ()


@dataclass
class Trial:
    """A fault and its outcome: ``problems`` is empty if nothing was wrong."""

    task: str
    fault: Fault
    call: str = ""
    status: int = 0
    last_line: str = ""
    hit: bool = False
    problems: list[str] = field(default_factory=list)

    @property
    def outcome(self) -> str:
        """One of ``OUTCOMES``."""
        if self.problems:
            return "wrong"
        return OUTCOMES[0] if self.status == 0 else OUTCOMES[2] if self.status == -9 else OUTCOMES[1]


def digests(folder: Path, volatile: Sequence[str] = ()) -> dict[str, str]:
    """The sha256 of every file below ``folder``, links to folders apart, that no pattern of ``volatile`` matches."""
    found = {}
    for base, _, names in os.walk(folder):
        for name in names:
            path = Path(base, name)
            key = path.relative_to(folder).as_posix()
            if path.is_file() and not any(fnmatchcase(key, pattern) for pattern in volatile):
                found[key] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


def applies(kind: str, call: str) -> bool:
    """True if a kind of fault can happen at a call: only writes are short, and deleting needs no space."""
    operation = call.partition(" ")[0]
    if kind == "short write":
        return operation == "write"
    return kind not in _NO_ROOM or operation not in ("unlink", "rmdir", "chmod")


def faults_of(task: Task, kinds: Iterable[str] = KINDS[1:]) -> list[Fault]:
    """Every call of an undisturbed run with every kind that applies."""
    return [Fault(at, kind) for at, call in enumerate(task.calls, start=1) for kind in kinds if applies(kind, call)]


def undisturbed(
    forks: Forks,
    name: str,
    work: str,
    template: Path,
    scratch: Path,
    argv: Sequence[str] = (),
    volatile: Sequence[str] = (),
) -> tuple[Task, Path]:
    """Run ``work`` twice without a fault in copies of ``template``: the task, and the folder with its result.

    Raises ``ValueError`` if the run fails or the second one leaves different bytes.
    """
    found = []
    for number in (1, 2):
        folder = copy(template, scratch / f"{name}-undisturbed-{number}")
        run = forks.run(work, folder, argv, listed=True)
        if run.status:
            raise ValueError(f"{name} fails without a fault: {run.output}")
        found.append((folder, digests(folder, volatile), run))
    (folder, expected, run), (other, again, _) = found
    if expected != again:
        raise ValueError(f"{name} does not repeat its bytes: {differing(expected, again)}")
    shutil.rmtree(other)
    return Task(name, work, template, expected, run.calls, tuple(argv), tuple(volatile)), folder


def copy(template: Path, folder: Path) -> Path:
    """A fresh copy of a folder, links as links."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(template, folder, symlinks=True)
    return folder


def differing(expected: dict[str, str], found: dict[str, str]) -> list[str]:
    """The files that are missing, that are too many, or that have different bytes."""
    missing = [f"missing: {name}" for name in expected.keys() - found.keys()]
    extra = [f"extra: {name}" for name in found.keys() - expected.keys()]
    other = [f"other bytes: {name}" for name in expected.keys() & found.keys() if expected[name] != found[name]]
    return sorted([*missing, *extra, *other])


def disturb(forks: Forks, task: Task, fault: Fault, folder: Path) -> Trial:
    """Run the task with the fault and, unless its files are right at once, again without one."""
    copy(task.template, folder)
    return disturb_in(forks, task, fault, folder, digests(folder, task.volatile))


def disturb_in(forks: Forks, task: Task, fault: Fault, folder: Path, before: dict[str, str]) -> Trial:
    """Like ``disturb``, in a folder whose files have the digests ``before``."""
    run = forks.run(task.work, folder, task.argv, fault)
    trial = Trial(task.name, fault, run.call, run.status, last_line(run), run.hit)
    trial.problems += told(run)
    found = digests(folder, task.volatile)
    left = [name for name in found.keys() - task.expected.keys() if ".part" in name]
    if run.status == 0:
        kept = {name: digest for name, digest in found.items() if name not in left}  # the next run deletes these
        trial.problems += [f"status 0, but {problem}" for problem in differing(task.expected, kept)]
    torn = [
        name
        for name in task.expected.keys() & found.keys()
        if found[name] not in (task.expected[name], before.get(name)) and not _grows(name)
    ]
    trial.problems += [f"torn after status {run.status}: {name}" for name in torn]
    if run.status or trial.problems or left:
        age(folder)
        again = forks.run(task.work, folder, task.argv)
        if again.status:
            trial.problems.append(f"the next run ends with status {again.status}: {last_line(again)}")
        found = digests(folder, task.volatile)
        trial.problems += [f"after the next run: {problem}" for problem in differing(task.expected, found)]
    return trial


def _grows(name: str) -> bool:
    """True if a file gets longer in place: a journal, or what a resumed run verifies by digests."""
    return name.startswith((".pathfinder/", "progress/")) or name.endswith("journal.jsonl")


def told(run: Run) -> list[str]:
    """The problem with the way in which a run ended."""
    if run.status in (0, -9):
        return []
    if run.status < 0:
        return [f"ended by signal {-run.status}"]
    if "Traceback (most recent call last)" in run.output:
        return [f"traceback: {last_line(run)}"]
    return [] if any(line.startswith("error: ") for line in run.output.splitlines()) else ["no line says why"]


def last_line(run: Run) -> str:
    lines = run.output.strip().splitlines()
    return lines[-1] if lines else ""


def age(folder: Path) -> None:
    """Let what a killed run left be two hours old: the next run regards young files as being written."""
    then = time.time() - _AGED_S
    for base, folders, names in os.walk(folder):
        for name in (*folders, *names):
            os.utime(Path(base, name), (then, then), follow_symlinks=False)


def table(
    trials: Sequence[Trial], head: str = "fault", key: Callable[[Trial], str] = lambda trial: trial.fault.kind
) -> str:
    """How the faults that hit ended, per ``key``, as a Markdown table whose first column is called ``head``."""
    hit = [trial for trial in trials if trial.hit]
    counts: dict[str, Counter[str]] = {}
    for trial in hit:
        counts.setdefault(key(trial), Counter())[trial.outcome] += 1
    order = sorted(counts, key=lambda name: (KINDS.index(name) if name in KINDS else 0, name))
    rows = [(name, counts[name]) for name in order] + [("all", sum(counts.values(), Counter()))]
    lines = [f"| {head} | hit | {' | '.join(OUTCOMES)} |", "| --- " * (2 + len(OUTCOMES)) + "|"]
    lines += [f"| {name} | {found.total()} | {' | '.join(str(found[o]) for o in OUTCOMES)} |" for name, found in rows]
    return "\n".join(lines)
