"""Regenerate the results in the documentation from the report.

Run     python -m docs.tools.readme           prints the results of reports/tables.json
        python -m docs.tools.readme --write   writes them between the marks of README.md and docs/results.md
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ground.io import DataError, read_json, write_text
from ground.text import errors_without_traceback
from pathfinder.pages.page import markdown_table
from pathfinder.reporting.finished import parse_tables, printed_rows
from pathfinder.reporting.names import TABLES
from pathfinder.reporting.page.contents import CLAIMS

README, DETAILS = Path("README.md"), Path("docs/results.md")
START, END = "<!-- results -->\n", "<!-- /results -->\n"


def results_text(tables: Mapping[str, Any]) -> str:
    """The main results in Markdown; ``tables`` is the content of tables.json."""
    headers, *rows = printed_rows(parse_tables(tables))
    basis = (
        f"Profile `{tables['profile']}`, in percent with 95 % intervals (docs/report.md), by the reading that each "
        "benchmark asks for (docs/benchmarks.md)."
    )
    return f"{markdown_table(headers, rows)}\n\n{basis}\n"


def details_text(tables: Mapping[str, Any]) -> str:
    """The judge and the paper's claims in Markdown."""
    parts = list(tables["truth"])
    claims = next((table for table in tables["tables"].get(CLAIMS, ()) if table["headers"][0] == "claim"), None)
    if claims:
        parts.append("The paper's claims on these models, with p adjusted over the claims of the benchmark sections:")
        parts.append(markdown_table(claims["headers"], claims["rows"]))
    return "\n\n".join(parts) + "\n"


def between(text: str, start: str, content: str, end: str, where: Path) -> str:
    """The text of a file with ``content`` between its two marks; raises ``DataError`` unless each mark occurs once."""
    if text.count(start) != 1 or text.count(end) != 1:
        raise DataError(f"{where}: expected the marks {start.strip()} and {end.strip()} once, each on its own line")
    before, _, rest = text.partition(start)
    return before + start + content + end + rest.partition(end)[2]


def main(argv: Sequence[str] | None = None) -> None:
    """Print or write the results; raises ``DataError`` if the pipeline has not run."""
    parser = argparse.ArgumentParser(prog="python -m docs.tools.readme", description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--write", action="store_true", help=f"write {README} and {DETAILS}")
    arguments = parser.parse_args(argv)
    if not TABLES.exists():
        raise DataError(f"{TABLES} does not exist; run the pipeline with `make run`")
    tables = read_json(TABLES)
    for path, text in ((README, results_text(tables)), (DETAILS, details_text(tables))):
        if arguments.write:
            write_text(path, between(path.read_text(encoding="utf-8"), START, text, END, path))
        else:
            print(text)


if __name__ == "__main__":
    with errors_without_traceback():
        main()
