"""While a stage runs, its unfinished work is sent to the remote; before that, what another machine had sent is fetched.

Only under a remote that ``PATHFINDER_REMOTE`` names: the default one is in the same folder as the work.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from flows.storage import DEFAULT, REMOTE
from flows.unfinished.copies import Copies
from pathfinder.core.io import PathfinderError

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
OnLine = Callable[[str], None]


@contextlib.contextmanager
def carried(root: Path, stage: str, on_line: OnLine | None = None, is_part: bool = False) -> Iterator[None]:
    """Fetch the unfinished work of a stage, and send it every minute and at the end, also if the stage fails.

    With ``is_part``, one part of the stage is computed, which needs no other part.

    A copy that cannot be sent is reported, and the stage continues. Raises ``TransientError`` if the remote does not
    answer before the stage. A copy that is not sound is reported and not used.
    """
    kind, address = KINDS.get(stage.partition("@")[0]), os.environ.get(REMOTE, "").strip()
    if kind is None or not address or Path(address) == DEFAULT:
        yield
        return
    carrier = _Carrier(root, stage, kind, address, on_line or _ignore)
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
        self._begun = time.time()
        self._told: set[str] = set()

    def fetch(self) -> None:
        try:
            for path in self._copies.fetch(self._kind, self._stage):
                self._on_line(f"resumes with {path} from the remote")
        except ValueError as error:  # a DataError
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
            folders = [path for path in self._home.glob("*") if path.is_dir() and self._is_used(path)]
            for folder in folders:
                self._copies.send(folder, self._stage)
            for name in self._copies.finished():
                self._copies.drop(name)
        except (PathfinderError, OSError) as error:
            if str(error) not in self._told:
                self._told.add(str(error))
                self._on_line(f"unfinished work could not be sent to the remote: {error}")

    def _is_used(self, folder: Path) -> bool:
        """Whether this run of the stage, or one beside it, has changed the folder."""
        times = [path.stat().st_mtime for path in folder.rglob("*") if path.exists()]
        return max(times, default=0.0) >= self._begun


def _ignore(line: str) -> None:
    pass
