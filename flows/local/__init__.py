"""The project in this folder, without a server: stages, DVC, storage, and the lock and guardian of a run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module
from pkgutil import iter_modules, resolve_name
from typing import Any


def hooks(name: str) -> Iterator[Callable[..., Any]]:
    """The functions that packages below ``flows`` name in ``HOOKS``: additions to a run, which does not import them.

    ``places`` gives the places of stages (flows/places.py), ``tell`` is Prefect's hook of a flow that failed or
    crashed, ``report_killed`` is for the guardian, and ``state`` yields the lines of `pathfinder team`.
    """
    for found in iter_modules(import_module("flows").__path__):
        named = getattr(import_module(f"flows.{found.name}"), "HOOKS", {}) if found.ispkg else {}
        if name in named:
            yield resolve_name(named[name])
