"""How the rehearsal reports."""

from __future__ import annotations


class RehearsalError(Exception):
    """A command of the documentation failed, a substitute noticed a violation, or a fault went unnoticed."""


def show(text: str) -> None:
    """Print a line at once."""
    print(text, flush=True)
