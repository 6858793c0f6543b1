"""DVC as a subprocess: outcomes, error classes, and that ending it leaves no process."""

from __future__ import annotations

import os
import py_compile
import shlex
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from flows.local.dvc import Cancelled, Dvc, DvcError
from ground.io import PathfinderError
from tests.flows.conftest import Project
from tests.flows.watch import alive, wait_for


@pytest.mark.usefixtures("warm_starts")
def test_outcomes_and_lines(project: Project) -> None:
    dvc = Dvc(project.root)
    lines: list[str] = []
    assert set(dvc.status()) == {"numbers", "square@even", "square@odd", "total"}
    assert dvc.reproduce("numbers", on_line=lines.append) == "ran"
    assert "this is numbers" in lines
    assert "to standard error from numbers \\x1b[31m[bold]" in lines  # escape sequences are written out
    assert not any("dvc push" in line for line in lines)
    assert dvc.reproduce("numbers") == "up to date"
    (project.root / "params.yaml").write_text("count: 4\n")
    assert dvc.reproduce("numbers") == "ran"
    (project.root / "params.yaml").write_text("count: 10\n")
    assert dvc.reproduce("numbers") == "restored"
    dvc.push("numbers")
    assert any((project.root / ".pathfinder/storage/files").rglob("*"))


@pytest.mark.parametrize(
    ("code", "transient"),
    [
        ("sys.exit(75)", True),
        ("class TransientError(Exception): pass\nprint('Connection refused')\nsys.exit(3)", False),
        ("raise ValueError('no good')", False),
        ("sys.exit('error: params.yaml: rate is 2; expected at most 1')", False),
        ("raise ConnectionError('Connection refused')", True),
    ],
)
def test_error_classes(project: Project, code: str, transient: bool) -> None:
    project.trap("numbers", code)
    with pytest.raises(DvcError) as caught:
        Dvc(project.root).reproduce("numbers")
    assert caught.value.transient is transient
    assert "numbers" in str(caught.value)
    assert isinstance(caught.value, PathfinderError)
    if "error: " in code:
        assert "error: params.yaml: rate is 2; expected at most 1 |" in str(caught.value)


def test_a_failure_without_a_line_of_error_has_the_first_line() -> None:
    printed = "\n'./dvc.lock' is invalid (possible merge conflicts).\nWhile scanning\n"
    told = "`status` failed: './dvc.lock' is invalid (possible merge conflicts)."
    assert str(DvcError(["status"], 1, printed)) == told
    assert str(DvcError(["status"], 1, "")) == "`status` failed: exit code 1"
    absent = "python: No module named dvc"
    assert str(DvcError(["status"], 1, absent)).endswith(
        "use `make env` or `pip install '.[pipeline]'`, then run again"
    )


def test_a_full_disk_has_a_remedy_once() -> None:
    printed = "ERROR: unexpected error - disk I/O error"  # what `dvc status` printed on one
    assert str(DvcError(["status"], 255, printed)).endswith(
        "; free space on the disk (`df -h`, `ulimit -f`), then run again"
    )
    printed = "ERROR: unexpected error - [Errno 30] Read-only file system: '/p/.dvc/tmp/lock'"
    assert str(DvcError(["status"], 255, printed)).endswith("; use a folder that can be written, then run again")
    told = "error: out.txt: No space left on device; free space on its disk (`df -h`), then run the command again"
    assert str(DvcError(["repro"], 1, told)) == f"`repro` failed: {told}"


def test_a_compiled_module_that_a_full_disk_cut_has_a_remedy(tmp_path: Path) -> None:
    module = tmp_path / "module.py"
    module.write_text("text = 'text' * 3\n")
    compiled = Path(str(py_compile.compile(str(module), doraise=True)))
    compiled.write_bytes(compiled.read_bytes()[:-20])  # as a short write leaves it
    command = [sys.executable, "-c", "import module"]

    def imported() -> subprocess.CompletedProcess[str]:
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)

    remedy = "find . -name '*.pyc' -delete"
    told = str(DvcError(["repro"], 1, imported().stderr))
    assert told.endswith(f"; delete the compiled modules that a full disk cut (`{remedy}`), then run again")
    subprocess.run(shlex.split(remedy), cwd=tmp_path, check=True)
    assert imported().returncode == 0


def test_stopping_ends_the_stage_and_its_children(project: Project) -> None:
    project.trap(
        "numbers",
        "import subprocess, signal\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "child = subprocess.Popen(['sleep', '600'])\n"
        "pathlib.Path('pids.txt').write_text(f'{os.getpid()} {child.pid}\\n')\n"
        "time.sleep(600)\n",
    )
    dvc = Dvc(project.root)
    caught: list[BaseException] = []

    def work() -> None:
        try:
            dvc.reproduce("numbers")
        except BaseException as error:
            caught.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    pids = [int(pid) for pid in wait_for(project.root / "pids.txt").split()]
    assert all(alive(pid) for pid in pids)
    dvc.stop()
    thread.join(60)
    assert not any(alive(pid) for pid in pids)
    assert [type(error) for error in caught] == [Cancelled]
    with pytest.raises(Cancelled):
        dvc.status()
    assert all(os.getpgid(0) != pid for pid in pids)
