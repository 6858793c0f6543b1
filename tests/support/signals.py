"""Signals of the process that runs the tests."""

from __future__ import annotations

import signal


def heed_interrupts() -> None:
    """Let SIGINT interrupt this process and its children; what a script starts with ``&`` ignores it."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
