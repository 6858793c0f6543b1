"""Run the published code on cases of our own and keep what it answers: ``cases/TOPIC.json``.

Run as ``python -m tests.published.make CLONES [TOPIC …]``. ``CLONES`` is a folder with clones of the four repositories
in ``sources.PINS``. Their pinned commits are checked out into a temporary folder, so the clones do not change.

A topic is a module here with ``record(sources)``, which returns what ``Source.recorded`` gives for each function. The
inputs are ours. The functions run as they are; only packages that they import and do not use are replaced. Long
published texts become named slots. A second run leaves the files unchanged.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import logging
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.published.kept import CASES
from tests.published.sources import checkout

TOPICS = tuple(
    sorted(
        path.stem for path in CASES.parent.glob("*.py") if "\ndef record(sources" in path.read_text(encoding="utf-8")
    )
)


def main(arguments: list[str]) -> None:
    """Make the cases of the named topics, or of all."""
    if not arguments or (unknown := sorted({*arguments[1:]} - {*TOPICS})):
        wrong = f"unknown: {', '.join(unknown)}. " if arguments else ""
        raise SystemExit(f"{wrong}usage: python -m tests.published.make CLONES [{' | '.join(TOPICS)} …]")
    logging.disable(logging.CRITICAL)  # the kit logs every record
    clones = Path(arguments[0]).resolve()
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        sources = checkout(clones, Path(folder) / "sources")
        for topic in arguments[1:] or TOPICS:
            recorded = importlib.import_module(f"tests.published.{topic}").record(sources)
            (CASES / f"{topic}.json").write_text(_written(recorded), encoding="utf-8")
            print(topic, sum(len(function["cases"]) for function in recorded))


def _written(recorded: list[dict[str, Any]]) -> str:
    """One line per case."""
    functions = []
    for function in recorded:
        cases = ",\n".join(json.dumps(case, ensure_ascii=False) for case in function["cases"])
        head = json.dumps({key: value for key, value in function.items() if key != "cases"}, ensure_ascii=False)
        functions.append(f'{head[:-1]}, "cases": [\n{cases}\n]}}')
    return "[\n" + ",\n".join(functions) + "\n]\n"


if __name__ == "__main__":
    main(sys.argv[1:])
