"""The compiled shim, the faults it knows, and the state that it shares with the process that reads the result."""

from __future__ import annotations

import ctypes
import hashlib
import platform
import shutil
import subprocess
import sysconfig
import tempfile
from pathlib import Path

SOURCE = Path(__file__).with_name("faults.c")
KINDS = (
    "none",
    "no space",
    "bad disk",
    "interrupted",
    "short write",
    "killed before",
    "killed after",
    "stays full",
    "clock forward",
    "clock back",
)
"""The faults, numbered as in ``faults.c``: a call fails with ENOSPC, EIO or EINTR, writes half, or the process group
gets SIGKILL before or after it; from then on nothing can grow; or the clock is set a day on or back."""
_PATH = 512


class State(ctypes.Structure):
    """State that the processes of a run share: the calls so far, the fault, whether it happened, and at which call."""

    _fields_ = (
        ("count", ctypes.c_int64),
        ("at", ctypes.c_int64),
        ("kind", ctypes.c_int64),
        ("hit", ctypes.c_int64),
        ("full", ctypes.c_int64),
        ("offset", ctypes.c_int64),
        ("log", ctypes.c_int64),
        ("call", ctypes.c_char * _PATH),
        ("root", ctypes.c_char * _PATH),
    )


def missing() -> str:
    """Why system calls cannot be disturbed on this machine; empty if they can."""
    if platform.system() != "Linux" or platform.machine() not in ("x86_64", "aarch64"):
        return "system calls are disturbed on Linux on x86-64 and aarch64 only"
    return "" if shutil.which("cc") else "no C compiler `cc` on this machine; install gcc"


def compiled() -> Path:
    """The shared library, compiled once per version of its source and of the compiler's machine."""
    key = hashlib.sha256(SOURCE.read_bytes() + str(sysconfig.get_platform()).encode()).hexdigest()[:16]
    folder = Path(tempfile.gettempdir()) / f"pathfinder-shim-{key}"
    library = folder / "faults.so"
    if not library.exists():
        folder.mkdir(mode=0o700, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=folder) as made:
            command = ["cc", "-O1", "-shared", "-fPIC", "-Wall", "-Werror", "-o", made.name, str(SOURCE)]
            subprocess.run(command, check=True)
            shutil.copy(made.name, library.with_suffix(".new"))
        library.with_suffix(".new").replace(library)
    return library
