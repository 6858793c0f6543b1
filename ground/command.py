"""Groups of verbs on the command line, whichever wing they belong to."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from typer.core import TyperGroup

from ground.text import errors_without_traceback

PIPELINE = "Pipeline (inside a clone)"
"""The panel of the verbs below in the help."""
PIPELINE_VERBS = {
    "run": "Run the pipeline of the active profile and print the results.",
    "plan": "Show which stages would run and why, or how much memory their models need.",
    "profile": "List the profiles, or write the params.yaml of one.",
    "pull": "Restore a published run from the remote, after its signed log was verified.",
}
"""Verbs of ``flows/cli.py``, which exists only in a clone of the project, and their help texts."""


class Verbs(TyperGroup):
    """Verbs whose errors are printed without a traceback."""

    def invoke(self, ctx: Any) -> Any:
        """Run the verb."""
        with errors_without_traceback(), flushed():
            return super().invoke(ctx)


@contextmanager
def flushed() -> Iterator[None]:
    """Flush standard output at the end of the block, where a failure is still reported like any other error."""
    try:
        yield
    finally:
        try:
            sys.stdout.flush()
        except OSError as error:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or Python fails again when it ends
            error.filename = "standard output"
            raise
