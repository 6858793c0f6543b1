"""Drawings of the pages as files of their own, for the documentation."""

from __future__ import annotations

from pathfinder.pages.page import PALETTE


def standalone(drawing: str) -> str:
    """A drawing as a file, with the page's colours and background."""
    head, _, rest = drawing.partition(">")
    style = f"<style>{PALETTE}svg text{{fill:var(--fg);font:12px sans-serif}}svg .dim{{fill:var(--dim)}}</style>"
    return f'{head}>{style}<rect width="100%" height="100%" fill="var(--bg)"/>{rest}\n'
