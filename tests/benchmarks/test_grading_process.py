"""The process that compares answers: it is killed when it hangs, replaced when it dies, and ends with its parent.

These tests depend on times, so a very busy machine can fail them.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

from pathfinder.benchmarks.grading import Grader

ENDLESS = ("\\int_0^1 \\sin(x^x \\cos(x^9)) e^{x^5} dx",), "\\sum_{n=1}^{99999999} \\sin(n!)/n^n"


def test_a_hanging_comparison_is_killed_and_counted() -> None:
    with Grader(time_limit_s=4) as grader:
        assert grader.is_right(("x^2 - 1",), "(x-1)(x+1)")
        assert not grader.is_right(*ENDLESS)
        assert grader.failures == {"timeout": 1}
        assert grader.is_right(("x^2 - 4",), "(x-2)(x+2)"), "a new worker must take over"


def test_a_worker_that_dies_is_counted_and_replaced() -> None:
    others = children(os.getpid())
    with Grader(time_limit_s=60) as grader:
        assert grader.is_right(("x^2 - 1",), "(x-1)(x+1)")
        (worker,) = set(children(os.getpid())) - set(others)
        threading.Timer(1, os.kill, (worker, signal.SIGKILL)).start()
        assert not grader.is_right(*ENDLESS)
        assert grader.failures == {"error": 1}
        assert grader.is_right(("x^2 - 4",), "(x-2)(x+2)"), "a new worker must take over"
    assert set(children(os.getpid())) <= set(others), "the worker ends with the grader"


KILLED = """
import os, signal, sys
sys.path[:0] = [os.getcwd()]
from pathfinder.benchmarks.grading import Grader

grader = Grader()
assert grader.is_right(("x^2 - 1",), "(x-1)(x+1)")
print("ready", flush=True)
signal.pause()
"""


def test_the_worker_ends_with_a_killed_parent_and_does_not_run_its_main_module(root: Path, tmp_path: Path) -> None:
    """Without a guard for ``__main__``, a worker that imports the script would start a grader of its own."""
    script = tmp_path / "script.py"
    script.write_text(KILLED)
    parent = subprocess.Popen([sys.executable, script], cwd=root, stdout=subprocess.PIPE)
    assert parent.stdout is not None
    assert parent.stdout.readline() == b"ready\n"
    workers = children(parent.pid)
    assert workers
    parent.kill()
    parent.communicate()
    deadline = time.monotonic() + 20
    while any(Path(f"/proc/{worker}").exists() for worker in workers) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert [worker for worker in workers if Path(f"/proc/{worker}").exists()] == []


def children(parent: int) -> list[int]:
    """Processes of the parent that run a worker, not multiprocessing's resource tracker."""
    tasks = Path(f"/proc/{parent}/task").glob("*/children")
    pids = [int(pid) for task in tasks for pid in task.read_text().split()]
    return [pid for pid in pids if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()]
