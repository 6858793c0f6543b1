"""Run random schedules of a team: python -m tests.campaigns.schedules [COUNT] [--out FILE] [--minutes M].

Appends one row of JSON per seed to FILE and skips the seeds that FILE has, so that a repeat continues. Exits with
status 1 if a schedule went wrong. The folder with all logs is kept then.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.campaigns.schedules.place import place
from tests.campaigns.schedules.schedule import run


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.campaigns.schedules", description=__doc__)
    parser.add_argument("count", nargs="?", type=int, default=100, help="seeds 0 to COUNT - 1 (default: 100)")
    parser.add_argument("--out", type=Path, default=Path("schedules.jsonl"), help="the rows (default: schedules.jsonl)")
    parser.add_argument("--minutes", type=float, default=1e9, help="start no further schedule after so many minutes")
    options = parser.parse_args()
    rows = schedules(options.count, options.out, options.minutes)
    print(summary(rows))
    sys.exit(any(row["wrong"] for row in rows))


def schedules(count: int, out: Path, minutes: float) -> list[dict[str, Any]]:
    """The rows of the first ``count`` seeds, of as many as the minutes allow; known ones are not run again."""
    rows = [json.loads(line) for line in out.read_text().splitlines()] if out.exists() else []
    left = [seed for seed in range(count) if seed not in {row["seed"] for row in rows}]
    deadline, home = time.monotonic() + 60 * minutes, Path(tempfile.mkdtemp(prefix="schedules-"))
    if left:
        with place(home) as here, out.open("a") as file:
            for seed in left:
                if time.monotonic() > deadline:
                    break
                rows.append(run(here, seed).as_row())
                file.write(json.dumps(rows[-1]) + "\n")
                file.flush()
                print(json.dumps(rows[-1]), flush=True)
    if any(row["wrong"] for row in rows):
        print(f"the logs are in {home}")
    else:
        shutil.rmtree(home)
    return rows


def summary(rows: list[dict[str, Any]]) -> str:
    """One line about all rows."""
    wrong = sum(bool(row["wrong"]) for row in rows)
    faults = sum(len(row["faults"]) for row in rows)
    slowest = max((row["orphans_s"] for row in rows), default=0.0)
    return (
        f"{len(rows)} schedules, {faults} faults, {sum(row['executions'] for row in rows)} executions, {wrong} wrong; "
        f"the last process ended at most {slowest:.0f} s after its schedule"
    )


if __name__ == "__main__":
    main()
