"""Targets of the verbs: ``X``, ``X@REV`` and ``X#/pointer``, and the bytes of a file at a revision.

Names of stages contain ``@`` too (``train@full``): the part after an ``@`` is a revision only if git knows it, and the
whole text is neither a stage nor a file of the project.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evidence.dvc import history
from evidence.dvc.history import Locked
from evidence.dvc.stores import listing_of, object_file, object_stores
from evidence.settings import SETTINGS
from evidence.verbs.revision import at, commit_of, known_commit, read_at
from ground.hashing import digest_listing, digest_path
from ground.io import DataError, parse_json


@dataclass(frozen=True, slots=True)
class Target:
    """A name, a revision (``None``: the project as it is), and a pointer into the file (``None``: all of it)."""

    name: str
    revision: str | None = None
    pointer: str | None = None

    def __str__(self) -> str:
        at_revision = f"@{self.revision}" if self.revision else ""
        return f"{self.name}{at_revision}{'' if self.pointer is None else f'#{self.pointer}'}"


def target_of(text: str, root: Path, revision: str | None = None) -> Target:
    """The target that a text names; ``revision`` is the default for a text without one.

    Raises ``DataError`` for the name of a stage or a file that ``@`` and an unknown revision follow.
    """
    name, mark, pointer = text.partition("#")
    found = pointer if mark else None
    if "@" in name and not _is_known(name, root):
        parts = [(name[:place], name[place + 1 :]) for place, letter in enumerate(name) if place and letter == "@"]
        for before, after in parts:
            if known_commit(root, after):
                return Target(Path(before).as_posix(), after, found)
        for before, after in parts:
            if _is_known(before, root):
                commit_of(root, after)  # an error
    return Target(Path(name).as_posix(), revision, found)


def _is_known(name: str, root: Path) -> bool:
    """True if ``name`` is a file or a folder of the project, a stage, or an output."""
    if (root / name).exists():
        return True
    try:
        stages = history.read_lock(root)
    except DataError:
        return False
    return name in stages or any(name in stage.outs for stage in stages.values())


class Files:
    """The files of a project at a revision: outs from the stores of this machine, others from git."""

    def __init__(self, root: Path, revision: str | None = None) -> None:
        self.root, self.revision = root, revision
        self.stores = list(object_stores(root))
        with at(root, revision) as folder:
            self.stages: dict[str, Locked] = history.read_lock(folder)

    def md5(self, path: str) -> str | None:
        """The md5 of an out, or of a file or folder in one, according to the locks; ``None`` if there is none."""
        for stage in self.stages.values():
            for out, md5 in stage.outs.items():
                if out == path:
                    return md5
                if path.startswith(f"{out}/"):
                    return digest_listing(listing_of(self.stores, md5), path.removeprefix(f"{out}/")) or None
        return None

    def read(self, path: str) -> bytes:
        """The bytes of a file; raises ``DataError`` if they are nowhere on this machine."""
        if self.revision is None and (self.root / path).is_file():
            return (self.root / path).read_bytes()
        if md5 := self.md5(path):
            return self.stored(path, md5).read_bytes()
        found = read_at(self.root, self.revision or "HEAD", [path])
        if path not in found:
            raise DataError(
                f"{Target(path, self.revision)}: no such file; `{SETTINGS.command} list outs` names the outs"
            )
        return found[path]

    def object(self, md5: str) -> Path | None:
        """The undamaged object with this md5 in a store; ``None`` if no store has it."""
        for store in self.stores:
            file = object_file(store, md5)
            if file.is_file() and digest_path(file).md5 == md5.removesuffix(".dir"):
                return file
        return None

    def files_of(self, path: str, md5: str) -> dict[str, str]:
        """The md5 of each file of an out, by path; raises ``DataError`` if no store lists the files of a folder."""
        if not md5.endswith(".dir"):
            return {path: md5}
        if not (listing := listing_of(self.stores, md5)):
            raise DataError(f"{path}: no store of this machine lists its files (md5 {md5}); run `dvc fetch`")
        return {f"{path}/{name}": inner for name, inner in listing.items()}

    def stored(self, path: str, md5: str) -> Path:
        """The file with this md5: an object of a store, or the project's ``path``; raises ``DataError`` without one."""
        if (file := self.object(md5)) is not None:
            return file
        own = self.root / path
        if own.is_file() and digest_path(own).md5 == md5:
            return own
        raise DataError(f"{path}: no store of this machine has its bytes (md5 {md5}); get them with `dvc fetch`")

    def value(self, path: str) -> Any:
        """The content of a JSON or TOML file; raises ``DataError`` if it is not one."""
        content = self.read(path)
        if path.endswith(".toml"):
            return tomllib.loads(content.decode())
        if not path.endswith(".json"):
            raise DataError(f"{path}: pointers lead into JSON and TOML files only")
        return parse_json(content, path)


def maker_of(stages: Mapping[str, Locked], path: str) -> Locked | None:
    """The stage that makes an out, or the out that contains the path."""
    return next((s for s in stages.values() for out in s.outs if path == out or path.startswith(f"{out}/")), None)
