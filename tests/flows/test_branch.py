"""Run branches: interleaved runs and a person's push never lose work; equal results make no branch."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from flows.team.deployment import git as git_commands
from flows.team.deployment.git import Clone
from flows.team.deployment.nightly import _change_params, summary_lines
from ground.io import DataError, TransientError
from tests.flows.conftest import PIPELINE, ROOT

NAME = "runs/2026-01-01-x"


def git(folder: Path, *arguments: str) -> str:
    author = ("-c", "user.name=someone", "-c", "user.email=someone@example.org")
    done = subprocess.run(["git", *author, *arguments], cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout.strip()


@pytest.fixture
def origin(tmp_path: Path) -> Path:
    """A bare repository whose branch main has one commit."""
    bare, work = tmp_path / "origin.git", tmp_path / "work"
    bare.mkdir()
    work.mkdir()
    git(bare, "init", "-q", "--bare", "-b", "main")
    git(work, "init", "-q", "-b", "main")
    (work / "dvc.lock").write_text("one\n")
    (work / ".gitignore").write_text("/cache\n")
    git(work, "add", ".")
    git(work, "commit", "-qm", "First")
    git(work, "remote", "add", "origin", str(bare))
    git(work, "push", "-q", "origin", "main")
    return bare


def test_two_runs_and_a_person_keep_their_work(origin: Path, tmp_path: Path) -> None:
    first, second = (Clone.update(tmp_path / name, str(origin), "main") for name in ("a", "b"))
    (first.folder / "dvc.lock").write_text("from a\n")
    (second.folder / "dvc.lock").write_text("from b\n")
    (tmp_path / "work/dvc.lock").write_text("from a person\n")
    git(tmp_path / "work", "commit", "-qam", "By hand")
    git(tmp_path / "work", "push", "-q", "origin", "main")
    trailers = {"Flow-Run": "1234", "Base": first.head}
    assert first.commit(["dvc.lock"], NAME, ["Run it", "metric 1"], trailers) == NAME
    assert second.commit(["dvc.lock"], NAME, ["Run it", "metric 2"], trailers) == f"{NAME}-2"
    assert git(origin, "show", "main:dvc.lock") == "from a person"
    assert git(origin, "show", f"{NAME}:dvc.lock") == "from a"
    assert git(origin, "show", f"{NAME}-2:dvc.lock") == "from b"
    assert git(origin, "log", "-1", "--format=%(trailers:key=Flow-Run,valueonly)", NAME) == "1234"
    assert git(origin, "log", "-1", "--format=%s", NAME) == "Run it"


@pytest.mark.parametrize(
    ("lines", "cause"),
    [
        (
            ["fatal: Unable to create '/clone/.git/index.lock': File exists.", "Another git process", "to continue."],
            "fatal: Unable to create '/clone/.git/index.lock': File exists.",
        ),
        (
            ["git@host: Permission denied (publickey).", "fatal: Could not read.", "and the repository exists."],
            "git@host: Permission denied (publickey).",
        ),
        (["To /origin", " ! [rejected] main -> main (fetch first)", "error: failed to push"], "! [rejected] main"),
        (["Cloning", "error: cannot write: No space left on device", "fatal: fetch failed"], "error: cannot write"),
        (["warning: a", "b"], "b"),
        (["fatal: unable to access 'https://me:sec@ret@host/x.git/'"], "fatal: unable to access 'https://host/x.git/'"),
        ([], "exit code 128"),
    ],
)
def test_the_cause_is_the_error_and_not_the_advice_after_it(lines: list[str], cause: str) -> None:
    done = subprocess.CompletedProcess([], 128, b"", "\n".join(lines).encode())
    assert git_commands.cause(done).startswith(cause)


def test_a_missing_repository_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=f"fatal: '?{tmp_path}/no'? does not appear to be a git repository"):
        git_commands.run(tmp_path, "ls-remote", str(tmp_path / "no"))


def test_a_clone_follows_the_branch_and_keeps_ignored_files(origin: Path, tmp_path: Path) -> None:
    clone = Clone.update(tmp_path / "a", str(origin), "main")
    (clone.folder / "cache").write_text("kept")
    (clone.folder / "dvc.lock").write_text("left by a run that was killed\n")
    (clone.folder / "left.txt").touch()
    (tmp_path / "work/dvc.lock").write_text("two\n")
    git(tmp_path / "work", "commit", "-qam", "Second")
    git(tmp_path / "work", "push", "-q", "--force", "origin", "main")
    again = Clone.update(tmp_path / "a", str(origin), "main")
    assert again.head != clone.head
    assert (again.folder / "dvc.lock").read_text() == "two\n"
    assert (again.folder / "cache").exists()
    assert not (again.folder / "left.txt").exists()
    assert again.changed(["dvc.lock", "results.json"]) == []
    (again.folder / "results.json").touch()
    assert again.changed(["dvc.lock", "results.json"]) == ["results.json"]


def test_results_that_a_branch_already_holds_are_found(origin: Path, tmp_path: Path) -> None:
    clone = Clone.update(tmp_path / "a", str(origin), "main")
    (clone.folder / "dvc.lock").write_text("new\n")
    assert clone.same_results(["dvc.lock"]) == ""
    name = f"runs/2026-01-01-{clone.head[:8]}"
    (clone.folder / "results.json").write_text("{}")
    clone.commit(["dvc.lock", "results.json"], name, ["Run it"], {})
    again = Clone.update(tmp_path / "b", str(origin), "main")
    (again.folder / "dvc.lock").write_text("new\n")
    (again.folder / "results.json").write_text("{}")
    assert again.same_results(["dvc.lock", "results.json"]) == name
    (again.folder / "results.json").write_text("{1}")
    assert again.same_results(["dvc.lock", "results.json"]) == ""


def test_a_branch_that_the_server_refuses_is_pushed_once_and_the_cause_is_named(origin: Path, tmp_path: Path) -> None:
    hook = origin / "hooks/pre-receive"
    hook.write_text("#!/bin/sh\necho push >> pushes.txt\nexit 1\n")
    hook.chmod(0o755)
    clone = Clone.update(tmp_path / "a", str(origin), "main")
    (clone.folder / "dvc.lock").write_text("new\n")
    with pytest.raises(TransientError, match=r"2026-01-01-x: cannot be pushed \(! \[remote rejected\] .*hook declined"):
        clone.commit(["dvc.lock"], NAME, ["Run it"], {})
    assert (origin / "pushes.txt").read_text() == "push\n"


def test_what_cannot_be_cloned_is_named(origin: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="has no branch other"):
        Clone.update(tmp_path / "a", str(origin), "other")
    with pytest.raises(TransientError, match=r"^https://127\.0\.0\.1:9/x\.git: cannot be read") as caught:
        Clone.at(tmp_path / "with-token", "https://me:secret@127.0.0.1:9/x.git", "0" * 40)
    assert "secret" not in str(caught.value)
    with pytest.raises(TransientError, match="nowhere: cannot be read"):
        Clone.update(tmp_path / "b", str(tmp_path / "nowhere"), "main")


def test_the_subject_of_a_run_says_which_part_was_run(tmp_path: Path) -> None:
    (tmp_path / "dvc.yaml").write_text(PIPELINE)
    (tmp_path / "params.yaml").write_text("count: 10\n")
    assert summary_lines(tmp_path, ())[0] == "Run the pipeline: 4 current stages"
    assert summary_lines(tmp_path, ["square@even"])[0] == "Run square@even of the pipeline: 2 current stages"
    assert summary_lines(tmp_path, ["numbers"])[0] == "Run numbers of the pipeline: 1 current stage"


def test_overrides_change_params_and_are_checked(tmp_path: Path) -> None:
    (tmp_path / "params.yaml").write_text((ROOT / "params.yaml").read_text())
    (tmp_path / "infra").symlink_to(ROOT / "infra")
    _change_params(tmp_path, "quickstart", ["train.seed=7"])
    assert "seed: 7" in (tmp_path / "params.yaml").read_text()
    for wrong in ("train.seed", "train.sede=7", "nothing.at.all=1", "train.seed=[1", "train.seed=a: b: c"):
        with pytest.raises(DataError, match=r"expected KEY=VALUE with a key of params\.yaml"):
            _change_params(tmp_path, "", [wrong])
    with pytest.raises(DataError, match=r"train\.seed"):
        _change_params(tmp_path, "", ["train.seed=seven"])
