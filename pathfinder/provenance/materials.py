"""What a stage's process used beyond its declared inputs: journals of earlier answers, and code from other places.

A journal is a ``.jsonl`` file below ``.pathfinder``. It only grows, so its state is its size and the sha256 of that
many bytes. The recorder learns of a journal when Python opens it. It does not observe processes that the stage starts.
"""

from __future__ import annotations

import hashlib
import os
import re
import sys
import sysconfig
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, Self

from pathfinder.core.io import sha256_file
from pathfinder.provenance.ledger import RECORDS

STATE = Path(".pathfinder")
_CHUNK = 1 << 20
_PIN = re.compile(r"^(?P<name>[A-Za-z0-9._-]+)(\[[^]]*\])?==(?P<version>[^\s;]+)", re.MULTILINE)


def state_of(path: Path, size: int | None = None) -> dict[str, Any] | None:
    """Bytes and sha256 of a file, or of its first ``size`` bytes; ``None`` if it does not exist or is shorter."""
    if not path.is_file() or path.stat().st_size < (size or 0):
        return None
    digest, left = hashlib.sha256(), path.stat().st_size if size is None else size
    total = left
    with path.open("rb") as handle:
        while left and (chunk := handle.read(min(_CHUNK, left))):
            digest.update(chunk)
            left -= len(chunk)
    return {"size": total, "sha256": digest.hexdigest()}


class Journals:
    """The journals that this process opens in a ``with`` block, with their states before the first opening."""

    _watching: Journals | None = None
    _has_hook = False

    def __init__(self, root: Path = Path(".")) -> None:
        self.root = root.resolve()
        self._before: dict[str, dict[str, Any] | None] = {}
        self._is_reading = False

    def __enter__(self) -> Self:
        if not Journals._has_hook:
            sys.addaudithook(_on_event)  # cannot be removed, so it does nothing outside of such a block
        Journals._has_hook, Journals._watching = True, self
        return self

    def __exit__(self, *_: object) -> None:
        Journals._watching = None

    def states(self) -> dict[str, dict[str, Any]]:
        """State before and after the run, by path relative to the project."""
        return {path: {"before": before, "after": state_of(self.root / path)} for path, before in self._before.items()}

    def opened(self, name: str) -> None:
        """Take the state of a journal that is about to be opened for the first time."""
        if self._is_reading:
            return
        self._is_reading = True
        try:
            path = Path(os.path.abspath(name))
            inside = path.is_relative_to(self.root / STATE) and not path.is_relative_to(self.root / RECORDS)
            if inside and (key := path.relative_to(self.root).as_posix()) not in self._before:
                self._before[key] = state_of(path)
        finally:
            self._is_reading = False


def _on_event(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "open" and (journals := Journals._watching) is not None and isinstance(arguments[0], (str, bytes)):
        name = os.fsdecode(arguments[0])
        if name.endswith(".jsonl") and STATE.name in name:
            journals.opened(name)


def unlisted_modules(code: Iterable[str], root: Path = Path(".")) -> dict[str, str]:
    """sha256 by name of the loaded modules that come neither from the environment nor from the stage's ``code``.

    ``code`` holds paths relative to ``root``. A module inside the project has its path after its name.
    """
    root = root.resolve()
    environment = [Path(place).resolve() for place in {sys.prefix, sys.base_prefix, *sysconfig.get_paths().values()}]
    listed = {root / path for path in code}
    found = {}
    for name, file in sorted((name, file) for name, module in [*sys.modules.items()] if (file := _file_of(module))):
        folder = _resolved(file.parent)
        if any(folder.is_relative_to(place) for place in environment) or not file.is_file():
            continue
        path = folder / file.name
        if path not in listed:
            where = f" ({path.relative_to(root).as_posix()})" if path.is_relative_to(root) else ""
            found[f"{name}{where}"] = sha256_file(path)
    return found


def unlocked_packages(installed: dict[str, str], locks: Path) -> dict[str, list[str | None]]:
    """Pinned packages whose installed version differs, as ``[installed or None, pinned]``.

    Of several lock files in ``locks``, the one that differs least is that of this environment.
    """
    candidates = [
        {
            name: [installed.get(name), version]
            for name, version in _pinned(path).items()
            if installed.get(name) != version
        }
        for path in sorted(locks.glob("*.lock"))
    ]
    return min(candidates, key=len, default={})


def _pinned(path: Path) -> dict[str, str]:
    found = _PIN.finditer(path.read_text(encoding="utf-8"))
    return {re.sub(r"[-_.]+", "-", pin["name"]).lower(): pin["version"] for pin in found}


def _file_of(module: ModuleType) -> Path | None:
    """The file that a module names; ``None`` for built-in modules and those with an invented, relative name."""
    file = getattr(module, "__file__", None)
    return Path(file) if isinstance(file, str) and os.path.isabs(file) else None


@cache
def _resolved(folder: Path) -> Path:
    return folder.resolve()
