"""A store in memory with conditional writes: its requests take time and are counted, and it can stop."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from flows.local.storage import SIGN_S
from ground.io import DataError, TransientError
from ground.remote import Listed
from tests.campaigns.fleet.clock import Clock

ATTEMPTS, REFUSED_S = 3, 1.0
"""Attempts of a request, and seconds of one without an answer (ground/remote.py); the pause after a refusal (botocore:
a random share of 1, 2, … s)."""


@dataclass
class Store:
    """Objects by folder and name, with the time of their last write, which S3 gives in whole seconds.

    ``outages`` are the times in which it refuses requests or, if ``silent``, loses them without an answer.
    """

    clock: Clock
    latency_s: float
    outages: list[tuple[float, float]] = field(default_factory=list)
    silent: bool = False
    read_s: float = SIGN_S
    url: str = "memory://team/leases"
    counts: Counter[tuple[str, str, int]] = field(default_factory=Counter)
    _folders: dict[str, dict[str, tuple[bytes, float]]] = field(default_factory=dict)

    def ask(self, kind: str, number: int = 1) -> None:
        """One or more requests of a kind, which reach the store; raises ``TransientError`` if it does not answer."""
        for _ in range(number):
            for _ in range(ATTEMPTS):
                self.counts[self.clock.kind, kind, int(self.clock.now)] += 1
                is_down = any(start <= self.clock.now < end for start, end in self.outages)
                if not is_down:
                    self.clock.sleep(self.latency_s)
                    break
                self.clock.sleep(self.read_s if self.silent else REFUSED_S)
            else:
                raise TransientError("no answer from the store")

    def put(self, key: str, content: bytes) -> None:
        """Write an object."""
        self.ask("PUT")
        self._write(key, content)

    def create(self, key: str, content: bytes) -> bool:
        """Write an object unless it exists."""
        self.ask("PUT")
        folder, _, name = key.rpartition("/")
        if name in self._folders.get(folder, ()):
            return False
        self._write(key, content)
        return True

    def read(self, key: str) -> bytes:
        """The bytes of an object."""
        self.ask("GET")
        folder, _, name = key.rpartition("/")
        try:
            return self._folders[folder][name][0]
        except KeyError as error:
            raise DataError(f"{self.url}/{key}: no such object") from error

    def keys(self, prefix: str = "") -> list[str]:
        """The keys of a folder."""
        return [item.key for item in self.listed(prefix)]

    def listed(self, prefix: str = "") -> list[Listed]:
        """The objects of a folder."""
        self.ask("LIST")
        found = self._folders.get(prefix.rstrip("/"), {})
        return [Listed(f"{prefix}{name}", len(found[name][0]), "", "", found[name][1]) for name in sorted(found)]

    def _write(self, key: str, content: bytes) -> None:
        folder, _, name = key.rpartition("/")
        self._folders.setdefault(folder, {})[name] = (content, float(int(self.clock.now)))
