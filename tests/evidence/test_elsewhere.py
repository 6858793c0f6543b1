"""``--root``: an auditor's own checker reads a hostile folder, and nothing of that folder runs."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.evidence.small import MODEL, NOTE
from tests.evidence.test_git import git_by_itself, plant, run
from tests.support.miniature import ROOT

MODULES = ("sitecustomize", "usercustomize", "evidence", "ground", "json", "yaml", "pydantic", "conftest", "plugin")
WATCHED = """
import os, runpy, shutil, sys
folder, sys.argv[:] = sys.argv[1], sys.argv[2:]

def places(event, given):
    if event == "import":
        return filter(os.path.exists, sys.path)
    if event in ("exec", "compile"):
        file = getattr(given[0], "co_filename", given[-1])
        return [] if str(file).startswith("<") else [file]
    if event in ("subprocess.Popen", "os.exec", "os.posix_spawn", "os.system", "ctypes.dlopen", "os.spawn"):
        return [given[0] and shutil.which(os.fsdecode(given[0]))]
    return []

def watch(event, given):
    for place in places(event, given):
        if isinstance(place, (str, bytes)) and os.path.realpath(os.fsdecode(place)).startswith(folder):
            os.write(2, f"{event} {place}".encode())
            os._exit(99)

sys.addaudithook(watch)
runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
"""
"""Run the verb in ``sys.argv``, and end with status 99 if anything below a folder is imported, compiled or started."""


@pytest.fixture
def hostile(small: Path) -> Path:
    """A sound project that plants programs wherever Python, git or the shell could look for them."""
    shutil.copy(ROOT / "evidence.toml", small)
    run(small, "init", "-q", "-b", "main")
    (small / ".gitignore").write_text("/.pathfinder\n/artifacts\n/models\n.dvc/cache\n/storage\n")
    mark = f"open({str(small / '.git/it-ran')!r}, 'a').write(__name__)\n"
    for name in MODULES:
        (small / f"{name}.py").write_text(mark)
    (small / "planted.pth").write_text(f"import os; {mark}")
    (small / "plugin-1.dist-info").mkdir()
    (small / "plugin-1.dist-info/METADATA").write_text("Name: plugin\nVersion: 1\n")
    points = "".join(f"[{group}]\nplugin = plugin:app\n" for group in ("pathfinder.commands", "pydantic"))
    (small / "plugin-1.dist-info/entry_points.txt").write_text(points)
    run(small, "add", "-A")
    run(small, "commit", "-qm", "project")
    program = plant(small, "core.fsmonitor").with_name("program")
    shutil.copy(program, small / "git")
    return small


def checked(words: list[str], at: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *words], cwd=at, env=os.environ | variables, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("at", ["..", "."], ids=["above it", "in it"])
@pytest.mark.parametrize("command", ["evidence", "pathfinder.cli lineage"])
def test_nothing_of_the_folder_is_imported_compiled_or_started(hostile: Path, command: str, at: str) -> None:
    mark = hostile / ".git/it-ran"
    paths = {"PYTHONPATH": str(ROOT), "PATH": f".{os.pathsep}{os.environ['PATH']}"}
    words = ["-P", "-c", WATCHED, str(hostile), *command.split(), "check", "--json", "--root"]
    done = checked([*words, "project" if at == ".." else "."], hostile / at, **paths)
    assert done.returncode == 0, done.stderr + done.stdout
    assert [f"{each['level']}: {each['where']}: {each['message']}" for each in json.loads(done.stdout)["findings"]] == [
        NOTE.partition(" (")[0]
    ]
    assert not mark.exists()
    checked(["-m", "evidence", "check"], hostile, **paths)
    assert mark.exists(), "in place it runs, so the case is one"
    mark.unlink()
    git_by_itself(hostile, "status")
    assert mark.exists(), "git by itself runs it, too"


def test_a_program_of_the_folder_itself_is_refused(hostile: Path) -> None:
    (hostile / "planted.py").write_text("")
    start = (
        f"import sys, runpy; sys.path.insert(0, {str(hostile)!r}); import planted; del sys.path[0]; "
        "runpy.run_module('evidence', run_name='__main__', alter_sys=True)"
    )
    done = checked(["-c", start, "check", "--root", "project"], hostile.parent, PYTHONPATH=str(ROOT))
    assert (done.returncode, done.stdout) == (2, "")
    assert "this program loaded planted" in done.stderr


VICTIM = {"kept/runs/exp1/events": "years of work", "kept/far.jsonl": "mine"}
LEADING = {
    "a name that is a path": ("{victim}/kept", ""),
    "a name that leaves the copy": ("../../../../home/kept", ""),
    "a name of dots": ("..", ""),
    "a linked folder of copies": ("far", ".pathfinder/evidence/far"),
    "a linked folder of what was verified": ("far", ".pathfinder/verified"),
    "a linked folder of all evidence": ("far", ".pathfinder"),
}
"""The name of a remote, and a folder of the copy that is a link to the auditor's own files."""


@pytest.mark.parametrize("name, link", LEADING.values(), ids=[*LEADING])
def test_nothing_outside_of_the_folder_is_deleted_or_written(hostile: Path, name: str, link: str) -> None:
    victim, far = hostile.parent / "home", hostile.parent / "far"
    for folder, files in (victim, VICTIM), (far, {"pathfinder/log/00000001.json": "{}", "runs/aa/b/c": "{}"}):
        for file, text in files.items():
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            (folder / file).write_text(text)
    with (hostile / ".dvc/config").open("a") as config:
        config.write(f"['remote \"{name.format(victim=victim)}\"']\n    url = file://{far}\n")
    if link:
        shutil.rmtree(hostile / link, ignore_errors=True)
        (hostile / link).parent.mkdir(exist_ok=True)
        (hostile / link).symlink_to(victim / "kept")
    done = checked(["-m", "evidence", "check", "--full", "--root", "project"], hostile.parent, PYTHONPATH=str(ROOT))
    found = {path.relative_to(victim).as_posix(): path.read_text() for path in victim.rglob("*") if path.is_file()}
    assert found == VICTIM, done.stdout
    assert (done.returncode, "rename this remote" in done.stderr or "remove the link" in done.stderr) == (2, True)


def test_the_verb_that_runs_recorded_code_takes_no_folder(hostile: Path) -> None:
    done = checked(["-m", "evidence", "replay", "fit", "--root", "project"], hostile.parent, PYTHONPATH=str(ROOT))
    assert (done.returncode, "No such option: --root" in done.stderr) == (2, True)


def test_files_of_the_auditor_stay_where_they_are(hostile: Path, tmp_path: Path) -> None:
    """A key and a page are the auditor's own: the folder's file of the same name is not read."""
    run(hostile, "config", "--unset", "core.fsmonitor")
    (hostile / "auditor.pem").write_text("not a key")

    def at_root(*words: str) -> subprocess.CompletedProcess[str]:
        return checked(["-m", "evidence", *words], tmp_path, PYTHONPATH=str(ROOT))

    done = at_root("check", "--root", "project", "--key", "auditor.pem")
    assert (done.returncode, str(tmp_path / "auditor.pem") in done.stdout) == (2, True)
    assert json.loads(at_root("view", MODEL, "--root", "project", "--json").stdout)["path"] == MODEL
    (tmp_path / "mine.txt").write_text("auditor")
    places = [
        json.loads(at_root("find", name, "--root", "project", "--json").stdout)["places"]
        for name in ("mine.txt", "project/params.yaml", "params.yaml")
    ]
    assert [bool(found) for found in places] == [False, True, True]
    done = at_root("render", "--root", "project")
    assert (tmp_path / "lineage.html").is_file(), done.stderr
    done = at_root("check", "--root", "none")
    assert (done.returncode, "no such folder" in done.stderr) == (2, True)
    (hostile / "evidence.toml").write_text("plugin = 'planted'\n")
    done = at_root("check", "--root", "project")
    assert (done.returncode, done.stdout) == (2, "")
    assert "evidence.toml: plugin: Extra inputs are not permitted" in done.stderr
