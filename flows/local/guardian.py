"""Ends what a run leaves behind if the run is killed.

A killed process cannot clean up. The guardian is a separate process whose standard input is a pipe that only the run
holds: when the run ends in any way, the pipe closes, and the guardian ends every process that carries the run's mark.
After an orderly end there is none. Each line in the pipe is a JSON value with the run's flow run, or an empty one at an
orderly end. If the last line names a flow run, the guardian reports its end.

Run     python -m flows.local.guardian MARK
"""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from flows.local import hooks, processes


def start() -> subprocess.Popen[bytes]:
    """Start a guardian of this process in its own session; close its standard input and wait for it at the end."""
    return subprocess.Popen(
        [sys.executable, "-m", "flows.local.guardian", processes.owner_prefix()],
        stdin=subprocess.PIPE,
        bufsize=0,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd=Path(__file__).parents[2],  # where `flows` can be imported
        start_new_session=True,
    )


def write(guardian: subprocess.Popen[bytes], run: Mapping[str, Any]) -> None:
    """Send a guardian the arguments of ``report_killed`` (flows.local.hooks), or ``{}`` if it ended properly."""
    if guardian.stdin is not None:
        with contextlib.suppress(BrokenPipeError):  # someone killed the guardian
            guardian.stdin.write(f"{json.dumps(run)}\n".encode())


def main(mark: str) -> None:
    """Wait for the end of the run, then end its processes, and report its end if it did not."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    lines = sys.stdin.buffer.read().splitlines()
    processes.end_owned(mark)
    if run := json.loads(lines[-1]) if lines else {}:
        for report in hooks("report_killed"):
            report(**run)


if __name__ == "__main__":
    main(sys.argv[1])
