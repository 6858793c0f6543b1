"""The verbs that need a clone, on a real small project."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from flows.cli import app
from flows.team import deploy
from pathfinder.planning import profiles
from tests.flows.conftest import Project

cli = CliRunner()


def test_plan_shows_the_reasons(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project.root)
    first = cli.invoke(app, ["plan"])
    assert first.exit_code == 0, first.output
    assert "never run" in first.output
    project.run("-m", "dvc", "repro", "-q")
    start = time.monotonic()
    assert "nothing to do" in cli.invoke(app, ["plan"]).output
    assert time.monotonic() - start < 60
    (project.root / "out/odd.txt").unlink()
    third = cli.invoke(app, ["plan", "total"]).output
    assert "output out/odd.txt missing" in third
    assert "numbers" not in third


@pytest.mark.parametrize("verb", ["plan", "run"])
def test_the_parameters_are_read_first(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: str) -> None:
    """A wrong name of a run is refused before DVC is asked, with the message of the stages."""
    shutil.copytree(root / profiles.FOLDER, tmp_path / profiles.FOLDER)
    shutil.copyfile(root / "dvc.yaml", tmp_path / "dvc.yaml")
    for name in (".dvc", ".git"):
        (tmp_path / name).mkdir()
    text = profiles.render(root, "quickstart")
    wrong = text.replace("\nruns: [full,", "\nruns: [fulll,", 1)
    assert wrong != text
    (tmp_path / "params.yaml").write_text(wrong)
    monkeypatch.chdir(tmp_path)
    result = cli.invoke(app, [verb])
    assert result.exit_code == 1
    assert "error: " in result.output
    assert "params.yaml: " in result.output
    assert "run 'fulll': did you mean full? expected VARIANT" in result.output


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["plan", "--profile", "paper"], "are options of --gpu"),
        (["plan", "--gpu", "--all", "--memory", "80"], "leave out the other options"),
        (["plan", "--gpu", "label"], "leave out the targets"),
        (["plan", "--gpu", "--memory", "-1"], "greater than or equal to 0"),
        (["run", "--jobs", "-1"], "greater than or equal to 0"),
    ],
)
def test_options_that_would_be_ignored_or_never_end_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], error: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    result = cli.invoke(app, words)
    assert result.exit_code == 2, result.output
    assert error in result.output


def test_a_schedule_that_is_none_is_refused_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = cli.invoke(deploy.app, ["up", "--cron", "every day"])
    assert result.exit_code == 2, result.output
    assert "'every day' is not a schedule" in result.output
    assert not list(tmp_path.iterdir())


def test_errors_are_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for words in (["plan"], ["run"], ["profile", "x"]):
        result = cli.invoke(app, words)
        assert result.exit_code == 1, words
        assert "error: " in result.output
        assert "Traceback" not in result.output


def test_profile_lists_and_writes(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(root / "infra/profiles", tmp_path / "infra/profiles")
    monkeypatch.chdir(tmp_path)
    assert "now holds profile quickstart" in cli.invoke(app, ["profile", "quickstart"]).output
    listed = cli.invoke(app, ["profile"]).output
    assert "* quickstart" in listed
    assert "8 x H100 80 GB" in listed
    assert "already held" in (told := cli.invoke(app, ["profile", "quickstart"]).output)
    assert "not pinned" not in told
    assert "not pinned: models/math-shepherd, " in cli.invoke(app, ["profile", "evaluate-published"]).output


def test_plan_shows_the_memory_that_a_profile_needs(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(root / "infra", tmp_path / "infra")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    assert cli.invoke(app, ["profile", "paper"]).exit_code == 0
    eight = cli.invoke(app, ["plan", "--gpu", "--memory", "80", "--gpus", "8"])
    assert eight.exit_code == 0, eight.output
    assert "optimiser 7.1" in eight.output
    assert "main memory: " in eight.output
    assert "server on 97% of each card" in " ".join(eight.output.split())
    one = cli.invoke(app, ["plan", "--gpu", "--memory", "80"])
    assert one.exit_code == 1, one.output
    assert "does not fit" in one.output
    assert "machine needs" not in one.output  # a single GPU was asked about
    assert cli.invoke(app, ["plan", "--gpu", "--profile", "one-gpu-24"]).exit_code == 0
    assert "--gpus needs --card" in cli.invoke(app, ["plan", "--gpu", "--gpus", "8"]).output
    monkeypatch.delenv("COLUMNS")
    assert max(map(len, cli.invoke(app, ["plan", "--gpu", "--card", "A100"]).output.splitlines())) > 120, "for a pipe"
    monkeypatch.setenv("COLUMNS", "80")
    small = cli.invoke(app, ["plan", "--gpu", "--card", "A100"]).output
    for setting in ("label.vllm.tensor_parallel: 1", "search.shared_card: true", "train.lora.rank: 16"):
        assert f"\n  {setting}\n" in small, "a setting to copy has a line of its own"
    assert "…" not in small
    assert max(map(len, small.splitlines())) <= 80
    narrow = cli.invoke(app, ["plan", "--gpu", "--all"]).output
    assert "│ evaluate-published │" in narrow, "a name that is typed is not cut"
    monkeypatch.setenv("COLUMNS", "30")
    assert "purpose" in cli.invoke(app, ["profile"]).output, "beside names that leave no room"
