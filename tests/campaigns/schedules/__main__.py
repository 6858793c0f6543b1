"""Run random schedules of a team: python -m tests.campaigns.schedules [COUNT] [--pools] [--out FILE] [--minutes M].

Appends one row of JSON per seed to FILE and skips the seeds that FILE has, so that a repeat continues. A row comes two
minutes after its schedule, when the server has sent its last messages. Exits with status 1 if a schedule went wrong.
The folder with all logs is kept then.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
import traceback
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.campaigns.schedules.notices import LATEST_S
from tests.campaigns.schedules.place import Place, place
from tests.campaigns.schedules.schedule import Result, judge_notices, run


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.campaigns.schedules", description=__doc__)
    parser.add_argument("count", nargs="?", type=int, default=100, help="seeds 0 to COUNT - 1 (default: 100)")
    parser.add_argument("--pools", action="store_true", help="the machines are workers of a pool, not a launcher's")
    parser.add_argument("--out", type=Path, help="the rows (default: .pathfinder/schedules.jsonl or pools.jsonl)")
    parser.add_argument("--minutes", type=float, default=1e9, help="start no further schedule after so many minutes")
    options = parser.parse_args()
    out = options.out or Path(f".pathfinder/{'pools' if options.pools else 'schedules'}.jsonl")
    rows = schedules(options.count, out, options.minutes, options.pools)
    print(summary(rows))
    sys.exit(any(row["wrong"] for row in rows))


def schedules(count: int, out: Path, minutes: float, pools: bool = False) -> list[dict[str, Any]]:
    """The rows of the first ``count`` seeds, of as many as the minutes allow; known ones are not run again."""
    rows = [json.loads(line) for line in out.read_text().splitlines()] if out.exists() else []
    left = [seed for seed in range(count) if seed not in {row["seed"] for row in rows}]
    deadline, home = time.monotonic() + 60 * minutes, Path(tempfile.mkdtemp(prefix="schedules-"))
    out.parent.mkdir(parents=True, exist_ok=True)
    new = len(rows)
    if left:
        with place(home, pools) as here:
            for result in _results(here, left, deadline):
                rows.append(result.as_row())
                with out.open("a") as file:
                    file.write(json.dumps(rows[-1]) + "\n")
                print(json.dumps(rows[-1]), flush=True)
    if any(row["wrong"] for row in rows[new:]):
        print(f"the logs are in {home}")
    else:
        shutil.rmtree(home, ignore_errors=True)
    return rows


def _results(here: Place, seeds: list[int], deadline: float) -> Iterator[Result]:
    """The schedules' results, each as soon as no message about it can come any more."""
    waiting: deque[tuple[float, Result]] = deque()
    for seed in seeds:
        if time.monotonic() > deadline:
            break
        result = _schedule(here, seed)
        waiting.append((time.monotonic() + LATEST_S, result))
        while waiting[0][0] < time.monotonic():
            yield _told(here, waiting.popleft()[1])
    for due, result in waiting:
        time.sleep(max(0.0, due - time.monotonic()))
        yield _told(here, result)


def _schedule(here: Place, seed: int) -> Result:
    """Run a schedule; an exception makes it wrong, and the next one finds the place in order."""
    result = Result(seed, [])
    try:
        result = run(here, seed)
    except Exception as error:
        _fail(here, result, error)
        try:
            here.settle()
        except Exception as again:
            _fail(here, result, again)
    return result


def _told(here: Place, result: Result) -> Result:
    try:
        judge_notices(here, result)
    except Exception as error:
        _fail(here, result, error)
    return result


def _fail(here: Place, result: Result, error: Exception) -> None:
    result.wrong.append(f"{type(error).__name__}: {error}")
    with (here.home / f"{result.seed}-traceback.txt").open("a") as file:
        traceback.print_exception(error, file=file)


def summary(rows: list[dict[str, Any]]) -> str:
    """One line about all rows."""
    wrong = sum(bool(row["wrong"]) for row in rows)
    executions, notices, excused = (
        sum(row[name] for row in rows) for name in ("executions", "notices", "excused_notices")
    )
    faults, false, missing = (
        sum(len(row[name]) for row in rows) for name in ("faults", "false_notices", "missing_notices")
    )
    orphans_s, notice_s = (max((row[name] for row in rows), default=0.0) for name in ("orphans_s", "slowest_notice_s"))
    return (
        f"{len(rows)} schedules, {faults} faults, {executions} executions, {wrong} wrong; "
        f"{notices} notices, {false} false, {missing} missing, {excused} not due as the server was away, "
        f"the slowest {notice_s:.0f} s after its run; "
        f"the last process ended at most {orphans_s:.0f} s after its schedule"
    )


if __name__ == "__main__":
    main()
