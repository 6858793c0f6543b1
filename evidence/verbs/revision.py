"""The project at a git revision, without a checkout: a folder with the files that define the history.

The folder has dvc.yaml, params.yaml and the lock of every pipeline and the ``.dvc`` files, as the revision has them,
and links to the DVC cache's settings and to the records of this machine. Every function that takes the project's root
accepts it.
"""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from evidence.dvc.history import MAIN_LOCK
from evidence.dvc.pipeline import PIPELINES
from evidence.record.environment import git
from evidence.settings import STATE
from ground.io import DataError

_DEFINING = {path.with_name(name).as_posix() for path in PIPELINES for name in (path.name, MAIN_LOCK, "params.yaml")}
_LINKED = (".dvc", STATE)


@contextmanager
def at(root: Path, revision: str | None) -> Iterator[Path]:
    """Yield a folder like ``root`` as it was at a git revision; without one, ``root`` itself.

    Raises ``DataError`` if there is no such revision. A ``DataError`` of the block names files as ``REV:path``.
    """
    if revision is None:
        yield root
        return
    names = [name for name in names_at(root, revision) if name in _DEFINING or _is_pointer(name)]
    with tempfile.TemporaryDirectory(prefix="revision-") as name:
        folder = Path(name)
        for file, content in read_at(root, revision, names).items():
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            (folder / file).write_bytes(content)
        for link in _LINKED:
            (folder / link).symlink_to((root / link).resolve())
        try:
            yield folder
        except DataError as error:
            raise DataError(str(error).replace(f"{folder}/", f"{revision}:")) from error


def names_at(root: Path, revision: str) -> list[str]:
    """The path of every file of a revision; raises ``DataError`` if there is no such revision."""
    listing = git("ls-tree", "-r", "-z", "--name-only", "--full-tree", commit_of(root, revision), root=root)
    return [name for name in (listing or "").split("\0") if name]


def read_at(root: Path, revision: str, names: Iterable[str]) -> dict[str, bytes]:
    """The content of files at a revision, by path; those that it does not have are left out."""
    commit, wanted = commit_of(root, revision), [name for name in names if "\n" not in name]  # one line each for git
    if not wanted:
        return {}
    asked = "".join(f"{commit}:{name}\n" for name in wanted).encode("utf-8", "surrogateescape")
    command = ["git", "-C", str(root), "cat-file", "--batch"]
    answer = subprocess.run(command, input=asked, capture_output=True, check=True).stdout
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


def _is_pointer(name: str) -> bool:
    return name.endswith(".dvc") and not any(part.startswith(".") for part in name.split("/")[:-1])
