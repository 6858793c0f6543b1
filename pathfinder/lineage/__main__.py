"""The audit from the command line, with nothing but the repository.

Run     python -m pathfinder.lineage up models/full     the way back to the source files
        python -m pathfinder.lineage check [PATH]       re-hash everything; exit status 1 on any difference
        python -m pathfinder.lineage record ID [--json] one record's whole life, from upstream line to training example
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
    """Answer one question."""
    parser = argparse.ArgumentParser(prog="python -m pathfinder.lineage", description=(__doc__ or "").split("\n", 1)[0])
    verbs = parser.add_subparsers(dest="verb", required=True)
    verbs.add_parser("up", help="the way back from a path to the source files").add_argument("path")
    verbs.add_parser("check", help="re-hash what a path, or everything, names").add_argument("path", nargs="?")
    record = verbs.add_parser("record", help="one record's whole life, or a trajectory's records")
    record.add_argument("id")
    record.add_argument("--json", action="store_true", help="for machines")
    arguments = parser.parse_args(argv)
    try:
        if arguments.verb == "up":
            print(up(arguments.path), end="")
            return
        if arguments.verb == "record":
            print(_record(arguments.id, arguments.json), end="")
            return
        findings = check(arguments.path)
    except DataError as error:
        sys.exit(f"error: {error}")
    for finding in findings:
        print(finding)
    errors = sum(finding.level == "error" for finding in findings)
    print(f"{errors} differences" if errors else "Everything that could be checked here is as recorded.")
    sys.exit(1 if errors else 0)


def _record(identity: str, as_json: bool) -> str:
    from pathfinder.lineage.life_text import life_text
    from pathfinder.lineage.record_life import life_of  # polars and the readers: the audit does without

    life = life_of(identity)
    if as_json:
        return json.dumps(life, indent=2, ensure_ascii=True) + "\n"
    return life_text(life, sys.stdout.isatty() and "NO_COLOR" not in os.environ)


if __name__ == "__main__":
    main()
