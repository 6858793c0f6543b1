"""The audit from the command line, with nothing but the repository.

Run     python -m stages.lineage up models/full     the way back to the source files
        python -m stages.lineage check [PATH]       re-hash everything; exit status 1 on any difference
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from stages.core.io import DataError
from stages.lineage.check import check
from stages.lineage.graph import up


def main(argv: Sequence[str] | None = None) -> None:
    """Answer one question."""
    parser = argparse.ArgumentParser(prog="python -m stages.lineage", description=(__doc__ or "").split("\n", 1)[0])
    verbs = parser.add_subparsers(dest="verb", required=True)
    verbs.add_parser("up", help="the way back from a path to the source files").add_argument("path")
    verbs.add_parser("check", help="re-hash what a path, or everything, names").add_argument("path", nargs="?")
    arguments = parser.parse_args(argv)
    try:
        if arguments.verb == "up":
            print(up(arguments.path), end="")
            return
        findings = check(arguments.path)
    except DataError as error:
        sys.exit(f"error: {error}")
    for finding in findings:
        print(finding)
    errors = sum(finding.level == "error" for finding in findings)
    print(f"{errors} differences" if errors else "Everything that could be checked here is as recorded.")
    sys.exit(1 if errors else 0)


if __name__ == "__main__":
    main()
