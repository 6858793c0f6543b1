"""Read malformed documents of every format and show the table of kinds; exits with status 1 if a reader is wrong."""

from __future__ import annotations

import argparse
import sys
from fnmatch import fnmatchcase

from tests.faults.inputs.answers import run as run_answers
from tests.faults.inputs.campaign import FORMATS, run, table


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults.inputs", description=__doc__)
    parser.add_argument("names", nargs="*", default=["*"], help="formats or patterns (default: all)")
    parser.add_argument("--seed", type=int, default=1, help="decides places and rows (default: 1)")
    parser.add_argument("--answers", type=int, default=0, help="read this many random answers of a judge instead")
    given = parser.parse_args()
    if given.answers:
        sys.exit(show_answers(given.answers, given.seed))
    chosen = [one for one in FORMATS if any(fnmatchcase(one.name, name) for name in given.names)]
    if not chosen:
        parser.error(f"no format matches; there are {', '.join(one.name for one in FORMATS)}")
    tallies = list(run(chosen, given.seed))
    print(f"seed {given.seed}\n\n{table(tallies)}")
    problems = [problem for tally in tallies for problem in tally.problems]
    print("\n".join(problems))
    sys.exit(bool(problems))


def show_answers(count: int, seed: int) -> bool:
    """Read random answers and show what became of them; returns whether one was wrong."""
    found = run_answers(count, seed)
    print(f"seed {seed}\n\n| answers | scores | a reason |\n| --- | --- | --- |")
    for kind in sorted(found.read | found.refused):
        print(f"| {kind} | {found.read[kind]:,} | {found.refused[kind]:,} |")
    print(f"\n{len(found.problems)} wrong; the slowest took {1000 * found.longest_s:.1f} ms of processor time")
    print("\n".join(found.problems))
    return bool(found.problems)


if __name__ == "__main__":
    main()
