"""Commands of git in a folder, the cause that it names when one fails, copies of a repository, and run branches."""

from __future__ import annotations

import errno
import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ground.io import DataError, TransientError

SHORT = 8
"""The digits of a commit in the name of a run branch."""
_BRANCHES, _ALL = "+refs/heads/*:refs/remotes/origin/*", "+refs/*:refs/*"
_ERROR = re.compile(r"(fatal|error|ssh|\S+@\S+): ", re.I)  # the lines after it advise
_MOST_BRANCHES = 50
_TAKEN = re.compile("stale info|already exists|cannot lock ref")
_AUTHOR = {"user.name": "nightly run", "user.email": "nightly@localhost"}


def run(folder: Path, *arguments: str, given: bytes = b"") -> bytes:
    """The output of a command that reads ``given``; raises ``DataError`` with the cause if it fails."""
    done = tried(folder, *arguments, given=given)
    if done.returncode:
        raise DataError(f"`git {' '.join(arguments[:2])}` failed in {folder}: {cause(done)}")
    return done.stdout


def text(folder: Path, *arguments: str) -> str:
    """The output of a command as text without surrounding space; raises ``DataError`` as ``run`` does."""
    return run(folder, *arguments).decode(errors="surrogateescape").strip()


def tried(folder: Path, *arguments: str, given: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    """A command that has ended, with or without success."""
    return subprocess.run(["git", "-C", str(folder), *arguments], input=given, capture_output=True, check=False)


def connect(folder: Path, repository: str, references: str = _BRANCHES, *options: str) -> None:
    """Make ``folder`` a copy of a repository that fetches these references; ``options`` are options of git init."""
    folder.mkdir(parents=True, exist_ok=True)
    run(folder, "init", "-q", *options)
    run(folder, "config", "remote.origin.url", repository)
    run(folder, "config", "remote.origin.fetch", references)


def mirror(folder: Path, repository: str) -> Path:
    """Make ``folder`` a bare copy with every reference of a repository as it is now; raises as ``fetch`` does."""
    connect(folder, repository, _ALL, "--bare")
    fetch(folder)
    return folder


def fetch(folder: Path) -> None:
    """Fetch the references, and drop deleted ones; raises ``TransientError`` if the repository does not answer."""
    done = tried(folder, "fetch", "-q", "--prune", "--force", "origin")
    if done.returncode:
        raise TransientError(f"{without_user(origin_of(folder))}: cannot be read ({cause(done)})")


def commit_of(folder: Path, name: str) -> str:
    """The commit that a reference or a digest names; empty if the folder has no such commit."""
    return tried(folder, "rev-parse", "--verify", "-q", f"{name}^{{commit}}").stdout.decode().strip()


def origin_of(folder: Path) -> str:
    """The address of the folder's origin, or the folder itself."""
    return tried(folder, "remote", "get-url", "origin").stdout.decode().strip() or str(folder)


def cause(done: subprocess.CompletedProcess[bytes]) -> str:
    """The line of git's messages about a refused branch or a full disk; otherwise the first error, or the last line."""
    lines = [line.strip() for line in done.stderr.decode(errors="replace").splitlines() if line.strip()]
    refused = [line for line in lines if line.startswith("! ") or os.strerror(errno.ENOSPC) in line]
    errors = [line for line in lines if _ERROR.match(line)][:1]
    return without_user((refused or errors or lines or [f"exit code {done.returncode}"])[-1])


def without_user(message: str) -> str:
    """A message whose addresses do not name a user or a token."""
    return re.sub(r"(?<=://)[^/\s]+@", "", message)


@dataclass(frozen=True, slots=True)
class Clone:
    """A clone whose work tree is at ``head``, the branch's commit when it was fetched."""

    folder: Path
    head: str

    @classmethod
    def update(cls, folder: Path, repository: str, branch: str) -> Clone:
        """Clone, or fetch and check out the branch's head; files that git ignores stay.

        Raises ``TransientError`` if the repository does not answer, and ``DataError`` if it has no such branch.
        """
        connect(folder, repository)
        fetch(folder)
        if not (head := commit_of(folder, f"refs/remotes/origin/{branch}")):
            raise DataError(
                f"{without_user(repository)}: has no branch {branch}; name another one in the deployment's parameters"
            )
        return cls.at(folder, repository, head)

    @classmethod
    def at(cls, folder: Path, repository: str, commit: str) -> Clone:
        """Clone, or fetch and check out one commit of any branch; files that git ignores stay.

        Raises ``TransientError`` if the repository does not answer, and ``DataError`` if it has no such commit.
        """
        connect(folder, repository)
        if not commit_of(folder, commit):
            fetch(folder)
        if not commit_of(folder, commit):
            raise DataError(f"{without_user(repository)}: no branch has commit {commit}; push it")
        run(folder, "checkout", "-q", "--force", "--detach", commit)
        run(folder, "clean", "-q", "-d", "--force")
        return cls(folder, commit)

    def changed(self, paths: Sequence[str]) -> list[str]:
        """The files among ``paths`` that differ from the head, new files included."""
        status = text(self.folder, "status", "--porcelain", "--untracked-files=all", "--", *paths)
        return sorted({line.split(maxsplit=1)[1] for line in status.splitlines()})

    def commit(self, paths: Sequence[str], name: str, lines: Sequence[str], trailers: Mapping[str, str]) -> str:
        """Commit ``paths`` and push them as a new branch; returns its name, which gets a number if ``name`` exists.

        Raises ``TransientError`` if the branch cannot be pushed.
        """
        message = "\n".join([lines[0], "", *lines[1:], "", *(f"{key}: {value}" for key, value in trailers.items())])
        run(self.folder, "add", "--", *paths)
        missing = [key for key in _AUTHOR if not tried(self.folder, "config", key).stdout.strip()]
        author = [word for key in missing for word in ("-c", f"{key}={_AUTHOR[key]}")]
        run(self.folder, *author, "commit", "-q", "--no-verify", "-m", message)
        for number in range(1, _MOST_BRANCHES):
            branch = name if number == 1 else f"{name}-{number}"
            # With the empty lease, the push fails if the branch exists.
            lease, target = f"--force-with-lease={branch}:", f"HEAD:refs/heads/{branch}"
            pushed = tried(self.folder, "push", "-q", lease, "origin", target)
            if pushed.returncode == 0:
                return branch
            if not _TAKEN.search(pushed.stderr.decode(errors="replace")):
                raise TransientError(f"{branch}: cannot be pushed ({cause(pushed)}); the commit is in {self.folder}")
        raise TransientError(f"{name}: {_MOST_BRANCHES} branches of this name exist; delete some")

    def same_results(self, paths: Sequence[str]) -> str:
        """The run branch of this head that holds the same ``paths`` already, or an empty text."""
        fetch(self.folder)
        run(self.folder, "add", "--", *paths)  # `git diff` takes files that are not in the index for deleted
        runs = f"refs/remotes/origin/runs/*-{self.head[:SHORT]}*"
        for branch in text(self.folder, "for-each-ref", "--format=%(refname:lstrip=3)", runs).splitlines():
            commit = f"refs/remotes/origin/{branch}"
            if tried(self.folder, "diff", "--quiet", "--cached", commit, "--", *paths).returncode == 0:
                return branch
        return ""
