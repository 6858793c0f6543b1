"""DVC in forks of a warm process: the same lock as DVC writes, exit statuses, and what remains of a killed process."""

from __future__ import annotations

import copy
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from flows.local.dvc import Dvc, DvcError
from flows.local.forks import modify_lock
from flows.local.processes import Warm
from tests.flows.conftest import Project
from tests.flows.watch import alive, gone, soon, wait_for, working_in

ROOT = Path(__file__).resolve().parents[2]
LONG = {f"LONG{number}": "x" * 2**16 for number in range(2)}  # the system takes this much for a new process


def _replace(lock: dict[str, Any]) -> None:
    """A stage in the middle, with text that YAML must quote."""
    entry = copy.deepcopy(lock["stages"].get("train@full"))
    entry["params"]["params.yaml"]["train"] |= {"dtype": "no", "launch": "a: b\n# c ü\t'\"", "schedule": "1e-3"}
    lock["stages"].update({"train@full": {**entry, "cmd": "x" * 200}})


def _add(lock: dict[str, Any]) -> None:
    lock["stages"].update({"new@a.b": {"cmd": "python -m new", "outs": [{"path": "out", "hash": "md5", "size": 0}]}})


def _same(lock: dict[str, Any]) -> None:
    lock["stages"].update({"label": copy.deepcopy(lock["stages"].get("label"))})


def compare(folder: Path) -> None:
    """Change a lock through DVC's writer and through ours, and compare what they write."""
    from dvc.utils.serialize import modify_yaml  # type: ignore[import-untyped]

    more = re.compile(r"^  \w+@(?:no|plain|full-s3).*\n(?:    .*\n)*", re.MULTILINE)
    some = more.sub("", (ROOT / "dvc.lock").read_text())
    assert "  train@full:\n" in some
    assert "  train@full-s2:\n" in some
    for change in (_replace, _add, _same):
        written = []
        for modify in (modify_yaml, modify_lock):
            path = folder / modify.__name__ / "dvc.lock"
            path.parent.mkdir(exist_ok=True)
            path.write_text(some)
            with modify(str(path)) as lock:
                change(lock)
            written.append(path.read_bytes())
        assert written[0] == written[1], change
        assert (written[0].decode() == some) is (change is _same), change


def test_the_lock_has_the_bytes_that_dvc_writes(tmp_path: Path) -> None:
    """In a process of its own: Great Expectations changes how DVC's library for YAML writes null."""
    code = f"from pathlib import Path\nfrom tests.flows.test_warm import compare\ncompare(Path({str(tmp_path)!r}))"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)


def test_a_command_for_one_stage_parses_no_other(project: Project) -> None:
    dvc = Dvc(project.root, warm=True)
    assert [dvc.reproduce(name) for name in ("numbers", "square@odd")] == ["ran", "ran"]
    lock = project.root / "dvc.lock"
    lock.write_text(lock.read_text().replace("  square@odd:\n", "  square@odd:\n    {\n"))
    assert dvc.reproduce("numbers") == "up to date"
    with pytest.raises(DvcError, match=r"dvc\.lock"):
        dvc.status()
    with pytest.raises(DvcError, match=r"dvc\.lock"):
        dvc.reproduce("square@odd")
    dvc.stop()


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
    dvc = Dvc(project.root, warm=True)
    project.trap("numbers", "os.kill(os.getppid(), 9)")
    with pytest.raises(DvcError):
        dvc.reproduce("numbers")
    project.trap("numbers", "")
    assert dvc.reproduce("numbers") == "ran"
    dvc.stop()
    assert soon(lambda: not working_in(project.root))


def test_without_the_warm_process_a_command_has_its_own(project: Project) -> None:
    dvc = Dvc(project.root, warm=True)
    assert dvc.reproduce("numbers") == "ran"
    assert dvc._warm is not None
    assert dvc._warm._process.poll() is None
    dvc._warm._process.kill()
    dvc._warm._process.wait()
    assert dvc.reproduce("square@odd") == "ran"


def test_a_closed_warm_process_has_ended(project: Project) -> None:
    dvc = Dvc(project.root, warm=True)
    assert dvc._warm is not None
    pid = dvc._warm._process.pid
    assert alive(pid)
    dvc.close()
    assert not alive(pid)
    assert dvc.reproduce("numbers") == "ran"


def test_an_environment_that_is_too_large_for_a_request(project: Project) -> None:
    warm = Warm(project.root, {})
    with pytest.raises(OSError, match="too large"):
        warm.start(["status"], project.root, LONG)
    warm.stop()
    assert Dvc(project.root, LONG, warm=True).reproduce("numbers") == "ran"


def test_it_ends_with_the_process_that_started_it(project: Project) -> None:
    code = (
        "import pathlib, time\nfrom flows.local.dvc import Dvc\ndvc = Dvc(pathlib.Path.cwd(), warm=True)\n"
        "dvc.reproduce('numbers')\n"
        "pathlib.Path('pid.txt').write_text(f'{dvc._warm._process.pid}\\n')\ntime.sleep(600)\n"
    )
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    process = subprocess.Popen([sys.executable, "-c", code], cwd=project.root, env=environment)
    pid = int(wait_for(project.root / "pid.txt"))
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert gone(pid)


STAGE = """\
import json, os, pathlib, sys
facts = {
    "argv": sys.argv, "name": __name__, "comm": pathlib.Path("/proc/self/comm").read_text().strip(),
    "own": sorted(name for name in sys.modules if name.partition(".")[0] in ("evidence", "flows", "ground")),
    "main": sys.modules["__main__"].__file__, "torch": "torch" in sys.modules, "stage": os.environ["DVC_STAGE"],
    "kernels": os.environ.get("ATEN_CPU_CAPABILITY"), "leader": os.getpid() == os.getpgid(0),
}
if sys.argv[1] == "text":
    sys.exit("error: what was wrong")
if sys.argv[1] == "busy":
    sys.exit(75)
if sys.argv[1] == "killed":
    os.kill(os.getpid(), 9)
pathlib.Path(sys.argv[1]).write_text(json.dumps(facts))
"""


def _stages(project: Project, **commands: str) -> None:
    """Give the project stages with a module of its own, which is no part of this repository."""
    (project.root / "stages").mkdir()
    (project.root / "stages/__init__.py").touch()
    for name, cmd in commands.items():
        (project.root / f"stages/{name}.py").write_text(STAGE)
        with (project.root / "dvc.yaml").open("a") as file:
            file.write(f"  {name}:\n    cmd: {cmd}\n    outs: [{cmd.split()[-1]}]\n")


def test_a_stage_is_a_fork_that_looks_like_a_process_of_its_own(project: Project) -> None:
    _stages(project, sample="python -m stages.sample one.json", other="python -m stages.other two.json")
    dvc = Dvc(project.root, warm=True)
    assert [dvc.reproduce(name) for name in ("sample", "other")] == ["ran", "ran"]
    fork, process = (json.loads((project.root / name).read_text()) for name in ("one.json", "two.json"))
    assert (fork["comm"], fork["torch"], process["torch"]) == ("stages.sample", True, False)
    assert process["comm"].startswith("python")
    assert fork["argv"] == [fork["main"], "one.json"]
    for facts, name in ((fork, "sample"), (process, "other")):
        assert (facts["name"], facts["own"], facts["stage"], facts["leader"]) == ("__main__", [], name, False)
        assert facts["main"] == str(project.root / f"stages/{name}.py")
    dvc.stop()


@pytest.mark.parametrize(("word", "told"), [("text", "what was wrong"), ("busy", "75"), ("killed", "(-9|137)$")])
def test_a_fork_that_fails_fails_as_a_process_does(word: str, told: str, project: Project, warm_starts: None) -> None:
    _stages(project, sample=f"python -m stages.sample {word}", other=f"python -m stages.other {word}")
    dvc = Dvc(project.root, warm=True)
    messages = []
    for name in ("sample", "other"):
        with pytest.raises(DvcError, match=told) as caught:
            dvc.reproduce(name)
        messages.append(re.sub("137$", "-9", str(caught.value).replace(name, "stage")))  # dash says 137, bash says -9
        assert caught.value.transient is (word == "busy")
    assert messages[0] == messages[1]
    dvc.stop()


def test_a_fork_does_not_parse_the_code_again_that_its_parent_has_parsed(project: Project, warm_starts: None) -> None:
    _stages(project, sample="python -m stages.sample one.json")
    (project.root / "evidence/record").mkdir(parents=True)
    for name in ("evidence/__init__.py", "evidence/record/__init__.py"):
        (project.root / name).touch()
    (project.root / "evidence/record/identity.py").write_text("PARSED = {}\n")
    told = "import json, sys, pathlib\nfrom evidence.record.identity import PARSED\n"
    (project.root / "stages/sample.py").write_text(
        told + "pathlib.Path(sys.argv[1]).write_text(json.dumps([source.decode() for source in PARSED]))\n"
    )
    dvc = Dvc(project.root, warm=True)
    assert dvc.reproduce("sample") == "ran"
    assert any(source.startswith(told) for source in json.loads((project.root / "one.json").read_text()))
    dvc.stop()


def test_a_stage_of_other_code_is_a_process_of_its_own(project: Project, warm_starts: None) -> None:
    _stages(project, sample="python -m stages.sample one.json")
    dvc = Dvc(project.root, warm=True, has_other_code=True)
    assert dvc.reproduce("sample") == "ran"
    facts = json.loads((project.root / "one.json").read_text())
    assert (facts["comm"].startswith("python"), facts["torch"]) == (True, False)
    dvc.stop()


def test_a_stage_with_other_variables_is_a_process_of_its_own(project: Project, warm_starts: None) -> None:
    _stages(project, sample="python -m stages.sample one.json")
    dvc = Dvc(project.root, warm=True)
    dvc._environment["OMP_NUM_THREADS"] = "3"  # libraries have read it
    assert dvc.reproduce("sample") == "ran"
    assert json.loads((project.root / "one.json").read_text())["comm"].startswith("python")
    dvc.stop()
