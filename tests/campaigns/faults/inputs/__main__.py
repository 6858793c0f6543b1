"""Read malformed documents of every format and show the table of kinds; exits with status 1 if a reader is wrong."""

from __future__ import annotations

import argparse
import sys
import time
from fnmatch import fnmatchcase

from tests.campaigns.faults import results
from tests.campaigns.faults.inputs.answers import Answers
from tests.campaigns.faults.inputs.answers import run as run_answers
from tests.campaigns.faults.inputs.campaign import FORMATS, run, table


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.campaigns.faults.inputs", description=__doc__)
    parser.add_argument("names", nargs="*", default=["*"], help="formats or patterns (default: all)")
    parser.add_argument("--seed", type=int, default=1, help="decides places and rows (default: 1)")
    parser.add_argument("--answers", type=int, default=0, help="read this many random answers of a judge instead")
    parser.add_argument("--edits", type=int, default=500, help="random edits per format of text (default: 500)")
    results.add_option(parser)
    given = parser.parse_args()
    start, today = time.monotonic(), time.strftime("%Y-%m-%d")
    if given.answers:
        answers = run_answers(given.answers, given.seed)
        print(f"seed {given.seed}\n\n{answers_text(answers)}")
        print("\n".join(answers.problems))
        seconds, said = time.monotonic() - start, f"Measured on {today} with seed {given.seed}"
        text = f"{said}, in {seconds:.0f} s:\n\n{answers_text(answers)}"
        results.keep(given.result, results.Result("answers", given.answers, len(answers.problems), text))
        sys.exit(bool(answers.problems))
    chosen = [one for one in FORMATS if any(fnmatchcase(one.name, name) for name in given.names)]
    if not chosen:
        parser.error(f"no format matches; there are {', '.join(one.name for one in FORMATS)}")
    tallies = []
    for tally in run(chosen, given.seed, edits=given.edits):
        tallies.append(tally)
        print(f"[{len(tallies)}/{len(chosen)}] {tally.name}", flush=True)
    print(f"\nseed {given.seed}\n\n{table(tallies)}")
    problems = [problem for tally in tallies for problem in tally.problems]
    print("\n".join(problems))
    seconds, documents = time.monotonic() - start, sum(tally.outcomes.total() for tally in tallies)
    text = f"Measured on {today} with seed {given.seed}, in {seconds:.0f} s:\n\n{table(tallies)}"
    results.keep(given.result, results.Result("inputs", documents, len(problems), text))
    sys.exit(bool(problems))


def answers_text(found: Answers) -> str:
    """The outcomes of random answers, as a Markdown table and a sentence."""
    lines = ["| answers | read as scores | refused with a reason |", "| --- | --- | --- |"]
    for kind in sorted(found.read | found.refused):
        lines.append(f"| {kind} | {found.read[kind]:,} | {found.refused[kind]:,} |")
    said = f"{len(found.problems)} wrong; the slowest took {1000 * found.longest_s:.1f} ms of processor time"
    return "\n".join([*lines, "", said])


if __name__ == "__main__":
    main()
