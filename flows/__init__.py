"""Running the pipeline: the stage graph, DVC, Prefect, and the ``pathfinder`` command.

The flow sends no usage data. These switches must be set before the first import of the packages that they configure.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from importlib import import_module
from pkgutil import iter_modules, resolve_name
from typing import Any

os.environ.setdefault("DO_NOT_TRACK", "1")
os.environ.setdefault("DVC_NO_ANALYTICS", "1")
os.environ.setdefault("PREFECT_SERVER_ANALYTICS_ENABLED", "false")
os.environ.setdefault("PREFECT_SERVER_UI_SHOW_PROMOTIONAL_CONTENT", "false")
# The flow prints the output and the errors of its stages itself; Prefect's console would repeat them with tracebacks.
os.environ.setdefault("PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL", "CRITICAL")


def hooks(name: str) -> Iterator[Callable[..., Any]]:
    """The functions that the packages below ``flows`` name in ``HOOKS``: additions to a run, which knows none of them.

    ``places`` gives the places of stages (flows/places.py), ``tell`` is Prefect's hook of a flow that failed or
    crashed, ``report_killed`` is for the guardian, and ``state`` yields the lines of `pathfinder team`.
    """
    for found in iter_modules(__path__):
        named = getattr(import_module(f"{__name__}.{found.name}"), "HOOKS", {}) if found.ispkg else {}
        if name in named:
            yield resolve_name(named[name])
