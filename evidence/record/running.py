"""The lock of a running stage: started a second time in the same folder, by DVC or by hand, it says who runs it.

The kernel releases the lock when its process ends in whatever way.
"""

from __future__ import annotations

import fcntl
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager

from evidence.settings import STATE
from ground.io import TransientError

RUNNING = STATE / "running"
"""The locks, one file per command. A file stays: its holder may have just opened it."""


@contextmanager
def only_one(cmd: str) -> Iterator[None]:
    """Hold the lock of a stage's command in the current folder; raises ``TransientError`` if another process has it.

    On a file system without locks the block runs without one.
    """
    path = RUNNING / f"{re.sub(r'[^A-Za-z0-9@._-]+', '-', cmd)}.lock"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+", encoding="utf-8") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            handle.seek(0)
            holder = handle.read().strip() or "it has just started"
            raise TransientError(f"`{cmd}` already runs in this folder ({holder}); wait for it or end it") from None
        except OSError:
            pass  # no locks
        handle.truncate(0)
        handle.write(f"PID {os.getpid()}, since {time.strftime('%Y-%m-%d %H:%M:%S')}")
        handle.flush()
        try:
            yield
        finally:
            handle.truncate(0)
