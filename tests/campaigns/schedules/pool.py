"""The machines of the schedules as workers of one work pool of Prefect."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from tests.flows.watch import soon
from tests.support.pools import start_worker

POOL = "cpu"
_START_S, _END_S = 300.0, 60.0


@dataclass
class Pool:
    """The workers that run, by machine. Each has a clone, a key and other variables of its own, and does one stage."""

    home: Path
    environment: Mapping[str, str]
    _running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def start(self, machines: Iterable[str]) -> None:
        """Start the workers of ``machines`` that do not run, and wait until they are ready."""
        missing = [name for name in machines if name not in self._running]
        for name in missing:
            own = json.loads((self.home / f"{name}.json").read_text())
            words = ("--name", name, "--limit", "1")
            self._running[name] = start_worker(POOL, self.home / name, {**self.environment, **own}, *words)
        for name in missing:
            log = self.home / name / "log.txt"
            assert soon(partial(_has_started, log), _START_S), log.read_text()

    def at_work(self) -> dict[str, int]:
        """The process that each worker has started, if there is one."""
        found = dict[str, int]()
        for name, worker in self._running.items():
            lists = [path.read_text() for path in Path(f"/proc/{worker.pid}/task").glob("*/children")]
            found.update((name, int(pid)) for pid in " ".join(lists).split())
        return found

    def lose(self, machine: str) -> None:
        """Kill a worker and everything else on its machine, as a loss of power does."""
        self._running.pop(machine).kill()
        mark = f"/{machine}.pem\0".encode()
        for path in Path("/proc").glob("[0-9]*/environ"):
            with suppress(OSError):
                if mark in path.read_bytes():
                    os.kill(int(path.parent.name), signal.SIGKILL)

    def end(self, machines: Iterable[str]) -> None:
        """End workers with SIGTERM, which ends what they do."""
        ended = [self._running.pop(name) for name in machines if name in self._running]
        for process in ended:
            process.terminate()
        for process in ended:
            process.wait(_END_S)

    def close(self) -> None:
        """Kill all workers."""
        for machine in [*self._running]:
            self.lose(machine)


def _has_started(log: Path) -> bool:
    return "started!" in log.read_text()
