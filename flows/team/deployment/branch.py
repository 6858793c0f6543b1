"""A clone that follows a branch, and run branches that are created from it with the results of a run."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from flows.team.deployment import git
from ground.io import DataError, TransientError

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
        git.connect(folder, repository)
        git.fetch(folder)
        if not (head := git.commit_of(folder, f"refs/remotes/origin/{branch}")):
            raise DataError(
                f"{git.without_user(repository)}: has no branch {branch}; "
                "name another one in the deployment's parameters"
            )
        return cls.at(folder, repository, head)

    @classmethod
    def at(cls, folder: Path, repository: str, commit: str) -> Clone:
        """Clone, or fetch and check out one commit of any branch; files that git ignores stay.

        Raises ``TransientError`` if the repository does not answer, and ``DataError`` if it has no such commit.
        """
        git.connect(folder, repository)
        if not git.commit_of(folder, commit):
            git.fetch(folder)
        if not git.commit_of(folder, commit):
            raise DataError(f"{git.without_user(repository)}: no branch has commit {commit}; push it")
        git.run(folder, "checkout", "-q", "--force", "--detach", commit)
        git.run(folder, "clean", "-q", "-d", "--force")
        return cls(folder, commit)

    def changed(self, paths: Sequence[str]) -> list[str]:
        """The files among ``paths`` that differ from the head, new files included."""
        status = git.text(self.folder, "status", "--porcelain", "--untracked-files=all", "--", *paths)
        return sorted({line.split(maxsplit=1)[1] for line in status.splitlines()})

    def commit(self, paths: Sequence[str], name: str, lines: Sequence[str], trailers: Mapping[str, str]) -> str:
        """Commit ``paths`` and push them as a new branch; returns its name, which gets a number if ``name`` exists.

        Raises ``TransientError`` if the branch cannot be pushed.
        """
        message = "\n".join([lines[0], "", *lines[1:], "", *(f"{key}: {value}" for key, value in trailers.items())])
        git.run(self.folder, "add", "--", *paths)
        missing = [key for key in _AUTHOR if not git.tried(self.folder, "config", key).stdout.strip()]
        author = [word for key in missing for word in ("-c", f"{key}={_AUTHOR[key]}")]
        git.run(self.folder, *author, "commit", "-q", "--no-verify", "-m", message)
        for number in range(1, _MOST_BRANCHES):
            branch = name if number == 1 else f"{name}-{number}"
            # With the empty lease, the push fails if the branch exists.
            lease, target = f"--force-with-lease={branch}:", f"HEAD:refs/heads/{branch}"
            pushed = git.tried(self.folder, "push", "-q", lease, "origin", target)
            if pushed.returncode == 0:
                return branch
            if not _TAKEN.search(pushed.stderr.decode(errors="replace")):
                raise TransientError(
                    f"{branch}: cannot be pushed ({git.cause(pushed)}); the commit is in {self.folder}"
                )
        raise TransientError(f"{name}: {_MOST_BRANCHES} branches of this name exist; delete some")

    def same_results(self, paths: Sequence[str]) -> str:
        """The run branch of this head that holds the same ``paths`` already, or an empty text."""
        git.fetch(self.folder)
        git.run(self.folder, "add", "--", *paths)  # `git diff` takes files that are not in the index for deleted
        runs = f"refs/remotes/origin/runs/*-{self.head[:SHORT]}*"
        for branch in git.text(self.folder, "for-each-ref", "--format=%(refname:lstrip=3)", runs).splitlines():
            commit = f"refs/remotes/origin/{branch}"
            if git.tried(self.folder, "diff", "--quiet", "--cached", commit, "--", *paths).returncode == 0:
                return branch
        return ""
