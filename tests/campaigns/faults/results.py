"""The result of one part of the campaign: a file for the summary of all parts, and a section of reliability.md."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from docs.tools.readme import between
from ground.io import DataError, read_json, write_json, write_text

PAGE = Path(__file__).parents[3] / "tests/campaigns/reliability.md"


@dataclass(frozen=True, slots=True)
class Result:
    """A part's findings: the ``faults`` that it tried, how many ended ``wrong``, and ``text`` for the page (Markdown).

    ``part`` is also the name of the marks of its section in the page.
    """

    part: str
    faults: int
    wrong: int
    text: str


def add_option(parser: argparse.ArgumentParser) -> None:
    """Let a command take ``--result``."""
    parser.add_argument("--result", type=Path, metavar="FILE", help="also write the result to this file (JSON)")


def keep(path: Path | None, result: Result) -> None:
    """Write a result to the file of ``--result``, if it was given."""
    if path is not None:
        write_json(path, asdict(result))


def read(path: Path) -> Result:
    """The result in a file; raises ``DataError`` if the file has none. Further keys are ignored."""
    content = read_json(path)
    try:
        return Result(**{one.name: content[one.name] for one in fields(Result)})
    except (KeyError, TypeError) as error:
        raise DataError(f"{path}: no result of a part ({error}); run `python -m tests.campaigns.faults.all`") from error


def write_page(results: Iterable[Result], page: Path = PAGE) -> None:
    """Put the text of each result between its marks in the page; raises ``DataError`` if a mark is missing."""
    text = page.read_text(encoding="utf-8")
    for one in results:
        text = between(text, f"<!-- {one.part} -->\n", one.text.strip() + "\n", f"<!-- /{one.part} -->\n", page)
    write_text(page, text)
