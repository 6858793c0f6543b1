"""Targets of the verbs: ``X``, ``X@REV`` and ``X#/pointer``, and the bytes of a file at a revision.

Names of stages contain ``@`` too (``train@full``): the part after an ``@`` is a revision only if git knows it, and the
whole text is neither a stage nor a file of the project.

``at`` gives the project at a revision without a checkout: a folder with dvc.yaml, params.yaml and the lock of every
pipeline and the ``.dvc`` files, and links to the settings of DVC and to the records of this machine. Every function
that takes the project's root accepts it.
"""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
import tomllib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evidence.audit.records import records_of
from evidence.dvc import history
from evidence.dvc.history import MAIN_LOCK, Locked
from evidence.dvc.pipeline import PIPELINES
from evidence.dvc.stores import listing_of, object_file, object_stores
from evidence.record.environment import GIT_ALONE, git, git_in
from evidence.record.reading import Record, attesting
from evidence.settings import SETTINGS, STATE
from ground.hashing import digest_listing, md5_of
from ground.io import DataError, parse_json

_DEFINING = {path.with_name(name).as_posix() for path in PIPELINES for name in (path.name, MAIN_LOCK, "params.yaml")}
_POINTER = re.compile(r"([^./][^/]*/)*[^/]*\.dvc")
"""A ``.dvc`` file outside of hidden folders."""
_LINKED = (".dvc", STATE)


@contextmanager
def at(root: Path, revision: str | None) -> Iterator[Path]:
    """Yield a folder like ``root`` as it was at a git revision; without one, ``root`` itself.

    Raises ``DataError`` if there is no such revision. A ``DataError`` of the block names files as ``REV:path``.
    """
    if revision is None:
        yield root
        return
    names = [name for name in names_at(root, revision) if name in _DEFINING or _POINTER.fullmatch(name)]
    with tempfile.TemporaryDirectory(prefix="revision-") as name:
        folder = Path(name)
        for file, content in read_at(root, revision, names).items():
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            (folder / file).write_bytes(content)
        for link in (name for name in _LINKED if (root / name).exists()):
            (folder / link).symlink_to((root / link).resolve())
        try:
            yield folder
        except DataError as error:
            raise DataError(str(error).replace(f"{folder}/", f"{revision}:")) from error


def names_at(root: Path, revision: str) -> list[str]:
    """The path below ``root`` of every file of a revision; raises ``DataError`` if there is no such revision."""
    listing = git("ls-tree", "-r", "-z", "--name-only", commit_of(root, revision), root=root)
    return [name for name in (listing or "").split("\0") if name]


def read_at(root: Path, revision: str, names: Iterable[str]) -> dict[str, bytes]:
    """The content of files at a revision, by path below ``root``; paths that it does not have are left out."""
    commit = commit_of(root, revision)
    wanted = [name for name in names if "\n" not in name and ".." not in Path(name).parts]  # one line each for git
    if not wanted:
        return {}
    asked = "".join(f"{commit}:./{name}\n" for name in wanted).encode("utf-8", "surrogateescape")
    command = [*git_in(root.absolute()), "cat-file", "--batch"]
    answer = subprocess.run(command, input=asked, env=os.environ | GIT_ALONE, capture_output=True, check=True).stdout
    found, place = {}, 0
    for name in wanted:
        end = answer.index(b"\n", place)
        head = answer[place:end].split()
        place = end + 1
        if head[-1] != b"missing":
            size = int(head[-1])
            if head[-2] == b"blob":
                found[name] = answer[place : place + size]
            place += size + 1
    return found


def commit_of(root: Path, revision: str) -> str:
    """The digest of the commit that a revision names; raises ``DataError`` if there is none."""
    if (commit := known_commit(root, revision)) is None:
        raise DataError(f"{revision}: no such revision of this repository; `git log --oneline --all` lists commits")
    return commit


def known_commit(root: Path, revision: str) -> str | None:
    """The digest of the commit that a revision names, or ``None``."""
    if not revision or revision.startswith("-"):
        return None
    found = git("rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}", root=root)
    return found.strip() if found else None


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
    """The stages and files of a project at a revision: outs from the stores of this machine, other files from git."""

    def __init__(self, root: Path, revision: str | None = None) -> None:
        self.root, self.revision = root, revision
        self.stores = list(object_stores(root))
        self._fetch = f"`dvc fetch{' --all-commits' if revision else ''}`"
        with at(root, revision) as folder:
            self.stages: dict[str, Locked] = history.read_lock(folder)

    def made(self, stage: Locked) -> Record | None:
        """The record of the run that made the outs of a stage in the lock; ``None`` if this machine has none."""
        return attesting(records_of(self.root, stage.name), stage)

    def maker(self, path: str) -> Locked | None:
        """The stage that makes an out, or the out that contains the path."""
        found = (stage for stage in self.stages.values() for out in stage.outs if f"{path}/".startswith(f"{out}/"))
        return next(found, None)

    def md5(self, path: str) -> str | None:
        """The md5 of an out, or of a file or folder in one, according to the locks; ``None`` if there is none."""
        maker = self.maker(path)
        for out, md5 in maker.outs.items() if maker else ():
            if out == path:
                return md5
            if path.startswith(f"{out}/"):
                return digest_listing(listing_of(self.stores, md5), path.removeprefix(f"{out}/")) or None
        return None

    def listing(self, path: str) -> dict[str, str]:
        """The md5 of each file of a folder, an out or part of it, by path there; empty if no store lists the out."""
        maker = self.maker(path)
        outs = maker.outs.items() if maker else ()
        known = ((out, listing_of(self.stores, md5)) for out, md5 in outs if f"{path}/".startswith(f"{out}/"))
        paths = ((f"{out}/{name}", md5) for out, listing in known for name, md5 in listing.items())
        return {name.removeprefix(f"{path}/"): md5 for name, md5 in paths if name.startswith(f"{path}/")}

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
            if file.is_file() and md5_of(file) == md5.removesuffix(".dir"):
                return file
        return None

    def files_of(self, path: str, md5: str) -> dict[str, str]:
        """The md5 of each file of an out, by path; raises ``DataError`` if no store lists the files of a folder."""
        if not md5.endswith(".dir"):
            return {path: md5}
        if not (listing := listing_of(self.stores, md5)):
            raise DataError(f"{path}: no store of this machine lists its files (md5 {md5}); run {self._fetch}")
        return {f"{path}/{name}": inner for name, inner in listing.items()}

    def stored(self, path: str, md5: str) -> Path:
        """The file with this md5: an object of a store, or the project's ``path``; raises ``DataError`` without one."""
        if (file := self.object(md5)) is not None:
            return file
        own = self.root / path
        if own.is_file() and md5_of(own) == md5:
            return own
        raise DataError(f"{path}: no store of this machine has its bytes (md5 {md5}); get them with {self._fetch}")

    def value(self, path: str) -> Any:
        """The content of a JSON or TOML file; raises ``DataError`` if it is not one."""
        content = self.read(path)
        if path.endswith(".toml"):
            return tomllib.loads(content.decode())
        if not path.endswith(".json"):
            raise DataError(f"{path}: pointers lead into JSON and TOML files only")
        return parse_json(content, path)


def link_outs(folder: Path, files: Files, paths: Iterable[str]) -> None:
    """Link outs, or parts of outs, of a revision into its folder (``at``), from the stores of this machine.

    Paths that the revision does not have are left out. Raises ``DataError`` as ``Files.stored`` does.
    """
    known = (files.files_of(path, md5) for path in paths if (md5 := files.md5(path)))
    for name, inner in (item for listing in known for item in listing.items()):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).symlink_to(files.stored(name, inner).resolve())
