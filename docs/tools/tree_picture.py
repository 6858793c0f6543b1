"""Draw the tree of one solution with the tokens of the demo's model: trunk, branches, label positions and the mask.

Run     python -m docs.tools.tree_picture           prints the SVG
        python -m docs.tools.tree_picture --write   writes docs/tree.svg
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

import numpy as np

from ground.io import write_text
from ground.text import errors_without_traceback
from pathfinder.demo import MODEL
from pathfinder.models.folders import open_model
from pathfinder.tree.passes import Prompter, Query
from pathfinder.tree.tree import Tree

PICTURE = Path("docs/tree.svg")
PROBLEM = "Tom has 5 pens, buys 7 and loses 2."
STEPS = ("5 + 7 = 12.", "12 - 2 = 10.", "So he has 12.")
GOLD = ((True, True, True), (True, True, True), (True, False, False))
"""The labels of each step: math, consistency, correctness. The last step contradicts the one before it."""

_WIDTH, _MARGIN, _ROW, _TOP, _CELL = 1050, 16, 30, 44, 7
_CHARACTER, _PADDING, _GAP, _INDENT = 6.7, 7, 2, 26
_LONGEST = 22
"""Characters of a token that are drawn."""
_STYLE = """:root{background:#fff}text{font:13px system-ui,-apple-system,"Segoe UI",sans-serif;fill:#1b1f24}
.token{font:11px ui-monospace,SFMono-Regular,Menlo,monospace}.dim{fill:#57606a}.read{fill:#b42318;font-weight:700}
.trunk{fill:#c9d1d9}.stem{fill:#a5c8f0}.first{fill:#f3c98b}.second{fill:#b5dfb8}.dot{fill:#b42318}
.frame{fill:none;stroke:#8c959f}.link{stroke:#8c959f;fill:none}.grid{stroke:#d0d7de;stroke-width:.5}
@media (prefers-color-scheme:dark){:root{background:#14171c}text{fill:#e6e9ee}.dim{fill:#a3adb9}.read,.dot{fill:#ff8a7d}
.trunk{fill:#4a535e}.stem{fill:#2d5586}.first{fill:#7d5a1e}.second{fill:#2f6b38}.grid{stroke:#3a424d}}"""
KINDS = {
    "trunk": "trunk: the problem and earlier steps",
    "stem": "a step under judgement",
    "first": "pass 1: error labels masked",
    "second": "pass 2: error labels given",
}


@dataclass(frozen=True, slots=True)
class Chain:
    """Nodes ``start`` to ``stop`` of the tree, each with one child; ``parent`` is the place of the chain above."""

    kind: str
    start: int
    stop: int
    parent: int | None
    level: int


def chains(tree: Tree, lead: int, mask: int) -> list[Chain]:
    """The chains of a tree in the order of their nodes. Token ``lead`` begins a step, token ``mask`` the first pass."""
    found: list[Chain] = []

    def walk(start: int, parent: int | None, level: int, kind: str) -> None:
        stop = start + 1
        while children(tree, stop - 1) == [stop] and tree.ids[stop] != lead:
            stop += 1
        place = len(found)
        found.append(Chain(kind, start, stop, parent, level))
        for child in children(tree, stop - 1):
            below = "first" if tree.ids[child] == mask else "second"
            if kind == "trunk":
                below = "stem" if tree.ids[child] == lead else "trunk"
            walk(child, place, level + 1, below)

    walk(0, None, 0, "trunk")
    return found


def children(tree: Tree, node: int) -> list[int]:
    """The children of a node."""
    found, at = [], node + 1
    while at < tree.end[node]:
        found.append(at)
        at = int(tree.end[at])
    return found


@dataclass(frozen=True, slots=True)
class Built:
    """The tree of the example, its chains, and what to write at them."""

    tree: Tree
    rows: list[Chain]
    tokens: list[str]
    names: Mapping[int, str]
    """The label that is read at a node."""
    separate: int
    """The tokens of the separate prompts."""


def built() -> Built:
    """The tree of the example with the tokenizer of the demo's model."""
    model = open_model(MODEL)
    prompter = Prompter(model.tokenizer, model.variant, ids=model.labels)
    queries = [Query(f"step {n}", PROBLEM, STEPS[:n], step) for n, step in enumerate(STEPS)]
    tree, readings = prompter.tree(queries, GOLD)
    rows = chains(tree, model.tokenizer.get_vocab()[prompter.preset.lead], prompter.ids.mask)
    names = {int(node): prompter.labels[r.mark] for node, r in zip(tree.reads, readings, strict=True)}
    tokens = [_shown(str(model.tokenizer.decode([int(token)]))) for token in tree.ids]
    separate = sum(slots[step.asked[-1]] for _, slots in prompter.encode(queries) for step in prompter.passes)
    return Built(tree, rows, tokens, names, separate)


def draw() -> str:
    """The picture as SVG."""
    made = built()
    tree, rows, tokens, names, separate = made.tree, made.rows, made.tokens, made.names, made.separate
    title = f"{len(tree)} nodes in place of the {separate} tokens of {2 * len(STEPS)} separate prompts"
    below = _TOP + _ROW * len(rows) + 16
    height = below + 40 + _CELL * len(tree) + _MARGIN
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" role="img">',
            f"<title>The tree of a solution of {len(STEPS)} steps: {title}</title>",
            f"<style>{_STYLE}</style>",
            _text(_MARGIN, 24, f"The tree: {title}"),
            *_outline(tree, rows, tokens, names),
            *_mask(tree, rows, names, below),
            "</svg>\n",
        ]
    )


def _outline(tree: Tree, rows: Sequence[Chain], tokens: Sequence[str], names: Mapping[int, str]) -> Iterator[str]:
    """One line per chain: its tokens, and the label that is read at its last token."""
    for place, row in enumerate(rows):
        x, y = float(_MARGIN + 24 + _INDENT * row.level), _TOP + _ROW * place
        yield _text(_MARGIN, y + 15, chr(ord("A") + place), "dim")
        if row.parent is not None:
            above = _TOP + _ROW * row.parent + 21
            yield f'<path d="M{x - 14:g} {above}V{y + 11}H{x:g}" class="link"/>'
        for token in tokens[row.start : row.stop]:
            width = _CHARACTER * len(token) + _PADDING
            yield f'<rect x="{x:.1f}" y="{y + 1}" width="{width:.1f}" height="20" rx="3" class="{row.kind}"/>'
            yield _text(x + width / 2, y + 15, token, "token", "middle")
            x += width + _GAP
        if name := names.get(row.stop - 1):
            yield f'<circle cx="{x + 7:.1f}" cy="{y + 11}" r="4" class="dot"/>'
            yield _text(x + 16, y + 15, name, "read")
            x += 24 + 7 * len(name)
        first, last = int(tree.depth[row.start]), int(tree.depth[row.stop - 1])
        yield _text(x + 8, y + 15, f"positions {first}-{last}", "dim")


def _mask(tree: Tree, rows: Sequence[Chain], names: Mapping[int, str], top: int) -> Iterator[str]:
    """The attention mask: a row of cells per query, a column per key, in the colours of the queries."""
    left, size = _MARGIN + 24, _CELL * len(tree)
    top += 40
    yield _text(_MARGIN, top - 24, "The mask: the token of a row sees the tokens of the coloured columns")
    for place, row in enumerate(rows):
        middle = _CELL * (row.start + row.stop) / 2
        letter = chr(ord("A") + place)
        yield _text(left - 16, top + middle + 4, letter, "dim")
        yield _text(left + middle, top - 6, letter, "dim", "middle")
        for query in range(row.start, row.stop):
            for low, high in _runs(tree, query):
                box = f'x="{left + _CELL * low}" y="{top + _CELL * query}" width="{_CELL * (high - low)}"'
                yield f'<rect {box} height="{_CELL}" class="{row.kind}"/>'
        edge = _CELL * row.stop
        yield f'<path d="M{left} {top + edge}h{size}M{left + edge} {top}v{size}" class="grid"/>'
    yield f'<rect x="{left}" y="{top}" width="{size}" height="{size}" class="frame"/>'
    for node, name in names.items():
        yield f'<circle cx="{left + size + 8}" cy="{top + _CELL * node + 3}" r="3" class="dot"/>'
        yield _text(left + size + 16, top + _CELL * node + 7, name, "read")
    for number, (kind, text) in enumerate(KINDS.items()):
        x, y = left + size + 140, top + 26 * number
        yield f'<rect x="{x}" y="{y}" width="16" height="16" rx="3" class="{kind}"/>'
        yield _text(x + 24, y + 13, text)
    yield f'<circle cx="{left + size + 148}" cy="{top + 112}" r="4" class="dot"/>'
    yield _text(left + size + 164, top + 117, "a label is read at this token")


def _runs(tree: Tree, query: int) -> Iterator[tuple[int, int]]:
    """The keys that a query sees, k <= q < end[k], as ranges."""
    seen = np.flatnonzero((np.arange(len(tree)) <= query) & (query < tree.end))
    for part in np.split(seen, np.flatnonzero(np.diff(seen) > 1) + 1):
        yield int(part[0]), int(part[-1]) + 1


def _shown(token: str) -> str:
    text = token.replace("\n", "⏎")
    short = text if len(text) <= _LONGEST else f"{text[: _LONGEST // 2]}…{text[-_LONGEST // 2 :]}"
    return short.replace(" ", "·")


def _text(x: float, y: float, text: str, kind: str = "", anchor: str = "start") -> str:
    named = f' class="{kind}"' if kind else ""
    placed = "" if anchor == "start" else f' text-anchor="{anchor}"'
    return f'<text x="{x:.1f}" y="{y:g}"{named}{placed}>{escape(text)}</text>'


def main(argv: Sequence[str] | None = None) -> None:
    """Print or write the picture."""
    parser = argparse.ArgumentParser(
        prog="python -m docs.tools.tree_picture", description=(__doc__ or "").split("\n", 1)[0]
    )
    parser.add_argument("--write", action="store_true", help=f"write {PICTURE}")
    if parser.parse_args(argv).write:
        write_text(PICTURE, draw())
    else:
        print(draw(), end="")


if __name__ == "__main__":
    with errors_without_traceback():
        main()
