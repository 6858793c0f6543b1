"""Imports of torch and transformers that a stage delays until it knows that it needs them."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def uncollected() -> Iterator[None]:
    """Import in the block without the garbage collector, which costs an eighth of the time and finds nothing.

    Imported objects stay, so the collector never searches them again.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if was_enabled:
            gc.enable()
