"""Keep the README's results what the report says.

Run     python -m infra.readme           shows the results of reports/tables.json as the README has them
        python -m infra.readme --write   puts them into README.md, between its two marks
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pathfinder.core.io import DataError, read_json, write_text
from pathfinder.reporting.results import TABLES, Score

README = Path("README.md")
START, END = "<!-- results -->\n", "<!-- /results -->\n"
CLAIMS = "The paper's claims, tested here"
_HEADERS = ("system", "ProcessBench, mean F1", "PRMBench, PRMScore", "search, mean accuracy")


def results_text(tables: Mapping[str, Any]) -> str:
    """The headline table, the judge and the paper's claims, in Markdown; ``tables`` is reports/tables.json."""
    rows = [_HEADERS, ("---",) * len(_HEADERS)]
    rows += [
        (row["system"], *(_cell(row[key]) for key in ("processbench", "prmbench", "search")))
        for row in tables["results"]
    ]
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    lines += [part for said in tables["truth"] for part in ("", said)]
    lines += ["", f"Profile `{tables['profile']}`, percent with 95 % intervals (docs/statistics.md)."]
    claims = [table for table in tables["tables"].get(CLAIMS, ()) if table["headers"][0] == "claim"]
    if claims:
        lines[-1] += " The paper's claims on these models; p is adjusted for all comparisons of the report:"
        headers, answers = claims[0]["headers"], claims[0]["rows"]
        lines += ["", "| " + " | ".join(headers) + " |", "|" + " --- |" * len(headers)]
        lines += ["| " + " | ".join(row) + " |" for row in answers]
    return "\n".join(lines) + "\n"


def with_results(readme: str, results: str) -> str:
    """The README with ``results`` between its marks; raises ``DataError`` where they are not there once."""
    return between(readme, START, results, END, README)


def between(text: str, start: str, content: str, end: str, where: Path) -> str:
    """The text of ``where`` with ``content`` between its two marks, each a line; ``DataError`` names missing ones."""
    if text.count(start) != 1 or text.count(end) != 1:
        raise DataError(
            f"{where}: expected the marks {start.strip()} and {end.strip()} once, each on a line of its own"
        )
    before, _, rest = text.partition(start)
    return before + start + content + end + rest.partition(end)[2]


def main(argv: Sequence[str] | None = None) -> None:
    """Show or write."""
    parser = argparse.ArgumentParser(prog="python -m infra.readme", description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--write", action="store_true", help="write README.md")
    arguments = parser.parse_args(argv)
    if not TABLES.exists():
        raise SystemExit(f"error: {TABLES} is not there; run the pipeline with `make run`")
    results = results_text(read_json(TABLES))
    if arguments.write:
        write_text(README, with_results(README.read_text(encoding="utf-8"), results))
    else:
        print(results, end="")


def _cell(cell: Any) -> str:
    return str(Score(**cell)) if isinstance(cell, dict) else str(cell)


if __name__ == "__main__":
    main()
