"""The C compiler and Python's C headers, with which Triton builds its kernel launchers at run time.

PyTorch's CUDA wheels contain everything else. Without these two, the first compiled kernel fails deep inside Triton.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from functools import cache
from pathlib import Path

from ground.io import DataError


def compiler() -> str | None:
    """The C compiler that Triton would use: ``CC``, or gcc or clang on the PATH."""
    return os.environ.get("CC") or shutil.which("gcc") or shutil.which("clang")


def headers() -> Path:
    """The folder that contains Python.h if the headers of this interpreter are installed."""
    return Path(sysconfig.get_path("include"))


def compile_problem(command: str | None, include: Path) -> str:
    """The reason that ``command`` cannot compile a C file with Python.h from ``include``; "" if it can."""
    if command is None:
        return "no C compiler (gcc or clang) on the PATH, and CC is not set"
    if not (include / "Python.h").is_file():
        return f"{include}/Python.h does not exist"
    words = [*command.split(), "-x", "c", "-fsyntax-only", "-I", str(include), "-"]
    try:
        done = subprocess.run(words, input="#include <Python.h>\n", capture_output=True, text=True, check=False)
    except OSError as error:
        return f"the C compiler {command} does not start: {error.strerror}"
    lines = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
    return f"{command} cannot compile Python.h: {lines[0]}" if done.returncode else ""


def packages() -> str:
    """The command that installs both on Debian and Ubuntu."""
    return f"sudo apt-get install gcc python3.{sys.version_info.minor}-dev"


@cache
def require_compiler() -> None:
    """Raise ``DataError`` with the command that installs what is missing, unless Triton can build its launchers."""
    if problem := compile_problem(compiler(), headers()):
        raise DataError(f"FlexAttention is compiled on the GPU's machine, but {problem}; {packages()}")
