"""Runs of tasks in forked processes, with one disturbed system call each."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from tests.campaigns.faults.shim.library import KINDS, compiled

ROOT = Path(__file__).resolve().parents[4]
LIMIT_S = 60


@dataclass(frozen=True, slots=True)
class Fault:
    """Disturb call number ``at``, from 1, in the way of ``kind``."""

    at: int
    kind: str


@dataclass(frozen=True, slots=True)
class Run:
    """How a run ended: exit status (negative: the signal), output, calls counted, and the call that was disturbed."""

    status: int
    output: str
    count: int
    hit: bool
    call: str
    calls: tuple[str, ...] = ()


class Forks:
    """A server that has imported ``modules`` and forks a process per run."""

    def __init__(self, modules: Sequence[str], variables: dict[str, str] | None = None) -> None:
        self._modules, self._variables = modules, variables or {}

    def __enter__(self) -> Self:
        self._scratch = tempfile.TemporaryDirectory(prefix="forks-")
        self._state = Path(self._scratch.name) / "state"
        variables = {"LD_PRELOAD": str(compiled()), "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
        self._server = subprocess.Popen(
            [sys.executable, "-m", "tests.campaigns.faults.shim.server", *self._modules],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **variables, **self._variables},
        )
        self._receive()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.kill()
        self._server.communicate()
        self._scratch.cleanup()

    def run(
        self,
        task: str,
        folder: Path,
        argv: Sequence[str] = (),
        fault: Fault | None = None,
        armed: bool = True,
        listed: bool = False,
    ) -> Run:
        """Run ``task`` (``module:function``, called with ``argv``) in ``folder``.

        Calls on files below ``folder`` are counted if ``armed``, and named if ``listed``.
        """
        log = self._state.with_name("state.log")
        log.unlink(missing_ok=True)
        request: dict[str, Any] = {
            "task": task,
            "argv": list(argv),
            "folder": str(folder.resolve()),
            "state": str(self._state),
            "at": fault.at if fault else 0,
            "kind": KINDS.index(fault.kind) if fault else 0,
            "armed": armed,
            "log": int(listed),
            "limit_s": LIMIT_S,
        }
        assert self._server.stdin is not None
        self._server.stdin.write(json.dumps(request) + "\n")
        self._server.stdin.flush()
        answer = json.loads(self._receive())
        calls = tuple(log.read_text(encoding="utf-8").splitlines()) if listed else ()
        return Run(**answer, calls=calls)

    def _receive(self) -> str:
        assert self._server.stdout is not None
        line = self._server.stdout.readline()
        if not line:
            raise RuntimeError(f"the server of forked runs ended with status {self._server.wait()}")
        return line
