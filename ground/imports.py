"""Imports of packages without the dependencies that this project does not need."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import Any


class _Later(ModuleType):
    """A placeholder for a module: each function imports the module when it is called."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *given, **named: getattr(importlib.import_module(self.__name__), name)(*given, **named)


@contextmanager
def without(*optional: str, later: Sequence[str] = ()) -> Iterator[None]:
    """In this block, imports see the ``optional`` packages as missing, and the modules ``later`` load on first use."""
    others: dict[str, Any] = dict.fromkeys(optional) | {name: _Later(name) for name in later}
    own = {name: module for name, module in others.items() if name not in sys.modules}
    sys.modules |= own
    try:
        yield
    finally:
        for name in own:
            sys.modules.pop(name, None)
