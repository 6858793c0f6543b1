"""A run that cannot start says so in one line with file and remedy, before it starts a server."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.flows.conftest import Project
from tests.support import warm

VERB = [sys.executable, "-c", "from flows.cli import app; app()"]
CONFLICT = "<<<<<<< HEAD\n    md5: a\n=======\n    md5: b\n>>>>>>> other\n"


def line_of(project: Project, verb: str, root: Path | None = None, setup: str = "") -> str:
    """The only line that a verb prints when it fails; ``setup`` are commands in a mount namespace of its own."""
    command = [*VERB, verb]
    if setup:
        command = ["unshare", "-rm", "sh", "-c", f"{setup} && exec {shlex.join(command)}"]
    folder = root or project.root
    done = warm.run(command, cwd=folder, env=project.environment, capture_output=True, timeout=300)
    (line,) = (done.stdout + done.stderr).decode().splitlines()
    assert done.returncode == 1
    assert not (folder / ".pathfinder/prefect/server.log").exists(), "no server was started"
    return str(line)


needs_namespaces = pytest.mark.skipif(
    shutil.which("unshare") is None or subprocess.run(["unshare", "-rm", "true"], check=False).returncode != 0,
    reason="mounts need a user namespace",
)


@pytest.mark.parametrize("verb", ["run", "plan"])
def test_conflict_markers(project: Project, verb: str) -> None:
    project.run("-m", "dvc", "repro", "-q")
    lock = project.root / "dvc.lock"
    lock.write_text(lock.read_text().replace("  numbers:\n", f"  numbers:\n{CONFLICT}"))
    (project.root / "params.yaml").write_text("count: 9\n")
    line = line_of(project, verb)
    assert "dvc.lock: a merge left conflict markers (line 4); take one side with `git checkout --ours`" in line


@pytest.mark.parametrize("verb", ["run", "plan", "pull"])
def test_a_folder_without_git(project: Project, verb: str) -> None:
    shutil.rmtree(project.root / ".git")
    assert f"{project.root}: no git repository, which DVC needs; work in a clone" in line_of(project, verb)


@pytest.mark.parametrize("verb", ["run", "plan", "pull"])
def test_a_path_that_is_not_utf_8(project: Project, tmp_path: Path, verb: str) -> None:
    moved = Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9"))
    shutil.move(project.root, moved)
    line = line_of(project, verb, moved)
    assert "/caf\\udce9: a name that is not UTF-8, which DVC cannot write; move or rename the folder" in line


@pytest.mark.parametrize(
    "variables",
    [
        {"PREFECT_API_URL": "http://host:port/api"},
        {"PATHFINDER_REMOTE": "s3://bucket/here", "PATHFINDER_S3_ENDPOINT": "store:9000"},
    ],
)
def test_a_server_that_is_no_address(project: Project, variables: dict[str, str]) -> None:
    project.environment.update(variables)
    *_, (name, value) = variables.items()
    assert f"{value}: not a server's address; correct {name}, as in http" in line_of(project, "run")


@needs_namespaces
@pytest.mark.parametrize("verb", ["plan", "pull"])
def test_a_folder_that_cannot_be_written(project: Project, verb: str) -> None:
    line = line_of(project, verb, setup="mount --bind . . && mount -o remount,ro,bind . && cd .")
    assert ".dvc: cannot be written, which DVC needs even to compare; use a copy that can be" in line


@needs_namespaces
def test_a_full_disk(project: Project) -> None:
    (project.root / ".pathfinder").mkdir(exist_ok=True)
    line = line_of(project, "run", setup="mount -t tmpfs -o size=600k tmpfs .pathfinder")
    assert ".pathfinder/prefect: its disk has 0.6 MB left" in line
    assert line.endswith("free space (`df -h`), then run again")
