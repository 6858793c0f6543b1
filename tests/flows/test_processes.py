"""Child processes in their own groups: environment, end with all children, start times."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from flows.local import processes
from tests.flows.watch import alive, wait_for

STUBBORN = """\
import os, pathlib, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
pathlib.Path("pids.txt").write_text(f"{os.getpid()} {child.pid}\\n")
time.sleep(600)
"""


def start(folder: Path, code: str, environment: dict[str, str] | None = None) -> subprocess.Popen[str]:
    (folder / "child.py").write_text(code)
    return processes.start("child", [], folder, environment or {}, subprocess.PIPE)


def test_a_child_gets_this_interpreter_first_on_its_path_and_leads_a_group(tmp_path: Path) -> None:
    code = "import os; print(os.environ['PATH'].split(':')[0], os.environ['SOME'], os.getpgid(0) == os.getpid())"
    output, _ = start(tmp_path, code, {"SOME": "value"}).communicate(timeout=60)
    assert output.split() == [str(Path(sys.executable).parent), "value", "True"]


def test_a_group_that_ignores_sigterm_is_killed_with_its_children(tmp_path: Path) -> None:
    process = start(tmp_path, STUBBORN)
    pids = [int(pid) for pid in wait_for(tmp_path / "pids.txt").split()]
    assert all(alive(pid) for pid in pids)
    begun = time.monotonic()
    processes.end([process.pid], grace_s=1.0)
    assert time.monotonic() - begun >= 1.0, "SIGTERM gets its grace first"
    assert not any(alive(pid) for pid in pids)
    process.wait(10)
    processes.end([process.pid])  # a group that has ended is ignored


def test_start_times_identify_processes(tmp_path: Path) -> None:
    process = start(tmp_path, "")
    process.communicate(timeout=60)
    assert processes.start_time(process.pid) == 0
    assert processes.start_time(os.getpid()) == processes.start_time(os.getpid()) > 0
