"""A clone that follows a branch, and run branches that are created from it."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pathfinder.core.io import DataError, TransientError

SHORT = 8
"""The digits of a commit in the name of a run branch."""
_MOST_BRANCHES = 50
_TAKEN = re.compile("stale info|already exists|cannot lock ref")
_AUTHOR = {"user.name": "nightly run", "user.email": "nightly@localhost"}


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
        _connect(folder, repository)
        found = _tried(folder, "ls-remote", "--heads", "origin", f"refs/heads/{branch}")
        if found.returncode:
            raise TransientError(f"{without_user(repository)}: cannot be read ({_why(found)})")
        if not found.stdout.strip():
            raise DataError(
                f"{without_user(repository)}: has no branch {branch}; name another one in the deployment's parameters"
            )
        _git(folder, "fetch", "-q", "origin", f"+refs/heads/{branch}:refs/remotes/origin/{branch}")
        _git(folder, "checkout", "-q", "--force", "--detach", f"refs/remotes/origin/{branch}")
        _git(folder, "clean", "-q", "-d", "--force")
        return cls(folder, _git(folder, "rev-parse", "HEAD"))

    @classmethod
    def at(cls, folder: Path, repository: str, commit: str) -> Clone:
        """Clone, or fetch and check out one commit of any branch; files that git ignores stay.

        Raises ``TransientError`` if the repository does not answer, and ``DataError`` if it has no such commit.
        """
        _connect(folder, repository)
        known = ("cat-file", "-e", f"{commit}^{{commit}}")
        if _tried(folder, *known).returncode:
            fetched = _tried(folder, "fetch", "-q", "--prune", "origin", "+refs/heads/*:refs/remotes/origin/*")
            if fetched.returncode:
                raise TransientError(f"{without_user(repository)}: cannot be read ({_why(fetched)})")
        if _tried(folder, *known).returncode:
            raise DataError(f"{without_user(repository)}: no branch has commit {commit}; push it")
        _git(folder, "checkout", "-q", "--force", "--detach", commit)
        _git(folder, "clean", "-q", "-d", "--force")
        return cls(folder, commit)

    def changed(self, paths: Sequence[str]) -> list[str]:
        """Those of ``paths`` that differ from the head, new files included."""
        status = _git(self.folder, "status", "--porcelain", "--untracked-files=all", "--", *paths)
        return sorted({line.split(maxsplit=1)[1] for line in status.splitlines()})

    def commit(self, paths: Sequence[str], name: str, lines: Sequence[str], trailers: Mapping[str, str]) -> str:
        """Commit ``paths`` and push them as a new branch; returns its name, which gets a number if ``name`` exists.

        Raises ``TransientError`` if the branch cannot be pushed.
        """
        message = "\n".join([lines[0], "", *lines[1:], "", *(f"{key}: {value}" for key, value in trailers.items())])
        _git(self.folder, "add", "--", *paths)
        author = [word for key, value in self._author().items() for word in ("-c", f"{key}={value}")]
        _git(self.folder, *author, "commit", "-q", "--no-verify", "-m", message)
        for number in range(1, _MOST_BRANCHES):
            branch = name if number == 1 else f"{name}-{number}"
            # With the empty lease, the push fails if the branch exists.
            lease, target = f"--force-with-lease={branch}:", f"HEAD:refs/heads/{branch}"
            pushed = _tried(self.folder, "push", "-q", lease, "origin", target)
            if pushed.returncode == 0:
                return branch
            if not _TAKEN.search(pushed.stderr):
                raise TransientError(f"{branch}: cannot be pushed ({_why(pushed)}); the commit is in {self.folder}")
        raise TransientError(f"{name}: {_MOST_BRANCHES} branches of this name exist; delete some")

    def same_results(self, paths: Sequence[str]) -> str:
        """The run branch of this head that holds the same ``paths`` already, or an empty text."""
        listed = _git(self.folder, "ls-remote", "--heads", "origin", f"refs/heads/runs/*-{self.head[:SHORT]}*")
        _git(self.folder, "add", "--", *paths)  # `git diff` takes files that are not in the index for deleted
        for line in listed.splitlines():
            commit, _, reference = line.partition("\t")
            _git(self.folder, "fetch", "-q", "origin", reference)
            if _tried(self.folder, "diff", "--quiet", "--cached", commit, "--", *paths).returncode == 0:
                return reference.removeprefix("refs/heads/")
        return ""

    def _author(self) -> dict[str, str]:
        return {key: value for key, value in _AUTHOR.items() if not _tried(self.folder, "config", key).stdout.strip()}


def _connect(folder: Path, repository: str) -> None:
    if not (folder / ".git").is_dir():
        folder.mkdir(parents=True, exist_ok=True)
        _git(folder, "init", "-q")
        _git(folder, "remote", "add", "origin", repository)
    _git(folder, "remote", "set-url", "origin", repository)


def _git(folder: Path, *arguments: str) -> str:
    done = _tried(folder, *arguments)
    if done.returncode:
        raise DataError(f"`git {' '.join(arguments[:2])}` failed in {folder}: {_why(done)}")
    return done.stdout.strip()


def _tried(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["git", *arguments], cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )


def _why(done: subprocess.CompletedProcess[str]) -> str:
    """The line of git's messages that gives the cause: that of a refused branch, otherwise the last one."""
    lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
    refused = [line for line in lines if line.startswith("! ")]
    return without_user((refused or lines or [f"exit code {done.returncode}"])[-1])


def without_user(text: str) -> str:
    """A text whose addresses do not name a user or a token."""
    return re.sub(r"(?<=://)[^/@\s]+@", "", text)
