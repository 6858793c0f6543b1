"""Commands of git in a folder, and the cause that git names when one fails."""

from __future__ import annotations

import errno
import os
import re
import subprocess
from pathlib import Path

from ground.io import DataError

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


def cause(done: subprocess.CompletedProcess[bytes]) -> str:
    """The line of git's messages about a refused branch or a full disk; otherwise the first error, or the last line."""
    lines = [line.strip() for line in done.stderr.decode(errors="replace").splitlines() if line.strip()]
    refused = [line for line in lines if line.startswith("! ") or os.strerror(errno.ENOSPC) in line]
    errors = [line for line in lines if _ERROR.match(line)][:1]
    return without_user((refused or errors or lines or [f"exit code {done.returncode}"])[-1])


def without_user(message: str) -> str:
    """A message whose addresses do not name a user or a token."""
    return re.sub(r"(?<=://)[^/@\s]+@", "", message)
