"""Git as an auditor asks it: no program of the audited folder runs, and commits and edits are what they are."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from evidence.audit.workspace import Workspace
from evidence.record.environment import describe_tree, git
from evidence.verbs.targets import read_at
from tests.support.miniature import GIT

TEXT = "an honest figure\n"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A repository with two commits of one file."""
    subprocess.run(["git", "init", "-q", "-b", "main"], cwd=tmp_path, check=True)
    for text in ("first\n", TEXT):
        (tmp_path / "figure.txt").write_text(text)
        run(tmp_path, "add", "-A")
        run(tmp_path, "commit", "-qm", text.strip())
    return tmp_path


def run(folder: Path, *words: str) -> str:
    done = subprocess.run([*GIT, *words], cwd=folder, check=True, capture_output=True, text=True, timeout=60)
    return done.stdout.strip()


def git_by_itself(folder: Path, *words: str) -> None:
    subprocess.run(["git", *words], cwd=folder, capture_output=True, stdin=subprocess.DEVNULL, timeout=60, check=False)


def plant(project: Path, setting: str, *words: str) -> Path:
    """Let a setting of the repository name a program; returns the file that the program makes when it runs."""
    mark, program = project / ".git/it-ran", project / ".git/program"
    program.write_text(f"#!/bin/sh\ntouch '{mark}'\nexit 1\n")
    program.chmod(0o755)
    run(project, "config", setting, " ".join([str(program), *words]))
    return mark


PROGRAMS = {
    "core.fsmonitor": "",
    "filter.planted.clean": "figure.txt filter=planted\n",
    "filter.a=b.clean": "figure.txt filter=a=b\n",
    "filter.planted.process": "figure.txt filter=planted\n",
    "diff.planted.textconv": "figure.txt diff=planted\n",
    "diff.planted.command": "figure.txt diff=planted\n",
    "diff.external": "",
}


@pytest.mark.parametrize("setting, attributes", PROGRAMS.items(), ids=[*PROGRAMS])
def test_no_program_that_the_repository_names_is_run(project: Path, setting: str, attributes: str) -> None:
    (project / ".git/info/attributes").write_text(attributes)
    mark = plant(project, setting)
    (project / "figure.txt").write_text("forged\n")
    workspace = Workspace(project)
    assert "with uncommitted changes: figure.txt" in workspace.state_of_commit()
    assert not workspace.is_committed("figure.txt")
    assert "forged" in (git("diff", "HEAD", root=project) or "")
    assert git("--no-literal-pathspecs", "log", "-p", "--", "*.txt", root=project)
    assert not mark.exists()
    for words in (["status"], ["diff", "HEAD"]):
        git_by_itself(project, *words)
    assert mark.exists(), "git by itself runs it, so the case is one"


@pytest.mark.parametrize("setting", ["filter.planted.clean", "diff.external"])
def test_no_program_that_a_submodule_names_is_run(project: Path, setting: str) -> None:
    module = project / "module"
    run(project, "clone", "-q", ".", "module")
    run(project, "add", "module")
    run(project, "commit", "-qm", "module")
    (module / ".git/info/attributes").write_text("* filter=planted\n")
    run(project, "config", "diff.submodule", "diff")
    mark = plant(module, setting)
    assert Workspace(project).state_of_commit().endswith(" clean")
    (module / "figure.txt").write_text("forged\n")
    assert Workspace(project).state_of_commit().endswith(" with uncommitted changes: module")
    run(module, "checkout", "-q", "--force", "HEAD~1")
    mark.unlink(missing_ok=True)
    assert Workspace(project).state_of_commit().endswith(" with uncommitted changes: module")
    assert "Subproject commit" in (git("diff", "HEAD", root=project) or "")
    assert not mark.exists()
    (module / "figure.txt").write_text("forged\n")
    git_by_itself(project, "diff", "HEAD")
    assert mark.exists(), "git by itself runs it, so the case is one"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_the_repository_of_another_user_is_read_without_its_programs(project: Path) -> None:
    mark = plant(project, "core.fsmonitor")
    for path in (project, *project.rglob("*")):
        os.chown(path, 12345, 12345)
    (project / "figure.txt").write_text("forged\n")
    assert Workspace(project).state_of_commit().endswith(" with uncommitted changes: figure.txt")
    assert not mark.exists()


def test_a_required_filter_of_the_repository_is_no_error(project: Path) -> None:
    (project / ".git/info/attributes").write_text("figure.txt filter=planted\n")
    mark = plant(project, "filter.planted.clean")
    run(project, "config", "filter.planted.required", "true")
    assert Workspace(project).is_committed("figure.txt")
    assert not mark.exists()


def test_a_missing_object_is_not_fetched(project: Path) -> None:
    mark = plant(project, "remote.origin.uploadpack")
    for name, value in {"url": str(project), "promisor": "true", "partialclonefilter": "blob:none"}.items():
        run(project, "config", f"remote.origin.{name}", value)
    run(project, "config", "core.repositoryformatversion", "1")
    run(project, "config", "extensions.partialClone", "origin")
    blob = run(project, "rev-parse", "HEAD:figure.txt")
    (project / ".git/objects" / blob[:2] / blob[2:]).unlink()
    assert git("cat-file", "-e", blob, root=project) is None
    assert not mark.exists()
    git_by_itself(project, "cat-file", "-e", blob)
    assert mark.exists(), "git by itself runs it, so the case is one"


def test_a_replaced_commit_is_read_as_it_was_made(project: Path) -> None:
    honest = run(project, "rev-parse", "HEAD")
    (project / "figure.txt").write_text("forged\n")
    run(project, "commit", "-qam", "forged")
    run(project, "replace", honest, run(project, "rev-parse", "HEAD"))
    run(project, "reset", "-q", "--soft", honest)
    assert run(project, "status", "--porcelain") == "", "git by itself sees no change"
    workspace = Workspace(project)
    assert "with uncommitted changes: figure.txt" in workspace.state_of_commit()
    assert not workspace.is_committed("figure.txt")
    assert read_at(project, honest, ["figure.txt"]) == {"figure.txt": TEXT.encode()}


def test_a_graft_gives_a_commit_no_other_parent(project: Path) -> None:
    honest, stranger = run(project, "rev-parse", "HEAD"), run(project, "commit-tree", "HEAD^{tree}", "-m", "stranger")
    (project / ".git/info/grafts").write_text(f"{honest} {stranger}\n")
    assert stranger in run(project, "rev-list", "HEAD"), "git by itself follows it"
    assert not Workspace(project).has_commit(stranger)


@pytest.mark.parametrize("flag", ["--skip-worktree", "--assume-unchanged"])
def test_an_edit_that_the_index_hides_is_named(project: Path, flag: str, monkeypatch: pytest.MonkeyPatch) -> None:
    run(project, "update-index", flag, "figure.txt")
    assert Workspace(project).state_of_commit().endswith(" clean")
    (project / "figure.txt").write_text("forged\n")
    assert run(project, "status", "--porcelain") == "", "git by itself sees no change"
    assert Workspace(project).state_of_commit().endswith(" with uncommitted changes: figure.txt")
    monkeypatch.chdir(project)
    assert [*describe_tree()["changed"]] == ["figure.txt"]
    (project / "figure.txt").unlink()
    assert Workspace(project).state_of_commit().endswith(" clean"), "a sparse checkout has no such file"


def test_a_clone_that_changes_the_ends_of_lines_gets_the_recorded_bytes(project: Path, root: Path) -> None:
    changes = ["clone", "-q", "-c", "core.autocrlf=true", "."]
    run(project, *changes, "changed")
    assert (project / "changed/figure.txt").read_bytes() != TEXT.encode(), "git by itself changes them"
    shutil.copy(root / ".gitattributes", project)
    run(project, "add", ".gitattributes")
    run(project, "commit", "-qm", "attributes")
    run(project, *changes, "same")
    assert (project / "same/figure.txt").read_bytes() == TEXT.encode()


def test_a_path_is_no_pattern(project: Path) -> None:
    (project / "figure[.]txt").write_text("untracked\n")
    assert Workspace(project).is_tracked("figure.txt")
    assert not Workspace(project).is_tracked("figure[.]txt")
