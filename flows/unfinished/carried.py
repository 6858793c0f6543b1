"""While a stage runs, its unfinished work is sent to the remote; before that, what another machine had sent is fetched.

This needs a remote that ``PATHFINDER_REMOTE`` names: the default one is in the same folder as the work.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from flows.dvc import OnLine
from flows.storage import DEFAULT, REMOTE
from flows.unfinished.copies import Copies
from ground.io import DataError, PathfinderError

KINDS = {
    "label": "label",
    "critic": "critics",
    "train": "train",
    "prepare": "parts/prepare",
    "build": "parts/build",
}
"""The folder below .pathfinder with the unfinished work of each stage; `train@full` counts as `train`."""
EVERY_S = 60.0
_SHARE = 10.0  # a copy takes at most a tenth of the time


@contextlib.contextmanager
def carried(root: Path, stage: str, on_line: OnLine, is_part: bool = False) -> Iterator[None]:
    """Fetch the unfinished work of a stage, and send it every minute and at the end, also if the stage fails.

    With ``is_part``, the command computes one part of the stage, so the other parts are not fetched.

    A copy that cannot be sent, or that is not sound, is reported, and the stage continues without it. Raises
    ``TransientError`` if the remote does not answer before the stage starts.
    """
    kind, address = KINDS.get(stage.partition("@")[0]), os.environ.get(REMOTE, "").strip()
    if kind is None or not address or Path(address) == DEFAULT:
        yield
        return
    carrier = _Carrier(root, stage, kind, address, on_line)
    if not (is_part and kind.startswith("parts/")):
        carrier.fetch()
    thread = threading.Thread(target=carrier.send_until_end, daemon=True)
    thread.start()
    try:
        yield
    finally:
        carrier.ended.set()
        thread.join()


class _Carrier:
    def __init__(self, root: Path, stage: str, kind: str, address: str, on_line: OnLine) -> None:
        self.ended = threading.Event()
        self._copies = Copies.at(root, address)
        self._home, self._kind, self._stage, self._on_line = root / ".pathfinder" / kind, kind, stage, on_line
        self._before = _versions(self._home)
        self._told: set[str] = set()

    def fetch(self) -> None:
        try:
            for path in self._copies.fetch(self._kind, self._stage):
                self._on_line(f"resumes with {path} from the remote")
        except DataError as error:
            self._on_line(f"unfinished work on the remote is not used: {error}")

    def send_until_end(self) -> None:
        wait_s = EVERY_S
        while not self.ended.wait(wait_s):
            begun = time.monotonic()
            self._send()
            wait_s = max(EVERY_S, _SHARE * (time.monotonic() - begun))
        self._send()

    def _send(self) -> None:
        try:
            for folder in self._changed():
                self._copies.send(folder, self._stage)
            for name in self._copies.finished():
                self._copies.drop(name)
        except (PathfinderError, OSError) as error:
            if str(error) not in self._told:
                self._told.add(str(error))
                self._on_line(f"unfinished work could not be sent to the remote: {error}")

    def _changed(self) -> list[Path]:
        """The folders with a file that has changed since this run of the stage started; those of older runs stay."""
        new = _versions(self._home) - self._before
        return sorted({self._home / path.relative_to(self._home).parts[0] for path, _ in new})


def _versions(home: Path) -> set[tuple[Path, int]]:
    """The files below each folder in ``home`` with the times of their last change in nanoseconds."""
    found = set()
    for path in home.glob("*/**/*"):
        with contextlib.suppress(FileNotFoundError):  # a running stage replaces its files
            found.add((path, path.stat().st_mtime_ns))
    return found
