"""Run the miniature pipeline under random faults, resume it, and compare: python -m tests.faults.kills --runs 100.

Every run must end right or, resumed, with the bytes of an undisturbed run: no orphan, no stuck run, no object that the
remote lacks, no flow run that stays Running. ``--seed`` and ``--only`` repeat a single trial. Exits with status 1 if
something is wrong.
"""

from __future__ import annotations

import argparse
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from flows import server
from tests.faults.store import faulty_store
from tests.faults.trial import KINDS, Trial, World, run, undisturbed


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults.kills", description=__doc__)
    parser.add_argument("--runs", type=int, default=24, help="trials (default: 24, three of each kind on average)")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6), help="decides kinds and moments")
    parser.add_argument("--first", type=int, default=1, help="number of the first trial (default: 1)")
    parser.add_argument("--only", type=int, help="repeat this trial of the seed only")
    parser.add_argument("--kind", choices=KINDS, help="one kind of fault only")
    given = parser.parse_args()
    numbers = [given.only] if given.only else range(given.first, given.first + given.runs)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the server ends with this process
    sys.exit(campaign(given.seed, numbers, (given.kind,) if given.kind else KINDS))


def campaign(seed: int, numbers: Sequence[int], kinds: tuple[str, ...] = KINDS) -> int:
    """Run the trials and show what happened; returns 1 if something is wrong, otherwise 0."""
    start = time.monotonic()
    folder = Path(tempfile.mkdtemp(prefix="kills-"))
    trials: list[Trial] = []
    try:
        with faulty_store(seed) as (store, variables):
            world = undisturbed(World(folder, server.start_server(folder, owned=True).url, store, variables))
            print(f"seed {seed}; an undisturbed run takes {world.usual_s:.0f} s here", flush=True)
            for number in numbers:
                trials.append(run(world, seed, number, kinds))
                print(f"[{len(trials)}/{len(numbers)}] {_line(trials[-1])}", flush=True)
                if not trials[-1].problems:
                    shutil.rmtree(folder / f"trial-{number}", ignore_errors=True)
    finally:
        server.stop(folder, "server")
        shutil.rmtree(folder, ignore_errors=True)
        print(f"\n{table(trials)}\n\nseed {seed}, {time.monotonic() - start:.0f} s", flush=True)
    return int(any(trial.problems for trial in trials))


def table(trials: Sequence[Trial]) -> str:
    """What happened per kind of fault, as a Markdown table."""
    heads = ("fault", "runs", "hit", "ended right at once", "resumed", "wrong", "tracebacks")
    rows = [[kind, *_counts([trial for trial in trials if trial.kind == kind])] for kind in KINDS]
    lines = [[str(cell) for cell in row] for row in [heads, *rows, ["all", *_counts(trials)]] if row[1]]
    lines.insert(1, ["---"] * len(heads))
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _counts(trials: Sequence[Trial]) -> list[int]:
    right = [trial for trial in trials if not trial.problems]
    return [
        len(trials),
        sum(trial.hit for trial in trials),
        sum(trial.ended == 0 for trial in right),
        sum(trial.resumes > 0 for trial in right),
        len(trials) - len(right),
        sum(trial.traceback for trial in trials),
    ]


def _line(trial: Trial) -> str:
    failed = f"status {trial.ended}, {trial.resumes} resumes, last line: {trial.last_line[:160]}"
    end = failed if trial.ended != 0 else "ended right"
    hit = f"at {trial.at_s:.1f} s" if trial.hit else "after the end"
    problems = "".join(f"\n    {problem}" for problem in trial.problems)
    return f"trial {trial.number}: {trial.kind} {hit}: {end} ({trial.seconds:.0f} s){problems}"


if __name__ == "__main__":
    main()
