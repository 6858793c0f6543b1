"""The lock of a running stage: eight at once, a killed holder, other commands and other folders."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from evidence.record.record import RUNNING, only_one
from ground.io import TransientError
from tests.flows.watch import wait_for

CMD = "python -m stages.train full"
HOLD = f"""\
import time
from pathlib import Path
from ground.text import errors_without_traceback
from evidence.record.record import only_one
with errors_without_traceback(), only_one({CMD!r}):
    Path("held.txt").write_text("held\\n")
    time.sleep(60)
"""


def start(root: Path, folder: Path) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": str(root)}
    return subprocess.Popen(
        [sys.executable, "-c", HOLD], cwd=folder, env=environment, stderr=subprocess.PIPE, text=True
    )


def test_one_of_eight_proceeds_and_the_others_name_it(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    processes = [start(root, tmp_path) for _ in range(8)]
    wait_for(tmp_path / "held.txt")
    deadline = time.monotonic() + 60
    while len(losers := [process for process in processes if process.poll() is not None]) < 7:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    (winner,) = (process for process in processes if process not in losers)
    lines = [process.communicate()[1] for process in losers]
    wanted = rf"error: `{CMD}` already runs in this folder \((PID {winner.pid}, since [^)]*|it has just started)\); "
    assert all(re.fullmatch(f"{wanted}wait for it or end it\n", line) for line in lines), lines
    assert {process.returncode for process in losers} == {TransientError.exit_status}
    winner.send_signal(signal.SIGKILL)
    winner.wait()
    winner.communicate()
    monkeypatch.chdir(tmp_path)
    with only_one(CMD):
        pass  # the kernel has released the lock of the dead process


def test_other_commands_and_folders_have_locks_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with only_one(CMD):
        with only_one("make a b"), only_one("make a-b"), only_one(f"make {'a' * 300}"):
            pass
        with pytest.raises(TransientError, match=f"PID {os.getpid()}, since "), only_one(CMD):
            pass
        (tmp_path / "other").mkdir()
        monkeypatch.chdir(tmp_path / "other")
        with only_one(CMD):
            pass
        monkeypatch.chdir(tmp_path)
    with only_one(CMD):
        pass
    assert {path.read_text() for path in RUNNING.iterdir()} == {""}
