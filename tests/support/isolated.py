"""Commands with tools that do not fit into the project's environment: uv installs them for one command."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path

import pytest

from ground.io import DataError

_UNREACHABLE = ("Could not connect", "dns error", "error sending request", "Failed to fetch")


def isolated(lock: Path, command: Sequence[str]) -> list[str]:
    """The command that runs ``command`` in an environment that holds exactly the packages of a lock file.

    Skips the test if uv is not installed.
    """
    return [_uv(), "run", "--isolated", "--no-project", "--python", "3.11", "--with-requirements", str(lock), *command]


def layered(lock: Path, command: Sequence[str]) -> list[str]:
    """As ``isolated``, with the packages of this environment beneath the packages of the lock file."""
    return [_uv(), "run", "--no-project", "--python", sys.executable, "--with-requirements", str(lock), *command]


def _uv() -> str:
    uv = shutil.which("uv", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    if uv is None:
        pytest.skip("uv is not installed")
    return uv


def run_isolated(
    lock: Path, command: Sequence[str], environment: Mapping[str, str] = os.environ, cwd: Path = Path()
) -> subprocess.CompletedProcess[str]:
    """Run a command in an environment that holds exactly the packages of a lock file.

    Skips the test if uv is not installed or the package index cannot be reached.
    """
    done = subprocess.run(
        isolated(lock, command),
        env={name: value for name, value in environment.items() if name != "PYTHONPATH"},
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode and any(text in done.stderr for text in _UNREACHABLE):
        pytest.skip(f"the package index is not reachable, so the packages of {lock.name} cannot be installed")
    return done


def environment_with_torch(lock: Path, folder: Path) -> Path:
    """The interpreter of a new environment in ``folder``: the packages of a lock file, and this environment's PyTorch.

    The lock names all packages but PyTorch, whose builds are not on the usual index. No other dependency is installed.
    Raises ``DataError`` if the packages cannot be installed.
    """
    run_python("-m", "venv", "--without-pip", str(folder))
    python = folder / "bin/python"
    words = ["--no-deps", "--require-hashes", "-r", str(lock)]
    try:
        run_python("-m", "uv", "pip", "install", "-q", "--python", str(python), *words)
    except DataError:  # uv does not read pip's configuration, which may name another index
        run_python("-m", "pip", "--python", str(python), "--disable-pip-version-check", "install", "-q", *words)
    theirs = Path(sysconfig.get_path("purelib", vars={"base": str(folder)}))
    for name in ("torch", "torchgen", "functorch", f"torch-{metadata.version('torch')}.dist-info"):
        (theirs / name).symlink_to(Path(sysconfig.get_path("purelib")) / name)
    return python


def run_python(*words: str) -> None:
    """Run this interpreter; raises ``DataError`` with the end of what it printed if it fails."""
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise DataError(f"{' '.join(words)}: {done.stderr.strip()[-600:]}")
