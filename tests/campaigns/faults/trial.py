"""One run of the miniature pipeline under one random fault, and what must hold afterwards."""

from __future__ import annotations

import contextlib
import json
import os
import random
import resource
import signal
import sqlite3
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from evidence.dvc.history import MAIN_LOCK, read_stages
from evidence.dvc.stores import object_key
from flows import server
from flows.local import processes
from flows.local.storage import REMOTE
from ground.remote import open_store
from tests.campaigns.faults.store import FaultyStore, new_bucket
from tests.flows.conftest import Project, project_in
from tests.flows.watch import soon, working_in

LIMIT_S = 420.0
"""A run that takes longer is stuck. On a busy machine a run takes a minute, and a push is tried for four."""
_SETTLE_S, _END_S = 120.0, 40.0
_RESUMES = 3
_TRACEBACK, _AROUND, _SHOWN = "Traceback (most recent call last)", 5, 60
KINDS = ("flow", "guardian", "stage", "dvc", "server", "store killed", "store refuses", "disk full")
"""Targets of a fault: the flow's process, the flow's and its guardian, a stage, a command of DVC, the Prefect server,
the store (connections refused, or half of the requests answered with 503), or every file that is written."""


@dataclass
class Trial:
    """A trial: its fault, how the run under the fault ended and its last line, the resumes, and what was wrong.

    ``traceback`` is the first traceback that the run or a resumed one printed, if any; ``usual_s`` is the time of an
    undisturbed run on the machine at that hour.
    """

    number: int
    kind: str
    at_s: float
    hit: bool = False
    ended: int | None = None
    last_line: str = ""
    resumes: int = 0
    traceback: str = ""
    seconds: float = 0.0
    usual_s: float = 0.0
    date: str = ""
    problems: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class World:
    """The trials share a folder, a Prefect server, a store with its variables, and an undisturbed run's time."""

    folder: Path
    prefect: str
    store: FaultyStore
    variables: dict[str, str]
    usual_s: float = 0.0


def undisturbed(world: World) -> World:
    """Time a run without a fault; raises ``RuntimeError`` if it does not end right."""
    trial = Trial(0, "none", 0.0)
    project, count = _project(world, trial, random.Random(0))
    before = _running(project, world)
    begun = time.monotonic()
    trial.ended = _finish(_start(project), [])
    seconds = time.monotonic() - begun
    _check(trial, project, count, world, before)
    if trial.ended or trial.problems:
        raise RuntimeError(f"a run without a fault failed: status {trial.ended}, {trial.problems}")
    return replace(world, usual_s=seconds)


def run(world: World, seed: int, number: int, kinds: tuple[str, ...] = KINDS) -> Trial:
    """Run the pipeline under a fault that ``seed`` and ``number`` decide, resume it, and check what is left."""
    rng = random.Random(f"{seed}:{number}")
    trial = Trial(number, rng.choice(kinds), rng.uniform(0.0, world.usual_s), usual_s=world.usual_s)
    trial.date = time.strftime("%Y-%m-%d")
    project, count = _project(world, trial, rng)
    before = _running(project, world)
    begun = time.monotonic()
    lines: list[str] = []
    process = _start(project)
    timer = threading.Thread(target=_disturb, args=(trial, project, process, world, rng))
    timer.start()
    trial.ended = _finish(process, lines)
    timer.join()
    trial.last_line = next((line for line in reversed(lines) if line.strip()), "")
    if trial.ended is None:
        trial.problems.append("stuck")
    _no_orphans(trial, project)
    world.store.start()
    world.store.refuses = 0.0
    status = trial.ended
    while status != 0 and trial.resumes < _RESUMES:
        trial.resumes += 1
        status = _finish(_start(project), lines)
    trial.traceback = first_traceback(lines)
    if trial.traceback:
        trial.problems.append("prints a traceback")
    if status != 0:
        trial.problems.append(f"status {status} after {trial.resumes} resumes: {' | '.join(lines[-3:])}")
    _check(trial, project, count, world, before)
    trial.seconds = time.monotonic() - begun
    return trial


def _project(world: World, trial: Trial, rng: random.Random) -> tuple[Project, int]:
    root = world.folder / f"trial-{trial.number}"
    root.mkdir()
    count = rng.randrange(5, 40)
    project = project_in(root)
    (root / "params.yaml").write_text(f"count: {count}\n")
    for stage in ("numbers", "even", "odd", "total"):  # a fault meets stages at work
        project.trap(stage, f"time.sleep({rng.uniform(0.2, 1.0):.2f})\n")
    prefect = {} if trial.kind == "server" else {"PREFECT_API_URL": world.prefect}
    return replace(
        project, environment={**project.environment, **world.variables, **prefect, REMOTE: new_bucket(world.store)}
    ), count


def _start(project: Project) -> subprocess.Popen[str]:
    return project.start("-m", "flows.reproduce", "--jobs", "2")


def _finish(process: subprocess.Popen[str], lines: list[str]) -> int | None:
    """Collect what a run prints and wait for its end; ``None`` if it is stuck, after which it is killed."""
    killer = threading.Timer(LIMIT_S, process.kill)
    killer.start()
    try:
        lines.extend(process.communicate()[0].splitlines())
    finally:
        stuck = not killer.is_alive()
        killer.cancel()
        if process.poll() is None:  # this process was told to end, and the run ends what it has started
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.communicate(timeout=_END_S)
            process.kill()
    return None if stuck else process.returncode


def _disturb(trial: Trial, project: Project, process: subprocess.Popen[str], world: World, rng: random.Random) -> None:
    """Wait for the moment of the fault, then let it happen, unless the run has ended."""
    time.sleep(trial.at_s)
    if (target := _TARGETS.get(trial.kind)) is not None:
        # A stage or a command of DVC may not run just now: the fault waits for the next one.
        soon(lambda: process.poll() is not None or target(project, process), LIMIT_S)
        for pid in target(project, process) if process.poll() is None else ():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
                trial.hit = True
    elif process.poll() is None:
        trial.hit = True
        if trial.kind == "disk full":
            limit = rng.choice((0, 100, 4096))
            with contextlib.suppress(ProcessLookupError):
                resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (limit, limit))
        elif trial.kind == "store killed":
            world.store.kill()
            time.sleep(rng.uniform(1.0, 8.0))
            world.store.start()
        else:
            world.store.refuses = 0.5
            time.sleep(rng.uniform(1.0, 8.0))
            world.store.refuses = 0.0


def _started(words: str) -> Callable[[Project, subprocess.Popen[str]], list[int]]:
    def find(project: Project, _: subprocess.Popen[str]) -> list[int]:
        return [pid for pid in working_in(project.root) if words in processes.command_of(pid)][:1]

    return find


def _guarded(_: Project, process: subprocess.Popen[str]) -> list[int]:
    pattern = f"local.guardian {process.pid}."
    guardians = [int(path.name) for path in Path("/proc").glob("[0-9]*") if pattern in _command(path)]
    return [*guardians, process.pid] if guardians else []


def _command(path: Path) -> str:
    return processes.command_of(int(path.name))


def _server(project: Project, _: subprocess.Popen[str]) -> list[int]:
    with contextlib.suppress(OSError, ValueError):
        return [int(json.loads((server.home(project.root) / "server.json").read_text())["pid"])]
    return []


_TARGETS: dict[str, Callable[[Project, subprocess.Popen[str]], list[int]]] = {
    "flow": lambda _, process: [process.pid] if process.poll() is None else [],
    "guardian": _guarded,
    "stage": _started("make.py"),
    "dvc": _started("dvc "),
    "server": _server,
}
"""The processes that a fault kills, by kind; empty as long as there is none."""


def _no_orphans(trial: Trial, project: Project) -> None:
    """After the run, nothing that it started may live on, unless its guardian was killed with it."""
    if trial.kind != "guardian" and not soon(lambda: not working_in(project.root), _SETTLE_S):
        left = [processes.command_of(pid) for pid in working_in(project.root)]
        trial.problems.append(f"orphans: {left}")


def _check(trial: Trial, project: Project, count: int, world: World, before: set[str]) -> None:
    """Note every out, remote object, process and flow run that is not as after an undisturbed run.

    ``before`` are flow runs that other trials left running: they are not this one's problem.
    """
    root = project.root
    trial.problems += [f"other bytes: {name}" for name in differing(root, count)]
    if not soon(lambda: not working_in(root), _SETTLE_S):
        trial.problems.append("orphans after the resumed run")
    stages = read_stages(root / MAIN_LOCK, MAIN_LOCK) if (root / MAIN_LOCK).exists() else {}
    outs = {md5 for stage in stages.values() for md5 in stage.outs.values()}
    with _as_client(project):
        store = open_store(project.environment[REMOTE])
        keys = set(store.keys())
        if lost := sorted(md5 for md5 in outs if object_key(md5) not in keys):
            trial.problems.append(f"lost in the remote: {lost}")
        if not any(key.startswith("pathfinder/log/") for key in keys):
            trial.problems.append("no entry in the remote's log")
    if left := _running(project, world) - before:
        trial.problems.append(f"stays Running: flow runs {sorted(left)}")


def first_traceback(lines: Sequence[str]) -> str:
    """The first traceback in the output of a run with the lines around it; empty if there is none."""
    at = next((at for at, line in enumerate(lines) if _TRACEBACK in line), None)
    return "" if at is None else "\n".join(lines[max(0, at - _AROUND) : at + _SHOWN])


def differing(root: Path, count: int) -> list[str]:
    """The outputs below ``root`` that are missing or differ from a run with ``count`` numbers."""
    paths = {name: root / "out" / name for name in expected(count)}
    return [
        name for name, text in expected(count).items() if not paths[name].exists() or paths[name].read_text() != text
    ]


def expected(count: int) -> dict[str, str]:
    """The outputs of a run with ``count`` numbers, by name."""
    numbers = range(count)
    kinds = {"even": [n * n for n in numbers if n % 2 == 0], "odd": [n * n for n in numbers if n % 2 == 1]}
    texts = {f"{kind}.txt": "".join(f"{value}\n" for value in values) for kind, values in kinds.items()}
    whole = {"numbers.txt": "".join(f"{n}\n" for n in numbers), "total.txt": f"{sum(n * n for n in numbers)}\n"}
    return texts | whole


@contextlib.contextmanager
def _as_client(project: Project) -> Iterator[None]:
    """The variables of the project's store in this process."""
    before = dict(os.environ)
    os.environ.update({name: value for name, value in project.environment.items() if name.startswith(("AWS_", "PATH"))})
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def _running(project: Project, world: World) -> set[str]:
    """The flow runs that the project's server still regards as running."""
    home = server.home(project.root if "PREFECT_API_URL" not in project.environment else world.folder)
    return running(home / "prefect.db")


def running(path: Path) -> set[str]:
    """The flow runs without a final state in the database of a Prefect server, which need not exist yet."""
    if not path.exists():
        return set()
    with contextlib.closing(sqlite3.connect(path)) as database:
        query = "select id from flow_run where state_type in ('RUNNING', 'PENDING')"
        return {str(name) for (name,) in database.execute(query)}
