"""Regenerate the README's results from the report.

Run     python -m infra.readme           prints the results of reports/tables.json as the README shows them
        python -m infra.readme --write   writes them into README.md, between its two marks
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pathfinder.core.io import DataError, read_json, write_text
from pathfinder.core.text import errors_without_traceback
from pathfinder.pages.page import markdown_table
from pathfinder.reporting.contents import CLAIMS
from pathfinder.reporting.names import TABLES
from pathfinder.reporting.results import printed_rows

README = Path("README.md")
START, END = "<!-- results -->\n", "<!-- /results -->\n"


def results_text(tables: Mapping[str, Any]) -> str:
    """The main results, the judge and the paper's claims in Markdown; ``tables`` is the content of tables.json."""
    headers, *rows = printed_rows(tables)
    basis = f"Profile `{tables['profile']}`, in percent with 95 % intervals (docs/statistics.md)."
    parts = [markdown_table(headers, rows), *tables["truth"], basis]
    claims = next((table for table in tables["tables"].get(CLAIMS, ()) if table["headers"][0] == "claim"), None)
    if claims:
        parts[-1] += " The paper's claims on these models, with p adjusted over all comparisons of the report:"
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
    parser = argparse.ArgumentParser(prog="python -m infra.readme", description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--write", action="store_true", help="write README.md")
    arguments = parser.parse_args(argv)
    if not TABLES.exists():
        raise DataError(f"{TABLES} does not exist; run the pipeline with `make run`")
    results = results_text(read_json(TABLES))
    if arguments.write:
        write_text(README, between(README.read_text(encoding="utf-8"), START, results, END, README))
    else:
        print(results, end="")


if __name__ == "__main__":
    with errors_without_traceback():
        main()
