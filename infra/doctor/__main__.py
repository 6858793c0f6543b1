"""``make doctor``: print every finding; exit status 1 if one is wrong."""

from __future__ import annotations

import sys
from pathlib import Path

from infra.doctor import cards, machine, server, store
from pathfinder.core.text import errors_without_traceback


def main() -> None:
    """Check the present folder, the Prefect server, the remote and the cards."""
    root = Path.cwd()
    wrong = 0
    for check in (
        lambda: machine.findings(root),
        lambda: server.findings(root),
        lambda: store.findings(root),
        cards.findings,
    ):
        for finding in check():
            print(finding.line(), flush=True)
            wrong += finding.is_wrong
    if wrong:
        sys.exit(
            f"{wrong} of these {'is' if wrong == 1 else 'are'} wrong. Follow the remedies and run `make doctor` again."
        )


if __name__ == "__main__":
    with errors_without_traceback():
        main()
