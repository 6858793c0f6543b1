"""Audit results; needs only the repository, not DVC or Prefect.

Run     python -m pathfinder.lineage up models/full     trace a path to the source files
        python -m pathfinder.lineage check [PATH]       re-hash everything; exit status 1 on any difference
        python -m pathfinder.lineage record ID [--json] trace one record from its upstream line to its training example
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence

from pathfinder.core.io import DataError
from pathfinder.lineage.check import check
from pathfinder.lineage.graph import up


def main(argv: Sequence[str] | None = None) -> None:
    """Run one audit command."""
    parser = argparse.ArgumentParser(prog="python -m pathfinder.lineage", description=(__doc__ or "").split("\n", 1)[0])
    verbs = parser.add_subparsers(dest="verb", required=True)
    verbs.add_parser("up", help="trace a path to the source files").add_argument("path")
    verbs.add_parser("check", help="re-hash everything behind a path (default: all)").add_argument("path", nargs="?")
    record = verbs.add_parser("record", help="trace one record, or list the records of a trajectory")
    record.add_argument("id")
    record.add_argument("--json", action="store_true", help="print JSON")
    arguments = parser.parse_args(argv)
    try:
        if arguments.verb == "up":
            print(up(arguments.path), end="")
        elif arguments.verb == "record":
            print(_record(arguments.id, arguments.json), end="")
        else:
            sys.exit(_check(arguments.path))
    except DataError as error:
        sys.exit(f"error: {error}")


def _check(path: str | None) -> int:
    findings = check(path)
    print("".join(f"{finding}\n" for finding in findings), end="")
    errors = sum(finding.level == "error" for finding in findings)
    print(f"{errors} differences" if errors else "No differences: everything that can be verified here is as recorded.")
    return int(errors > 0)


def _record(identity: str, as_json: bool) -> str:
    from pathfinder.lineage.trace import trace_record  # loads polars and the readers, which the audit does not need
    from pathfinder.lineage.trace_text import trace_text

    trace = trace_record(identity)
    if as_json:
        return json.dumps(trace, indent=2, ensure_ascii=True) + "\n"
    return trace_text(trace, sys.stdout.isatty() and "NO_COLOR" not in os.environ)


if __name__ == "__main__":
    main()
