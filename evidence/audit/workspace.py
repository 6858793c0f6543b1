"""The project's files as they are now. Every path is read once."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

from evidence.audit.findings import Finding, listed
from evidence.record.environment import changed_files, git
from evidence.settings import STATE
from ground.hashing import Digest, digest_file, digest_path
from ground.io import DataError
from ground.settings import read_yaml
from ground.show import counted

NO_COMMIT = "in no commit"
LINK = "is a symbolic link to {}; expected the file or folder itself"


class Workspace:
    """Digests of paths, values of parameter files and the state of git below ``root``."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.read: dict[str, Path] = {}
        """The files that were digested, by md5."""
        self.head = cache(lambda: git("rev-parse", "HEAD", root=root))
        self.digest = cache(self._digest)
        self._of_file = cache(digest_file)
        self.links = cache(self._links)
        self._is_link = cache(lambda place: (root / place).is_symlink())
        self.params = cache(lambda file: read_yaml(root / file))
        self.is_tracked = cache(lambda path: bool(git("ls-files", "--", path, root=root)))
        self.has_commit = cache(self._has_commit)
        self.is_committed = cache(self._is_committed)
        self.since = cache(self._since)

    def _links(self, path: str) -> list[str]:
        """The symbolic links at ``path``, above it (below the root) and inside it."""
        parts = Path(path)
        above = [place for place in (parts, *parts.parents) if self._is_link(place)]
        found = self.digest(path)
        inside = [f"{path}/{name}" for name in (found.links if found else ())]
        return [*(place.as_posix() for place in above), *inside]

    def target(self, link: str) -> str:
        """The target of a symbolic link."""
        return (self.root / link).readlink().as_posix()

    def unread(self, path: str) -> list[str]:
        """The compiled modules, pipes, sockets and devices in a folder: they have no part in its digest."""
        inside = (Path(found) for found in _at_and_below([self.root / path]))
        left = (found for found in inside if found.name == "__pycache__" or _is_special(found))
        return sorted(found.relative_to(self.root).as_posix() for found in left)

    def is_executable(self, path: str) -> bool:
        """True if the owner of a file may execute it."""
        return bool((self.root / path).stat().st_mode & 0o100)

    def state_of_commit(self, runs: Iterable[str] = (), code: int = 0) -> str:
        """The commit, uncommitted changes, and the commits and ``code`` files that are newer than the ``runs``."""
        commit = self.head()
        if commit is None:
            return "no git repository"
        changed = changed_files(root=self.root)
        counts = [int(git("rev-list", "--count", f"{run}..HEAD", root=self.root) or 0) for run in runs]
        later = f", {counted(max(counts), 'commit')} after the runs" if any(counts) else ""
        later += f", {counted(code, 'code file')} changed since" if code else ""
        state = "clean" if changed == [] else f"with uncommitted changes: {listed(changed or ['git status fails'])}"
        return f"commit {commit[:12]} {state}{later}"

    def _digest(self, path: str) -> Digest | None:
        place = self.root / path
        if not place.is_file() and not place.is_dir():  # a pipe would block the reader
            return None
        found = digest_path(place, self._of_file)
        self.read |= {file.md5: place / name for name, file in (found.files or {"": found}).items()}
        return found

    def _is_committed(self, path: str) -> bool:
        """True if HEAD has a file with these bytes at this path, or neither has one; true outside a repository."""
        if self.head() is None:
            return True
        return git("rev-parse", f"HEAD:./{path}", root=self.root) == git("hash-object", "--", path, root=self.root)

    def _since(self, path: str) -> str:
        """The commit that gave a file of HEAD its bytes, in words."""
        blob = git("hash-object", "--", path, root=self.root) or ""
        words = ("log", "-1", "--format=since commit %h of %as by %an", f"--find-object={blob.strip()}", "--", path)
        found = git(*words, root=self.root) if self.is_committed(path) else None
        return (found or "").strip() or NO_COMMIT

    def _has_commit(self, commit: str) -> bool:
        """True if a commit belongs to the history of HEAD, a branch or a tag; true outside a repository."""
        if self.head() is None:
            return True
        is_before = git("merge-base", "--is-ancestor", commit, "HEAD", root=self.root) is not None
        return is_before or bool(git("for-each-ref", "--count=1", "--contains", commit, root=self.root))


def refuse_pipes(places: Iterable[Path]) -> None:
    """Raise ``DataError`` for a pipe, a socket or a device at a place or below it: a reader would wait for ever."""
    for path in _at_and_below(places):
        if _is_special(path):
            raise DataError(f"{path}: a pipe, a socket or a device, which nothing here makes; delete it")


def links_in(places: Iterable[Path], root: Path) -> Iterator[Finding]:
    """The symbolic links in evidence: their targets can change unseen. Only the folder of all evidence may be one."""
    if (root / STATE).is_symlink():
        yield Finding(STATE.as_posix(), LINK.format((root / STATE).readlink()), "note")
    for path in (Path(found) for found in _at_and_below(places) if os.path.islink(found)):
        where = path.relative_to(root) if path.is_relative_to(root) else path
        yield Finding(where.as_posix(), LINK.format(path.readlink()))


def _is_special(path: str | Path) -> bool:
    """True for a pipe, a socket or a device."""
    return not os.path.isfile(path) and not os.path.isdir(path) and os.path.exists(path)


def _at_and_below(places: Iterable[Path]) -> Iterator[str]:
    """The places and everything below them, except the content of folders that this user cannot read."""
    for place in map(os.fspath, places):
        yield place
        for folder, folders, files in os.walk(place):
            yield from (os.path.join(folder, name) for name in (*folders, *files))
