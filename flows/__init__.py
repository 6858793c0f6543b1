"""Running the pipeline: the stage graph, DVC, Prefect, and the ``pathfinder`` command.

The flow sends no usage data. These switches must be set before the first import of the packages that they configure.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from pkgutil import iter_modules
from types import ModuleType

os.environ.setdefault("DO_NOT_TRACK", "1")
os.environ.setdefault("DVC_NO_ANALYTICS", "1")
os.environ.setdefault("PREFECT_SERVER_ANALYTICS_ENABLED", "false")
os.environ.setdefault("PREFECT_SERVER_UI_SHOW_PROMOTIONAL_CONTENT", "false")
# The flow prints the output and the errors of its stages itself; Prefect's console would repeat them with tracebacks.
os.environ.setdefault("PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL", "CRITICAL")


def wings() -> Iterator[ModuleType]:
    """The modules ``wing`` of the packages below ``flows``: what they add to a run, which knows none of them by name.

    A wing has the functions ``places`` (flows/places.py), ``tell``, Prefect's hook for a flow that failed or crashed,
    ``report_killed``, which the guardian calls, and ``state``, whose lines `pathfinder team` prints. It imports Prefect
    only inside them.
    """
    for found in iter_modules(__path__):
        if found.ispkg and find_spec(f"{__name__}.{found.name}.wing"):
            yield import_module(f"{__name__}.{found.name}.wing")
