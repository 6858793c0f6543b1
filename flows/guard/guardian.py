"""Ends what a run leaves behind if the run is killed.

A killed process cannot clean up. The guardian is a process of its own whose standard input is a pipe that only the run
holds: when the run has ended in whatever way, the pipe closes, and the guardian ends every process that carries the
run's mark. After an orderly end there is none.

Run     python -m flows.guard.guardian MARK
"""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

from flows import processes


def start() -> subprocess.Popen[bytes]:
    """Start a guardian of this process in its own session; close its standard input and wait for it at the end."""
    return subprocess.Popen(
        [sys.executable, "-m", "flows.guard.guardian", processes.owner_prefix()],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd=Path(__file__).parents[2],  # where `flows` can be imported
        start_new_session=True,
    )


def main(mark: str) -> None:
    """Wait for the end of the run, then end what it left."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    sys.stdin.buffer.read()
    processes.end_owned(mark)


if __name__ == "__main__":
    main(sys.argv[1])
