"""Rehearse the GPU profiles on a CPU: python -m tests.rehearsal [PROFILE …], or put faults back with --faults."""

from __future__ import annotations

import argparse
import sys
import time

from pathfinder.core.text import errors_without_traceback
from tests.rehearsal.faults import plant_all
from tests.rehearsal.rehearse import rehearsal
from tests.rehearsal.show import RehearsalError, show

NOT_REHEARSED: tuple[str, ...] = ()


def main() -> None:
    """Run the rehearsal and print a summary."""
    parser = argparse.ArgumentParser(prog="python -m tests.rehearsal", description=__doc__)
    parser.add_argument("profiles", nargs="*", help="GPU profiles (default: all)")
    parser.add_argument("--committed", action="store_true", help="leave uncommitted changes out")
    parser.add_argument("--verbose", action="store_true", help="show the output of every command")
    parser.add_argument("--faults", nargs="*", type=int, help="instead: put the faults of these numbers (or all) back")
    given = parser.parse_args()
    start = time.monotonic()
    with errors_without_traceback(), rehearsal(given.profiles, given.committed, given.verbose) as run:
        try:
            if given.faults is not None:
                plant_all(run.clone, given.faults)
                return
            run.run()
        except RehearsalError as error:
            show(f"\nfailed: {error}")
            sys.exit(1)
    show(f"rehearsed {', '.join(run.names)} in {time.monotonic() - start:.0f} s")
    for line in NOT_REHEARSED:
        show(f"  not rehearsed: {line}")


if __name__ == "__main__":
    main()
