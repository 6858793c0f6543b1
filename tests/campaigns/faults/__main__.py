"""Put fixed faults back into clones of the tree, one at a time, and see a named test fail on each.

Exits with status 1 if a fault goes unnoticed. Without a name, all faults of the catalogue are put back.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from tests.campaigns.faults import results
from tests.campaigns.faults.catalogue import GROUPS
from tests.campaigns.faults.planting import Fault, Planted, check, misfit, plant_all
from tests.campaigns.rehearsal.clone import clone

ROOT = Path(__file__).resolve().parents[3]


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.campaigns.faults", description=__doc__)
    parser.add_argument("names", nargs="*", help=f"keys, patterns or groups ({', '.join(GROUPS)})")
    parser.add_argument("--list", action="store_true", help="show the faults and their tests, and stop")
    parser.add_argument("--check", action="store_true", help="name the rows that do not fit the tree, and stop")
    parser.add_argument("--lanes", type=int, default=2, help="clones side by side (default: 2)")
    parser.add_argument("--committed", action="store_true", help="leave uncommitted changes out")
    results.add_option(parser)
    given = parser.parse_args()
    chosen = list(select(given.names))
    if not chosen:
        parser.error(f"no fault matches {' '.join(given.names)}; --list shows all")
    if given.list:
        for fault in chosen:
            print(f"{fault.key:<20} {fault.words}\n{'':<20} {fault.test}")
        return
    if given.check:
        wrong = [f"{fault.key}: {reason}" for fault in chosen if (reason := misfit(fault, ROOT))]
        print(*wrong, f"{len(chosen)} rows, {len(wrong)} of which do not fit the tree", sep="\n")
        sys.exit(bool(wrong))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the clones are removed
    sys.exit(run(chosen, given.lanes, given.committed, given.result))


def select(names: Sequence[str]) -> Iterator[Fault]:
    """The faults that a name matches, in the order of the catalogue."""
    for group, faults in GROUPS.items():
        for fault in faults:
            if not names or any(name == group or fnmatchcase(fault.key, name) for name in names):
                yield fault


def run(faults: Sequence[Fault], lanes: int = 2, committed: bool = False, result: Path | None = None) -> int:
    """Put ``faults`` back and show what happened; returns 1 if one of them went unnoticed, otherwise 0."""
    start, done = time.monotonic(), 0
    base = Path(tempfile.mkdtemp(prefix="faults-"))

    def show(planted: Planted) -> None:
        nonlocal done
        done += 1
        print(f"[{done}/{len(faults)}] {_line(planted)}", flush=True)

    def show_wait(line: str) -> None:
        print(f"{time.monotonic() - start:5.0f} s  {line}", flush=True)

    print(f"{len(faults)} faults; their tests run first without a fault, in a clone of the tree", flush=True)
    try:
        clones = [
            clone(base / str(lane) / "clone", base / "cache", committed) for lane in range(min(lanes, len(faults)))
        ]
        if failure := check(clones[0], faults, show_wait):
            print(f"a test fails without a fault:\n{failure}")
            return 1
        planted = plant_all(clones, faults, show)
    finally:
        shutil.rmtree(base, ignore_errors=True)
    print()
    for one in planted:
        print(_line(one))
    unnoticed = [one for one in planted if one.problem]
    seconds = time.monotonic() - start
    said = (
        f"unnoticed: {', '.join(one.fault.key for one in unnoticed)}" if unnoticed else "each was noticed by its test"
    )
    print(f"\n{len(planted)} faults put back in {seconds:.0f} s; {said}")
    results.keep(result, results.Result("planted", len(planted), len(unnoticed), page_text(planted, seconds)))
    return int(bool(unnoticed))


def page_text(planted: Sequence[Planted], seconds: float) -> str:
    """The section of tests/campaigns/reliability.md about the faults that were put back."""
    by_fault = {id(one.fault): one for one in planted}
    lines = [
        f"{len(planted)} faults were put back one at a time on {time.strftime('%Y-%m-%d')}, in {seconds:,.0f} s.",
        "",
        "| group | faults | noticed by their tests |",
        "| --- | --- | --- |",
    ]
    for group, faults in GROUPS.items():
        if tried := [by_fault[id(fault)] for fault in faults if id(fault) in by_fault]:
            lines.append(f"| {group} | {len(tried)} | {sum(not one.problem for one in tried)} |")
    lines += [f"\nNot noticed: {one.fault.key} ({one.problem})." for one in planted if one.problem]
    return "\n".join(lines)


def _line(planted: Planted) -> str:
    fault = planted.fault
    return f"{planted.problem or 'noticed':<8} {planted.seconds:5.0f} s  {fault.key:<20} {fault.words}"


if __name__ == "__main__":
    main()
