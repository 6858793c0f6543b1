"""``make doctor``: print every finding; exit status 1 if one is wrong."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

from ground.text import errors_without_traceback
from infra.doctor import cards, machine, server, store, worker
from infra.doctor.finding import Finding


def main() -> None:
    """Check the current folder, the Prefect server, the remote and the cards."""
    root = Path.cwd()
    wrong = 0
    for finding in findings(root):
        print(finding.line(), flush=True)
        wrong += finding.is_wrong
    if wrong:
        sys.exit(
            f"{wrong} of these {'is' if wrong == 1 else 'are'} wrong. Follow the remedies and run `make doctor` again."
        )


def findings(root: Path) -> Iterator[Finding]:
    """Every check, one after the other: some take seconds, and each result is printed at once."""
    yield from machine.findings(root)
    yield from server.findings(root)
    yield store.key()
    yield from worker.findings(root)
    yield from store.findings(root)
    yield from cards.findings(root)


if __name__ == "__main__":
    argparse.ArgumentParser(
        prog="python -m infra.doctor",
        description="Check disk, locks, server, key, packages, remote and cards. Exit status 1 if something is wrong.",
    ).parse_args()
    with errors_without_traceback():
        main()
