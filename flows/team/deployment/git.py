"""Commands of git in a folder, the cause that git names when one fails, and copies of a repository."""

from __future__ import annotations

import errno
import os
import re
import subprocess
from pathlib import Path

from ground.io import DataError, TransientError

_BRANCHES, _ALL = "+refs/heads/*:refs/remotes/origin/*", "+refs/*:refs/*"
_ERROR = re.compile(r"(fatal|error|ssh|\S+@\S+): ", re.I)  # the lines after it advise


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
    """Make ``folder`` a copy of a repository, which ``fetch`` gives these references; ``options`` are of git init."""
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
    return re.sub(r"(?<=://)[^/@\s]+@", "", message)
