"""Rehearse profiles side by side: lanes, each a process with a clone and substitutes of its own.

One lane leaves a core idle while its stages wait for servers. A lane takes the next profile that no other has taken.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from tests.campaigns.rehearsal.material import ROOT
from tests.campaigns.rehearsal.show import RehearsalError, show


@contextmanager
def folder() -> Iterator[Path]:
    """An empty folder for the lanes: PATHFINDER_REHEARSAL_FOLDER, which is kept, or a temporary one."""
    kept = os.environ.get("PATHFINDER_REHEARSAL_FOLDER")
    base = Path(kept or tempfile.mkdtemp(prefix="rehearsal-"))
    shutil.rmtree(base, ignore_errors=True)
    base.mkdir(parents=True)
    try:
        yield base
    finally:
        if kept is None:
            shutil.rmtree(base, ignore_errors=True)


def side_by_side(lanes: int, base: Path, words: Sequence[str]) -> None:
    """Run ``python -m tests.campaigns.rehearsal --lane … WORDS`` in ``lanes`` processes; raises ``RehearsalError``."""
    running = []
    for number in range(1, lanes + 1):
        command = [sys.executable, "-m", "tests.campaigns.rehearsal", "--lane", str(base / str(number)), *words]
        running.append(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=ROOT))
    readers = [
        threading.Thread(target=_repeat, args=(process.stdout, f"{number}|"))
        for number, process in enumerate(running, start=1)
    ]
    for reader in readers:
        reader.start()
    try:
        failed = [number for number, process in enumerate(running, start=1) if process.wait()]
    finally:
        for process in running:
            if process.poll() is None:
                process.terminate()  # it ends its servers and removes its files
                process.wait()
        for reader in readers:
            reader.join()
    if failed:
        raise RehearsalError(f"lane {' and '.join(map(str, failed))} (the reasons are above)")


def _repeat(lines: IO[str] | None, mark: str) -> None:
    for line in lines or ():
        show(f"{mark} {line.rstrip()}")
