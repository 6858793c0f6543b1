"""Disturb every writer at every system call: python -m tests.campaigns.faults.syscalls [TASK …] [--only CALL:KIND].

Each call that changes a file fails (no space, bad disk, interrupted), writes half, is the last before a full disk,
meets a jump of the clock, or SIGKILL comes before or after it. The run must end with the same bytes or one clear line,
and the next one with the same bytes and no leftovers. Exits with status 1 if something is wrong.
"""

from __future__ import annotations

import argparse
import random
import signal
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from tests.campaigns.faults import results
from tests.campaigns.faults.campaign import Trial, disturb, faults_of, table, undisturbed
from tests.campaigns.faults.shim import library
from tests.campaigns.faults.shim.forks import Fault, Forks

SMALL, TORCH = "tests.campaigns.faults.shim.tasks", "tests.campaigns.faults.shim.checkpoint_task"
TASKS = {
    "files": SMALL,
    "journal": SMALL,
    "store": SMALL,
    "log": SMALL,
    "parts": SMALL,
    "checkpoints": TORCH,
}
"""The tasks and their modules."""


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.campaigns.faults.syscalls", description=__doc__)
    parser.add_argument("tasks", nargs="*", choices=[*TASKS, []], help="what to disturb (default: all)")
    parser.add_argument("--sample", type=int, default=0, help="a random choice of faults per task (default: all)")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6), help="decides the choice")
    parser.add_argument("--kind", choices=library.KINDS[1:], action="append", help="only these kinds of fault")
    parser.add_argument("--only", help="one fault, for example '12:bad disk'")
    results.add_option(parser)
    given = parser.parse_args()
    if why := library.missing():
        parser.exit(1, f"{why}\n")
    only = Fault(int(given.only.partition(":")[0]), given.only.partition(":")[2]) if given.only else None
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the scratch folders are removed
    start = time.monotonic()
    trials = campaign(given.tasks or list(TASKS), given.sample, given.seed, given.kind or library.KINDS[1:], only)
    wrong, seconds = sum(bool(trial.problems) for trial in trials), time.monotonic() - start
    chosen = f"{given.sample} faults per writer, seed {given.seed}" if given.sample else "every call with every kind"
    text = f"Measured on {time.strftime('%Y-%m-%d')}, {chosen}, in {seconds:,.0f} s:\n\n"
    text += table(trials, "writer", lambda trial: trial.task)
    hit = sum(trial.hit for trial in trials)
    results.keep(given.result, results.Result("calls", hit, wrong, text))
    sys.exit(int(bool(wrong)))


def campaign(
    tasks: Sequence[str], sample: int, seed: int, kinds: Iterable[str] = library.KINDS[1:], only: Fault | None = None
) -> list[Trial]:
    """Disturb the tasks, with ``sample`` faults each (0: every one), and show what is wrong and a table."""
    start, trials, kinds = time.monotonic(), list[Trial](), tuple(kinds)
    modules = sorted({TASKS[name] for name in tasks})
    with tempfile.TemporaryDirectory(prefix="syscalls-") as folder, Forks(modules) as forks:
        for number, name in enumerate(tasks, start=1):
            found = _task(forks, name, Path(folder), sample, random.Random(f"{seed} {name}"), kinds, only)
            trials += found
            wrong = [trial for trial in found if trial.problems]
            said = f"{name}: {len(found)} faults, {len(wrong)} wrong, {time.monotonic() - start:.0f} s"
            print(f"[{number}/{len(tasks)}] {said}", flush=True)
    print(f"\n{table(trials)}\n\nseed {seed}, {time.monotonic() - start:.0f} s", flush=True)
    return trials


def _task(
    forks: Forks, name: str, scratch: Path, sample: int, rng: random.Random, kinds: Sequence[str], only: Fault | None
) -> list[Trial]:
    template = scratch / f"{name}-template"
    template.mkdir()
    before = forks.run(f"{TASKS[name]}:{name}_before", template, armed=False)
    if before.status:
        raise ValueError(f"{name} cannot be prepared: {before.output}")
    task, _ = undisturbed(forks, name, f"{TASKS[name]}:{name}", template, scratch)
    faults = [only] if only else faults_of(task, kinds)
    if sample and len(faults) > sample:
        faults = rng.sample(faults, sample)
    trials = []
    for fault in faults:
        trials.append(disturb(forks, task, fault, scratch / name))
        if only or trials[-1].problems:
            show(trials[-1], f"python -m tests.campaigns.faults.syscalls {name} --only '{fault.at}:{fault.kind}'")
    return trials


def show(trial: Trial, command: str) -> None:
    """Print a trial, what was wrong with it, and the command that repeats it."""
    print(
        f"{trial.task} {trial.fault.kind} at call {trial.fault.at} ({trial.call}): {trial.outcome}: {trial.last_line}"
    )
    print("".join(f"    {problem}\n" for problem in trial.problems), end="")
    print(f"    {command}", flush=True)


if __name__ == "__main__":
    main()
