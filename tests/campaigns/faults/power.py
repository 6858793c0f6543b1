"""Check that the order of system calls survives a loss of power: first the content is on disk, and then its name."""

from __future__ import annotations

import posixpath
from collections.abc import Sequence

_CHANGES = ("write", "copy", "truncate", "allocate", "chmod")
_NAMES = ("open", "mkdir")  # they may make a name in a folder


def losses(calls: Sequence[str], threads: bool = False) -> list[str]:
    """The files that a loss of power could take or tear after the writer has returned.

    ``calls`` are a whole run's, as the shim lists them. Everything below a name must be synced before the name
    appears, and the folder of the name right after; with ``threads``, at any later time. At the end of the run, nothing
    that exists may be unsynced.
    """
    unsynced: set[str] = set()
    problems: list[str] = []
    for number, call in enumerate(calls):
        operation, _, rest = call.partition(" ")
        path, _, old = (posixpath.normpath(name) if name else "" for name in rest.partition("\t"))
        folder = posixpath.dirname(path) or "."
        if operation in _CHANGES:
            unsynced.add(path)
        elif operation in _NAMES:
            unsynced.add(folder)
        elif operation == "fsync":
            unsynced.discard(path or ".")
        elif operation in ("unlink", "rmdir"):
            unsynced -= _below(unsynced, path)
        elif operation in ("rename", "link"):
            if torn := sorted(_below(unsynced, old)):
                problems.append(f"{path}: {', '.join(torn)} not synced before it got its name")
                unsynced -= {*torn}
            later = calls[number + 1 :] if threads else calls[number + 1 : number + 2]
            if f"fsync {folder if folder != '.' else ''}" not in later:
                problems.append(f"{path}: its folder is not synced after it got its name")
            unsynced.add(folder)
    return [*problems, *(f"{path}: not synced at the end" for path in sorted(unsynced))]


def _below(paths: set[str], top: str) -> set[str]:
    return {path for path in paths if path == top or path.startswith(f"{top}/")}
