"""Run the small pipeline under random faults, resume it, compare: python -m tests.campaigns.faults.kills --runs 100.

Every run must end right or, resumed, with the bytes of an undisturbed run: no orphan, no stuck run, no object that the
remote misses, no flow run that stays Running. ``--seed`` and ``--only`` repeat a single trial. ``--log`` keeps the
trials of several commands, and ``--table`` shows them all. Exits with status 1 if something is wrong.
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
from ground.text import errors_without_traceback
from tests.campaigns.faults import ledger, results
from tests.campaigns.faults.store import faulty_store
from tests.campaigns.faults.trial import KINDS, Trial, World, run, undisturbed


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.campaigns.faults.kills", description=__doc__)
    parser.add_argument("--runs", type=int, default=24, help="trials (default: 24, three of each kind on average)")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="start no trial after this time")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6), help="decides kinds and moments")
    parser.add_argument("--first", type=int, default=1, help="number of the first trial (default: 1)")
    parser.add_argument("--only", type=int, help="repeat this trial of the seed only")
    parser.add_argument("--kind", choices=KINDS, help="one kind of fault only")
    parser.add_argument("--log", type=Path, help="append each trial to this file (JSON lines)")
    parser.add_argument("--table", type=Path, metavar="LOG", help="show the table of such a file, and stop")
    parser.add_argument("--write", action="store_true", help="with --table: write it to tests/campaigns/reliability.md")
    results.add_option(parser)
    given = parser.parse_args()
    if given.table:
        with errors_without_traceback():
            _show(given.table, given.write)
        return
    numbers = [given.only] if given.only else range(given.first, given.first + given.runs)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the server ends with this process
    kinds = (given.kind,) if given.kind else KINDS
    trials = campaign(given.seed, numbers, kinds, given.log, given.minutes)
    found = ledger.result({(given.seed, trial.number): trial for trial in trials})
    results.keep(given.result, found)
    sys.exit(int(bool(found.wrong)))


def campaign(
    seed: int,
    numbers: Sequence[int],
    kinds: tuple[str, ...] = KINDS,
    log: Path | None = None,
    minutes: float = float("inf"),
) -> list[Trial]:
    """Run the trials, append each to ``log``, and show what happened; none starts after ``minutes``."""
    start = time.monotonic()
    folder = Path(tempfile.mkdtemp(prefix="kills-"))
    trials: list[Trial] = []
    try:
        with faulty_store(seed) as (store, variables):
            world = undisturbed(World(folder, server.start_server(folder, owned=True).url, store, variables))
            print(f"seed {seed}; an undisturbed run takes {world.usual_s:.0f} s here", flush=True)
            for number in numbers:
                if time.monotonic() - start > 60 * minutes:
                    print(f"{minutes:.0f} minutes are over after {len(trials)} of {len(numbers)} runs", flush=True)
                    break
                trials.append(run(world, seed, number, kinds))
                if log is not None:
                    ledger.append(log, seed, trials[-1])
                print(f"[{len(trials)}/{len(numbers)}] {_line(trials[-1])}", flush=True)
                if not trials[-1].problems:
                    shutil.rmtree(folder / f"trial-{number}", ignore_errors=True)
    finally:
        server.stop(folder, "server")
        shutil.rmtree(folder, ignore_errors=True)
        print(f"\n{ledger.table(trials)}\n\nseed {seed}, {time.monotonic() - start:.0f} s", flush=True)
    return trials


def _show(log: Path, write: bool) -> None:
    trials = ledger.read(log)
    if write:
        results.write_page([ledger.result(trials)])
    print(ledger.summary(trials), end="")


def _line(trial: Trial) -> str:
    failed = f"status {trial.ended}, {trial.resumes} resumes, last line: {trial.last_line[:160]}"
    end = failed if trial.ended != 0 else "ended right"
    hit = f"at {trial.at_s:.1f} s" if trial.hit else "after the end"
    problems = "".join(f"\n    {problem}" for problem in trial.problems)
    shown = f"\n{trial.traceback}" if trial.traceback else ""
    return f"trial {trial.number}: {trial.kind} {hit}: {end} ({trial.seconds:.0f} s){problems}{shown}"


if __name__ == "__main__":
    main()
