"""Marks on the figures of generated sets, which have the names of the real ones."""

from __future__ import annotations

from dataclasses import replace

from pathfinder.pages.page import Block, Browser, Figure, Fold, Section, Table

TOY = "toy: "


def marked(section: Section) -> Section:
    """The section with ``TOY`` before each row and entry of what was measured here, and a mark before captions."""
    return replace(section, blocks=[_block(block) for block in section.blocks])


def _block(block: Block) -> Block:
    match block:
        case Table():
            measured = range(len(block.rows)) if block.measured is None else block.measured
            rows = [(f"{TOY}{row[0]}", *row[1:]) if place in measured else row for place, row in enumerate(block.rows)]
            return replace(block, rows=rows)
        case Figure() if block.is_measured:
            return replace(block, caption=f"Toy sets: {block.caption}")
        case Browser():
            return Browser([replace(entry, summary=f"{TOY}{entry.summary}") for entry in block.entries])
        case Fold():
            return replace(block, blocks=[_block(inner) for inner in block.blocks])  # type: ignore[misc]
        case _:
            return block
