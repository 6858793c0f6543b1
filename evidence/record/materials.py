"""Materials of a stage's process beyond its declared inputs: journals of earlier answers, and code from other places.

A journal is a ``.jsonl`` file below ``STATE``. It only grows, so its state is its size and the sha256 of that many
bytes. The recorder learns of a journal when Python opens it, and of the entries that a run used from the journal
itself. ``evidence.record.processes`` adds the materials of a stage's processes.
"""

from __future__ import annotations

import hashlib
import os
import re
import struct
import sys
import sysconfig
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from importlib.machinery import SourcelessFileLoader
from importlib.util import cache_from_source
from pathlib import Path
from typing import Any, Self

from evidence.record.identity import compiled_code
from evidence.record.ledger import RECORDS
from evidence.settings import STATE
from ground.io import sha256_file
from ground.recording import joined, listen

_CHUNK = 1 << 20
_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")
_PIN = re.compile(r"^(?P<name>[A-Za-z0-9._-]+)(\[[^]]*\])?==(?P<version>[^\s;]+)", re.MULTILINE)


def state_of(path: Path, size: int | None = None) -> dict[str, Any] | None:
    """Bytes and sha256 of a file, or of its first ``size`` bytes; ``None`` if it does not exist or is shorter."""
    if not path.is_file() or path.stat().st_size < (size or 0):
        return None
    size = path.stat().st_size if size is None else size
    return {"size": size, "sha256": _digest(path, [(0, size)])[0]}


def entries_of(path: Path, ranges: Sequence[Sequence[int]]) -> dict[str, Any] | None:
    """Number and sha256 of the journal entries in ``ranges`` of bytes (start, end); ``None`` if the file lacks them."""
    if not path.is_file() or (ranges and path.stat().st_size < ranges[-1][1]):
        return None
    sha256, count = _digest(path, ranges)
    return {"entries": count, "sha256": sha256, "ranges": [list(pair) for pair in ranges]}


def _digest(path: Path, ranges: Sequence[Sequence[int]]) -> tuple[str, int]:
    """sha256 and number of lines of the ranges of a file."""
    digest, count = hashlib.sha256(), 0
    with path.open("rb") as file:
        for start, end in ranges:
            file.seek(start)
            left = end - start
            while left and (chunk := file.read(min(_CHUNK, left))):
                digest.update(chunk)
                count += chunk.count(b"\n")
                left -= len(chunk)
    return digest.hexdigest(), count


class Journals:
    """The journals that this process opens in a ``with`` block.

    ``report`` gets the state of each before it is opened (``journal``, ``before``), and the entries that this process
    uses (``used``, ``ranges`` of bytes). By default it adds them to ``lines``.
    """

    _watching: Journals | None = None
    _has_hook = False

    def __init__(self, root: Path = Path("."), report: Callable[[Mapping[str, Any]], None] | None = None) -> None:
        self.root = root.resolve()
        self.lines: list[Mapping[str, Any]] = []
        self._report = report or self.lines.append
        self._opened: set[str] = set()

    def __enter__(self) -> Self:
        if not Journals._has_hook:
            sys.addaudithook(_on_event)  # cannot be removed, so it does nothing outside of such a block
        Journals._has_hook, Journals._watching = True, self
        listen(journals=self.used)
        return self

    def __exit__(self, *_: object) -> None:
        Journals._watching = None

    def states(self) -> dict[str, dict[str, Any]]:
        """State before and after the run and the entries used in ``lines``, by path relative to the project.

        Of several processes, the one that found the smallest journal has the state before the run.
        """
        before, used = dict[str, Any](), defaultdict[str, list[Sequence[int]]](list)
        for line in self.lines:
            if "used" in line:
                used[line["used"]].extend(line["ranges"])
            else:
                states = (before.get(line["journal"], line["before"]), line["before"])
                before[line["journal"]] = min(states, key=lambda state: state["size"] if state else 0)
        found = {}
        for name, state in before.items():
            entries = entries_of(self.root / name, joined(used[name]))
            found[name] = {"before": state, "after": state_of(self.root / name), "used": entries}
        return found

    def opened(self, name: str) -> None:
        """Report a journal that is about to be opened for the first time."""
        if (key := self._key(name)) is not None and key not in self._opened:
            self._opened.add(key)  # first: taking its state opens it, too
            self._report({"journal": key, "before": state_of(self.root / key)})

    def used(self, path: Path, ranges: Sequence[Sequence[int]]) -> None:
        """Report entries of a journal, as ranges of bytes."""
        if Journals._watching is self and (key := self._key(path)) is not None:
            self._report({"used": key, "ranges": ranges})

    def _key(self, name: str | Path) -> str | None:
        path = Path(os.path.abspath(name))
        inside = path.is_relative_to(self.root / STATE) and not path.is_relative_to(self.root / RECORDS)
        return path.relative_to(self.root).as_posix() if inside else None


def _on_event(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "open" and (journals := Journals._watching) is not None and isinstance(arguments[0], (str, bytes)):
        name = os.fsdecode(arguments[0])
        if name.endswith(".jsonl") and STATE.name in name:
            journals.opened(name)


def foreign_modules() -> dict[str, Path]:
    """The file of every loaded module that does not come from the environment, by the module's name."""
    found = {}
    for name, module in sorted(sys.modules.copy().items()):
        named = getattr(module, "__file__", None)  # a built-in module has none; some invent a relative one
        if isinstance(named, str) and os.path.isabs(named) and is_foreign(file := Path(named)) and file.is_file():
            found[name] = _resolved(file.parent) / file.name
    return found


def is_foreign(file: Path) -> bool:
    """True if a source file is outside of the environment, the standard library included."""
    return not _is_installed(_resolved(file.parent))


def unlisted_modules(code: Iterable[str], root: Path = Path(".")) -> dict[str, str]:
    """sha256 by name of the loaded modules that come neither from the environment nor from the stage's ``code``.

    ``code`` holds paths relative to ``root``. A module inside the project has its path after its name. The compiled
    file of a module counts if its code differs from its source: Python trusts it by the source's time and size.
    """
    root = root.resolve()
    listed = {root / path for path in code}
    run = {name: _compiled(path) if path in listed else path for name, path in foreign_modules().items()}
    return {labelled(name, path, root): sha256_file(path) for name, path in run.items() if path is not None}


def _compiled(source: Path) -> Path | None:
    """The compiled file that Python ran instead of the source, if its code differs."""
    compiled = Path(cache_from_source(source))
    try:
        head, code = compiled.read_bytes()[4:16], SourcelessFileLoader(source.stem, str(compiled)).get_code(source.stem)
        same = code == compiled_code(source.read_bytes())
    except (OSError, ImportError, EOFError, SyntaxError, TypeError, ValueError):  # none, or one that cannot be run
        return None
    times = source.stat()
    own = struct.pack("<3L", 0, int(times.st_mtime) & 0xFFFFFFFF, times.st_size & 0xFFFFFFFF)
    was_run = head == own or bool(head[0])  # flag 1: Python does not compare the time
    return compiled if was_run and not same else None


def labelled(name: str, path: Path, root: Path) -> str:
    """The name of a module, and its path if that is inside the project."""
    return f"{name} ({path.relative_to(root).as_posix()})" if path.is_relative_to(root) else name


def unlocked_packages(installed: dict[str, str], locks: Path) -> dict[str, list[str | None]]:
    """Pinned packages whose installed version differs, as ``[installed or None, pinned]``.

    If ``locks`` has several lock files, the one that differs least belongs to this environment.
    """
    candidates = [
        {
            name: [installed.get(name), version]
            for name, version in pinned(path.read_text(encoding="utf-8")).items()
            if installed.get(name) != version
        }
        for path in sorted(locks.glob("*.lock"))
    ]
    return min(candidates, key=len, default={})


def other_versions(differences: Mapping[str, Sequence[str | None]]) -> list[str]:
    """The differences of ``unlocked_packages`` in words; packages that are not installed are left out."""
    return [f"{name} {installed} instead of {pin}" for name, (installed, pin) in differences.items() if installed]


def pinned(text: str) -> dict[str, str]:
    """Version by name of the packages that a lock file pins."""
    return dict(pinned_files(text).keys())


def pinned_files(text: str) -> dict[tuple[str, str], list[str]]:
    """The sha256 of the distributions of each package that a lock file pins, by name and version."""
    pins = [*_PIN.finditer(text)]
    ends = [*(pin.start() for pin in pins[1:]), len(text)]
    return {
        (re.sub(r"[-_.]+", "-", pin["name"]).lower(), pin["version"]): _HASH.findall(text, pin.end(), end)
        for pin, end in zip(pins, ends, strict=True)
    }


@cache
def _environment() -> tuple[Path, ...]:
    """The folders of the interpreter and of its installed packages."""
    return tuple(Path(place).resolve() for place in {sys.prefix, sys.base_prefix, *sysconfig.get_paths().values()})


@cache
def _is_installed(folder: Path) -> bool:
    return any(folder.is_relative_to(place) for place in _environment())


@cache
def _resolved(folder: Path) -> Path:
    return folder.resolve()
