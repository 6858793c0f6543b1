"""DVC in forks of a warm process: the same lock as DVC writes, exit statuses, and what remains of a killed process."""

from __future__ import annotations

import copy
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from flows.dvc import Dvc, DvcError
from flows.forks import modify_lock
from flows.warm import Warm
from tests.flows.conftest import Project
from tests.flows.watch import gone, soon, wait_for, working_in

ROOT = Path(__file__).resolve().parents[2]
LONG = {f"LONG{number}": "x" * 2**16 for number in range(2)}  # the system takes this much for a new process
Change = Callable[[dict[str, Any]], None]


def _replace(lock: dict[str, Any]) -> None:
    """A stage in the middle, with text that YAML must quote."""
    entry = copy.deepcopy(lock["stages"]["train@full"])
    entry["params"]["params.yaml"]["train"] |= {"dtype": "no", "launch": "a: b\n# c ü\t'\"", "schedule": "1e-3"}
    lock["stages"].update({"train@full": {**entry, "cmd": "x" * 200}})


def _add(lock: dict[str, Any]) -> None:
    lock["stages"].update({"new@a.b": {"cmd": "python -m new", "outs": [{"path": "out", "hash": "md5", "size": 0}]}})


def _same(lock: dict[str, Any]) -> None:
    lock["stages"].update({"label": copy.deepcopy(lock["stages"]["label"])})


@pytest.mark.parametrize("change", [_replace, _add, _same])
def test_the_lock_has_the_bytes_that_dvc_writes(change: Change, tmp_path: Path) -> None:
    from dvc.utils.serialize import modify_yaml  # type: ignore[import-untyped]

    written = []
    for modify in (modify_yaml, modify_lock):
        path = tmp_path / modify.__name__ / "dvc.lock"
        path.parent.mkdir()
        path.write_bytes((ROOT / "dvc.lock").read_bytes())
        with modify(str(path)) as lock:
            change(lock)
        written.append(path.read_bytes())
    assert written[0] == written[1]
    assert (written[0] == (ROOT / "dvc.lock").read_bytes()) is (change is _same)


@pytest.mark.parametrize("text", [None, "schema: '2.0'\n"])
def test_dvc_writes_a_first_lock_and_other_files_itself(text: str | None, tmp_path: Path) -> None:
    for name in ("dvc.lock", "dvc.yaml"):
        path = tmp_path / name
        if text:
            path.write_text(text)
        with modify_lock(str(path)) as content:
            content["stages"] = {"one": {"cmd": "true"}}
        assert path.read_text() == (text or "") + "stages:\n  one:\n    cmd: 'true'\n"


def test_a_killed_command_fails_and_the_next_one_runs(project: Project) -> None:
    dvc = Dvc(project.root)
    project.trap("numbers", "os.kill(os.getppid(), 9)")
    with pytest.raises(DvcError):
        dvc.reproduce("numbers")
    project.trap("numbers", "")
    assert dvc.reproduce("numbers") == "ran"
    dvc.stop()
    assert soon(lambda: not working_in(project.root))


def test_without_the_warm_process_a_command_has_its_own(project: Project) -> None:
    dvc = Dvc(project.root)
    assert dvc.reproduce("numbers") == "ran"
    assert dvc._warm is not None
    dvc._warm._process.kill()
    dvc._warm._process.wait()
    assert dvc.reproduce("square@odd") == "ran"


def test_an_environment_that_is_too_large_for_a_request(project: Project) -> None:
    warm = Warm(project.root, {})
    with pytest.raises(OSError, match="too large"):
        warm.start(["status"], project.root, LONG)
    warm.stop()
    assert Dvc(project.root, LONG).reproduce("numbers") == "ran"


def test_it_ends_with_the_process_that_started_it(project: Project) -> None:
    code = (
        "import pathlib, time\nfrom flows.dvc import Dvc\ndvc = Dvc(pathlib.Path.cwd())\ndvc.reproduce('numbers')\n"
        "pathlib.Path('pid.txt').write_text(f'{dvc._warm._process.pid}\\n')\ntime.sleep(600)\n"
    )
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    process = subprocess.Popen([sys.executable, "-c", code], cwd=project.root, env=environment)
    pid = int(wait_for(project.root / "pid.txt"))
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert gone(pid)
