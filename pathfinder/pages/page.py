"""A page as data, rendered as one self-contained HTML file and as Markdown.

In the HTML, the files that figures come from are numbered in the order of ``files_of``: ``S1``, ``S2``, ….

The HTML loads nothing over the network and works without JavaScript. Its only script filters the entries of a
``Browser``, and the page's content security policy names that script by digest. All text is untrusted: it is escaped,
control characters and lone surrogates become U+FFFD, and only SVG from ``pathfinder.pages.svg`` is inserted as markup.
"""

from __future__ import annotations

import base64
import hashlib
import html
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, Template

from ground.text import anchor_of, visible
from pathfinder.pages.formulas import Formulas
from pathfinder.pages.origins import Sourced, origin_of
from pathfinder.pages.picture import Picture, is_low, shown

_TEMPLATES = Path(__file__).parent / "templates"
_MARKDOWN = re.compile(r"(?=[\\`*_{}\[\]<>|#~$&])")
_MARKDOWN_LIST = re.compile(r"^(\d{0,9})(?=[-+.)]([ -]|$))")
_NUMBER = re.compile(r"^[+\-\u2212]?[\d\u202f,.]+\s?(%|s|K)?( \[.*\])?$|^(missing|–|\?)?$")
_UNBROKEN = re.compile(r"\[[-+\d., ]*\]|\bp [<=] (?=\d)|\d (?=%|[sK]\b)")
_DIGEST = re.compile(r"[0-9a-f]{40,}")
_BREAKS = re.compile(r"(?<=[a-z]{6})(?=[A-Z])|(?<=consis)(?=tency)")
PALETTE = (_TEMPLATES / "palette.css").read_text(encoding="utf-8")
"""The colours of the light and dark themes as CSS variables."""
STYLE = PALETTE + "".join((_TEMPLATES / name).read_text(encoding="utf-8") for name in ("style.css", "picture.css"))
"""The look of a page and of every block."""


@dataclass(frozen=True, slots=True)
class Text:
    """A paragraph; ``is_notice`` highlights it."""

    text: str
    is_notice: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """A table whose first column names its rows; ``emphasis`` holds the indices of rows printed in bold.

    Cells are texts; those that are ``Sourced`` know their files. ``is_anchored`` gives each row its own address
    (``anchor_of`` its name). ``shades`` colours cells, by row and column, from 0 (not at all) to 5. ``measured`` holds
    the rows with figures that were measured here on the benchmarks; ``None`` means all rows.
    """

    caption: str
    headers: Sequence[str]
    rows: Sequence[Sequence[str]]
    emphasis: frozenset[int] = frozenset()
    is_anchored: bool = False
    shades: Mapping[tuple[int, int], int] = field(default_factory=dict)
    measured: frozenset[int] | None = None

    @property
    def numeric(self) -> frozenset[int]:
        """The columns that contain only figures; they are right-aligned."""
        columns = range(1, len(self.headers))
        return frozenset(column for column in columns if all(_NUMBER.match(row[column]) for row in self.rows))

    @property
    def files(self) -> list[str]:
        """The files that its cells were made from."""
        return _files(cell for row in self.rows for cell in row)


@dataclass(frozen=True, slots=True)
class Figure:
    """A drawing (our own SVG), its content in words, its caption, and whether it shows what was measured here."""

    svg: str
    alt: str
    caption: str
    is_measured: bool = True


@dataclass(frozen=True, slots=True)
class Listing:
    """An ordered list of texts."""

    items: Sequence[str]


@dataclass(frozen=True, slots=True)
class Chips:
    """Short verdicts side by side; each has a text and a kind: ``yes``, ``no`` or ``open``."""

    items: Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Fold:
    """A collapsed part, open in print and in Markdown. A ``Browser`` filters by ``tags``."""

    summary: str
    blocks: Sequence[Text | Table | Figure | Listing | Picture]
    tags: Mapping[str, str] = field(default_factory=dict)
    is_open: bool = False


@dataclass(frozen=True, slots=True)
class Browser:
    """Entries that readers can filter by tag and by word; without JavaScript all of them are visible."""

    entries: Sequence[Fold]


Block = Text | Table | Figure | Listing | Picture | Chips | Fold | Browser


@dataclass(frozen=True, slots=True)
class Section:
    """A titled part of the page."""

    title: str
    blocks: Sequence[Block]


@dataclass(frozen=True, slots=True)
class Page:
    """A title, blocks before the contents list, and sections."""

    title: str
    blocks: Sequence[Block]
    sections: Sequence[Section]


def files_of(page: Page) -> list[str]:
    """The files that the page's texts were made from, sorted."""
    return sorted(_files(_texts(part) for part in (*page.blocks, *page.sections)))


def _files(texts: Iterable[Any]) -> list[str]:
    """The files of every text, also of texts in nested sequences, each once."""
    found: dict[str, None] = {}
    for text in texts:
        if isinstance(text, str):
            found |= dict.fromkeys(origin.files if (origin := origin_of(text)) else ())
        else:
            found |= dict.fromkeys(_files(text))
    return list(found)


def _texts(block: Block | Section) -> Iterator[Any]:
    match block:
        case Text():
            yield block.text
        case Table():
            yield from block.rows
        case Figure():
            yield block.alt
        case Listing():
            yield block.items
        case Chips():
            yield [text for text, _ in block.items]
        case Picture():
            yield Sourced("", block.origin)
        case Browser():
            yield from map(_texts, block.entries)
        case _:
            yield from map(_texts, block.blocks)


def escaped(text: str) -> str:
    """Text safe inside HTML elements and quoted attributes, without characters that a reader cannot see."""
    return html.escape(visible(text))


def to_html(page: Page) -> str:
    """One file with its styles inside; it has a script only if there is something to filter."""
    has_browser = any(isinstance(block, Browser) for section in page.sections for block in section.blocks)
    script = (_TEMPLATES / "filter.js").read_text(encoding="utf-8") if has_browser else ""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    numbers = {file: number for number, file in enumerate(files_of(page), start=1)}
    given = {"page": page, "style": STYLE, "script": script, "numbers": numbers, "formulas": Formulas(escaped)}
    return template("page.html").render(given, script_digest=f"sha256-{digest}")


@cache
def template(name: str) -> Template:
    """One of the templates, which escapes whatever is inserted."""
    environment = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        autoescape=True,
        keep_trailing_newline=True,
        finalize=lambda value: value if hasattr(value, "__html__") else visible(str(value)),
    )
    environment.globals |= {"anchor_of": anchor_of, "origin_of": origin_of, "side_by_side": _side_by_side}
    environment.globals |= {"shown": shown, "is_low": is_low, "unbroken": _unbroken, "breakable": _breakable}
    environment.globals |= {"is_digest": _DIGEST.fullmatch}
    return environment.get_template(name)


def _unbroken(text: str) -> str:
    """The text with spaces that do not break inside an interval, a p-value, or a figure and its unit."""
    return _UNBROKEN.sub(lambda found: found[0].replace(" ", "\u00a0"), text)


def _breakable(heading: str) -> str:
    """The heading with soft hyphens in its long words, so that a table is as narrow as its figures allow."""
    return _BREAKS.sub("\u00ad", heading)


def _side_by_side(blocks: Sequence[Block]) -> list[list[Block]]:
    """The blocks in order: consecutive figures as one group, every other block as a group of its own."""
    groups: list[list[Block]] = []
    for are_figures, run in groupby(blocks, lambda block: isinstance(block, Figure)):
        found = [*run]
        groups += [found] if are_figures else [[block] for block in found]
    return groups


def to_markdown(page: Page) -> str:
    """The same content; figures become their words."""
    parts = [f"# {as_markdown_text(page.title)}", *map(_markdown, page.blocks)]
    for section in page.sections:
        parts += [f"## {as_markdown_text(section.title)}", *map(_markdown, section.blocks)]
    return "\n\n".join(parts) + "\n"


def markdown_table(headers: Sequence[str], rows: Sequence[Sequence[str]], numeric: frozenset[int] = frozenset()) -> str:
    """A Markdown table; ``numeric`` columns are right-aligned."""
    rule = ["---:" if column in numeric else "---" for column in range(len(headers))]
    return "\n".join(f"| {' | '.join(row)} |" for row in (headers, rule, *rows))


def _markdown(block: Block) -> str:
    match block:
        case Text():
            return f"> **{as_markdown_text(block.text)}**" if block.is_notice else as_markdown_text(block.text)
        case Table():
            rows = [[as_markdown_cell(cell) for cell in row] for row in block.rows]
            table = markdown_table([as_markdown_cell(header) for header in block.headers], rows, block.numeric)
            origin = f"\n\nSource: {', '.join(map(as_markdown_text, block.files))}" if block.files else ""
            return f"**{as_markdown_text(block.caption)}**\n\n{table}{origin}"
        case Figure():
            return f"_{as_markdown_text(block.caption)}_ {as_markdown_text(block.alt)}"
        case Listing():
            return "\n".join(f"{number}. {as_markdown_text(item)}" for number, item in enumerate(block.items, start=1))
        case Chips():
            return " · ".join(as_markdown_text(text) for text, _ in block.items)
        case Picture():
            steps = [(row.text, *map(shown, row.figures), ", ".join(row.badges)) for row in block.rows]
            cells = [[as_markdown_cell(cell) for cell in step] for step in steps]
            numeric = frozenset(range(1, 1 + len(block.columns)))
            table = markdown_table(("step", *block.columns, "errors"), cells, numeric)
            return f"{as_markdown_text(block.problem)}\n\n{table}"
        case Fold():
            return "\n\n".join([f"**{as_markdown_text(block.summary)}**", *map(_markdown, block.blocks)])
        case Browser():
            return "\n\n".join(map(_markdown, block.entries))


def as_markdown_text(text: str) -> str:
    """Text that Markdown shows as it is, in one line: no character of it is markup or HTML."""
    return _MARKDOWN_LIST.sub(r"\1\\", as_markdown_cell(text))


def as_markdown_cell(text: str) -> str:
    """The same for text inside a line, such as a cell of a table, where no list begins."""
    return _MARKDOWN.sub(r"\\", " ".join(visible(text).split()))
