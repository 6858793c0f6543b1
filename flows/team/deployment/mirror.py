"""A bare copy of a repository with all its references: what commits hold, and the safe move of a branch."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from flows.team.deployment import git
from ground.io import DataError, TransientError

_MOVED = re.compile("stale info|non-fast-forward|fetch first|cannot lock ref|failed to update ref|but expected")
_IN_USE = re.compile("currently checked out")


@dataclass(frozen=True, slots=True)
class Mirror:
    """A bare repository in ``folder`` that has every reference of ``repository`` as it was when it was fetched."""

    folder: Path
    repository: str

    @classmethod
    def update(cls, folder: Path, repository: str) -> Mirror:
        """Fetch every reference, and drop deleted ones; raises ``TransientError`` if the repository does not answer."""
        if not (folder / "HEAD").is_file():
            folder.mkdir(parents=True, exist_ok=True)
            git.run(folder, "init", "-q", "--bare")
        try:
            git.run(folder, "fetch", "-q", "--prune", "--force", repository, "+refs/*:refs/*")
        except DataError as error:
            raise TransientError(f"the repository cannot be read ({error})") from error
        return cls(folder, repository)

    def commit(self, branch: str) -> str:
        """The head of a branch; empty if there is no such branch."""
        found = git.tried(self.folder, "rev-parse", "--verify", "-q", f"refs/heads/{branch}^{{commit}}")
        return found.stdout.decode().strip()

    def follows(self, later: str, earlier: str) -> bool:
        """Return whether ``earlier`` is an ancestor of ``later``."""
        return git.tried(self.folder, "merge-base", "--is-ancestor", earlier, later).returncode == 0

    def changed(self, before: str, after: str) -> tuple[str, ...]:
        """The files that differ between two commits."""
        listed = git.run(self.folder, "diff", "--name-only", "--no-renames", "-z", before, after)
        return tuple(name for name in listed.decode(errors="surrogateescape").split("\0") if name)

    def read(self, commit: str, path: str) -> bytes | None:
        """A file at a commit; ``None`` if it does not exist there."""
        found = git.tried(self.folder, "cat-file", "blob", f"{commit}:{path}")
        return found.stdout if found.returncode == 0 else None

    def newest(self, prefix: str, base: str) -> str:
        """The newest branch below ``prefix`` that follows ``base``; empty if there is none."""
        options = ["--sort=-committerdate", "--count=1", f"--contains={base}", "--format=%(refname:lstrip=2)"]
        return git.text(self.folder, "for-each-ref", *options, f"refs/heads/{prefix}")

    def move(self, branch: str, before: str, after: str) -> str:
        """Move a branch of the repository from one commit to another; returns why not if it is elsewhere now.

        Raises ``DataError`` if the branch is checked out there, and ``TransientError`` if it refuses otherwise.
        """
        lease = f"--force-with-lease=refs/heads/{branch}:{before}"
        done = git.tried(self.folder, "push", "-q", lease, self.repository, f"{after}:refs/heads/{branch}")
        why = git.cause(done)
        if done.returncode == 0:
            return ""
        if _MOVED.search(why):
            return why
        if _IN_USE.search(done.stderr.decode(errors="replace")):
            raise DataError(f"{branch} is checked out in the repository; run `git merge --ff-only {after[:12]}` there")
        raise TransientError(f"{branch}: cannot be pushed ({why})")
