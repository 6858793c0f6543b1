"""Disturb the whole pipeline at a small size: python -m tests.campaigns.faults.gameday --faults 1000 --seed 7.

All stages of the quickstart run in order, over and over. Each attempt of a stage meets one fault at a random system
call that changes a file, and the next attempt continues in the same folder, until one ends with status 0; after several
faults, an attempt runs without one. Then all files must have the bytes of an undisturbed run. The two stages of Great
Expectations take most of the time: in four of five passes, their files are taken from the undisturbed run.
"""

from __future__ import annotations

import argparse
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tests.campaigns.faults import results
from tests.campaigns.faults.campaign import Task, Trial, age, applies, differing, digests, last_line, table, told
from tests.campaigns.faults.shim import library
from tests.campaigns.faults.shim.forks import Fault, Forks
from tests.campaigns.faults.smallrun import STAGES, VOLATILE, make

_WORK = "tests.campaigns.faults.shim.stage_task:stage"
_FAULTS = 4
"""Faults that a stage meets in one pass, at most."""
_EVERY = 5


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.campaigns.faults.gameday", description=__doc__)
    parser.add_argument("--faults", type=int, default=1000, help="faults that must hit (default: 1000)")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6), help="decides faults and calls")
    parser.add_argument("--first", type=int, default=1, help="number of the first pass (default: 1)")
    parser.add_argument("--only", type=int, help="repeat this pass of the seed only")
    results.add_option(parser)
    given = parser.parse_args()
    if why := library.missing():
        parser.exit(1, f"{why}\n")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the table is printed
    first, faults = (given.only, 1) if given.only else (given.first, given.faults)
    start = time.monotonic()
    trials = campaign(faults, given.seed, first)
    seconds, wrong = time.monotonic() - start, [trial for trial in trials if trial.problems]
    text = f"Measured on {time.strftime('%Y-%m-%d')} with seed {given.seed}, in {seconds:,.0f} s:\n\n{table(trials)}\n"
    for trial in wrong:
        text += f"\n- {trial.task}: {trial.fault.kind} at call {trial.fault.at}: {'; '.join(trial.problems)}"
    hit = sum(trial.hit for trial in trials)
    results.keep(given.result, results.Result("gameday", hit, len(wrong), text))
    sys.exit(int(bool(wrong)))


def campaign(faults: int, seed: int, first: int = 1) -> list[Trial]:
    """Run passes until ``faults`` have hit, show what is wrong as it is found, and print the table."""
    start, trials, number = time.monotonic(), list[Trial](), first
    with (
        tempfile.TemporaryDirectory(prefix="gameday-") as scratch,
        Forks(["tests.campaigns.faults.shim.stage_task"]) as forks,
    ):
        try:
            tasks = undisturbed(forks, Path(scratch) / "right")
            took = time.monotonic() - start
            print(f"seed {seed}; {len(tasks)} stages run without a fault in {took:.0f} s", flush=True)
            while sum(trial.hit for trial in trials) < faults:
                trials += one_pass(forks, tasks, Path(scratch), random.Random(f"{seed} {number}"), number)
                hit, wrong = sum(trial.hit for trial in trials), sum(bool(trial.problems) for trial in trials)
                said = f"pass {number}, {wrong} wrong, {time.monotonic() - start:.0f} s"
                print(f"[{hit}/{faults}] {said}", flush=True)
                number += 1
        finally:
            print(f"\n{table(trials)}\n\nseed {seed}, {number - first} passes, {time.monotonic() - start:.0f} s")
    return trials


def undisturbed(forks: Forks, folder: Path) -> list[Task]:
    """Run every stage once in the new folder: the tasks, whose expected files are all that there are after them."""
    folder.mkdir()
    make(folder)
    tasks = []
    for name, arguments in STAGES:
        argv = (name, *arguments)
        forks.run(_WORK, folder, argv, armed=False)  # imports what the following runs need
        run = forks.run(_WORK, folder, argv, listed=True)
        if run.status:
            raise ValueError(f"{' '.join(argv)} fails without a fault: {run.output}")
        tasks.append(Task(" ".join(argv), _WORK, folder, digests(folder, VOLATILE), run.calls, argv, VOLATILE))
    return tasks


def one_pass(forks: Forks, tasks: list[Task], scratch: Path, rng: random.Random, number: int) -> list[Trial]:
    """Run all stages in a new folder under faults. A stage that is wrong in the end is replaced by the right files."""
    folder, trials = scratch / "pass", list[Trial]()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    make(folder)
    for task in tasks:
        if task.argv[0] == "validate" and number % _EVERY:
            _take(task, folder)
            continue
        found = list(_attempts(forks, task, folder, rng))
        left = differing(task.expected, digests(folder, VOLATILE))
        found[-1].problems += [f"in the end: {problem}" for problem in left]
        for trial in found:
            if trial.problems:
                print(f"pass {number}, {trial.task}: {trial.fault.kind} at call {trial.fault.at} ({trial.call}):")
                print("".join(f"    {problem}\n" for problem in trial.problems), end="", flush=True)
        trials += found
        if left:
            _take(task, folder)
    return trials


def _attempts(forks: Forks, task: Task, folder: Path, rng: random.Random) -> Iterator[Trial]:
    """Run a stage under one random fault after another until it ends with status 0."""
    for _ in range(_FAULTS):
        at = rng.randrange(len(task.calls)) + 1
        fault = Fault(at, rng.choice([kind for kind in library.KINDS[1:] if applies(kind, task.calls[at - 1])]))
        run = forks.run(task.work, folder, task.argv, fault)
        trial = Trial(task.name, fault, run.call, run.status, last_line(run), run.hit, told(run))
        age(folder)
        if run.status == 0:
            yield trial
            return
        yield trial
    run = forks.run(task.work, folder, task.argv)
    problems = [f"fails without a fault: {last_line(run)}"] if run.status else []
    yield Trial(task.name, Fault(0, "none"), "", run.status, last_line(run), False, problems)


def _take(task: Task, folder: Path) -> None:
    """Replace all files by those that an undisturbed run has after this stage."""
    found = digests(folder, VOLATILE)
    for name in found.keys() - task.expected.keys():
        (folder / name).unlink()
    for name, digest in task.expected.items():
        if found.get(name) != digest:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(task.template / name, folder / name)


if __name__ == "__main__":
    main()
