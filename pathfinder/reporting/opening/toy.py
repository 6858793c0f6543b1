"""Marks on the figures of generated sets, which have the names of the real ones."""

from __future__ import annotations

from dataclasses import replace

from pathfinder.pages.page import Block, Browser, Figure, Fold, Section, Table

TOY = "toy: "
_CLAIM = "claim"
_MEASURED = ("ours: ", "measured: ")


def marked(section: Section, with_paper: bool) -> Section:
    """The section with ``TOY`` before each row and entry of what was measured here, and a mark before captions.

    ``with_paper`` says that it also has the paper's rows and charts, which stay as they are.
    """
    return replace(section, blocks=[_block(block, with_paper) for block in section.blocks])


def _block(block: Block, with_paper: bool) -> Block:
    match block:
        case Table() if block.headers[0] != _CLAIM:
            rows = [
                row if with_paper and not row[0].startswith(_MEASURED) else (f"{TOY}{row[0]}", *row[1:])
                for row in block.rows
            ]
            return replace(block, rows=rows)
        case Figure() if not with_paper:
            return replace(block, caption=f"Toy sets: {block.caption}")
        case Browser():
            return Browser([replace(entry, summary=f"{TOY}{entry.summary}") for entry in block.entries])
        case Fold():
            return replace(block, blocks=[_block(inner, with_paper) for inner in block.blocks])  # type: ignore[misc]
        case _:
            return block
