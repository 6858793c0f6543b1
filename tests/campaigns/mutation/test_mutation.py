"""The command that measures the mutation score: what it chooses, how it reads mutmut, what it accepts."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.campaigns.mutation import __main__ as command
from tests.campaigns.mutation import trial
from tests.campaigns.mutation.chosen import CHOSEN
from tests.campaigns.mutation.verdicts import (
    FILE,
    Mutants,
    Survivor,
    Verdict,
    outdated,
    read_accepted,
    read_verdicts,
    table,
)
from tests.conftest import ROOT

MODULE = "room/rule.py"
_MUTATED = """\
def x_rule__mutmut_orig(a: int) -> int:
    b = a + 1
    return b
def x_rule__mutmut_1(a: int) -> int:
    b = a - 1
    return b
def x_rule__mutmut_2(a: int) -> int:
    b = a + 2
    return b
def xǁRuleǁof__mutmut_orig(self) -> int:
    return self.size
def xǁRuleǁof__mutmut_1(self) -> int:
    return None
"""
_SPANS = {
    "x_rule__mutmut_orig": (1, 3),
    "x_rule__mutmut_1": (4, 6),
    "x_rule__mutmut_2": (7, 9),
    "xǁRuleǁof__mutmut_orig": (10, 11),
    "xǁRuleǁof__mutmut_1": (12, 13),
}
SURVIVOR = Survivor(MODULE, "rule", "b = a + 1", "b = a + 2")


_HASHES = {"x_rule": "1", "xǁRuleǁof": "2"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the tree after a run with three mutants: killed, survived, refused by mypy."""
    (tmp_path / "room").mkdir()
    (tmp_path / MODULE).write_text(_MUTATED, encoding="utf-8")
    verdicts: dict[str, Verdict | None] = {"x_rule__mutmut_1": "killed", "x_rule__mutmut_2": "survived"}
    Mutants(MODULE, verdicts | {"xǁRuleǁof__mutmut_1": "refused"}, _HASHES, _SPANS).write(tmp_path)
    return tmp_path


def test_modules_and_tests_exist() -> None:
    names = {*CHOSEN, *(test for tests in CHOSEN.values() for test in tests)}
    assert [name for name in names if not (ROOT / name).is_file()] == []


def test_accepted_survivors_name_code_that_exists() -> None:
    sources = {module: " ".join((ROOT / module).read_text(encoding="utf-8").split()) for module in CHOSEN}
    accepted = read_accepted()
    assert accepted
    assert [one for one in accepted if " ".join(one.was.split()) not in sources[one.module]] == []


def test_a_survivor_is_named_by_its_lines(folder: Path) -> None:
    verdicts = read_verdicts(folder)
    assert (verdicts.refused, verdicts.killed, verdicts.timed_out, verdicts.untried) == (1, 1, 0, 0)
    assert verdicts.survivors == (SURVIVOR,)
    assert "| `room/rule.py` | 1 | 2 | 1 | 0 | 1 | 1 | 50.0 % |" in table([verdicts], [SURVIVOR])


def test_new_and_outdated_survivors_fail_the_command(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    verdicts = read_verdicts(folder)
    gone = replace(SURVIVOR, becomes="b = a + 3")
    for accepted, status, said in (
        ({SURVIVOR: "why"}, 0, None),
        ({}, 1, f"survived: {SURVIVOR}"),
        ({SURVIVOR: "why", gone: "why"}, 1, f"accepted, but killed or gone: {gone}"),
    ):
        monkeypatch.setattr(command, "read_accepted", lambda accepted=accepted: accepted)
        assert command.report([verdicts]) == status
        assert said is None or said in capsys.readouterr().out


def test_a_module_whose_mutants_were_all_tried_in_this_tree_is_left_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(trial, "ROOT", tmp_path)
    monkeypatch.setattr(trial, "WORK", tmp_path / "work")
    monkeypatch.setattr(trial, "LOCK", tmp_path / "no.lock")
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    (tmp_path / ".gitignore").write_text("work\n")
    (tmp_path / "pyproject.toml").touch()
    work = trial.folder_of(MODULE)
    work.mkdir(parents=True)
    tree = trial._digest(trial._files())
    for now, is_tried in ((tree, False), ("other", True)):
        Mutants(MODULE, {"x_rule__mutmut_1": "survived"}, _HASHES, _SPANS, now).write(work)
        assert bool(trial.try_mutants(MODULE, [], "one")) == is_tried  # without the lock file, uv fails


def test_verdicts_are_kept_in_the_same_tree_and_kills_while_their_function_does_not_change(folder: Path) -> None:
    other = _HASHES | {"x_rule": "3"}
    for tree, hashes, kept in (
        ("", _HASHES, ["killed", "survived"]),
        ("other", _HASHES, ["killed", None]),
        ("other", other, [None, None]),
    ):
        mutants = Mutants(MODULE, dict.fromkeys(["x_rule__mutmut_1", "x_rule__mutmut_2"]), hashes, _SPANS, tree)
        mutants.keep(Mutants.read(folder))
        assert list(mutants.verdicts.values()) == kept


def test_the_time_of_the_other_modules_follows_from_the_sizes_of_those_that_were_tried() -> None:
    small, large = list(CHOSEN)[:2]
    assert command.after([large], {}) == ""
    assert command.after([], {small: 60.0}) == ""
    assert command.after([small, small], {small: 60.0}) == ", about 2 min for the rest"
    assert command.after([small], {small: 100.0, large: 0.0}) != command.after([small], {small: 100.0})


def test_an_unfinished_module_has_no_outdated_survivors(folder: Path) -> None:
    Mutants(MODULE, {"x_rule__mutmut_1": "killed", "x_rule__mutmut_2": None}, _HASHES, _SPANS).write(folder)
    verdicts = read_verdicts(folder)
    assert (verdicts.killed, verdicts.untried) == (1, 1)
    assert outdated([SURVIVOR], [verdicts]) == []
    assert "(1 not tried)" in table([verdicts], [])


def test_a_run_that_was_killed_while_it_wrote_its_verdicts_starts_again(folder: Path) -> None:
    (folder / FILE).write_text("{", encoding="utf-8")
    assert Mutants.read(folder) is None


_TEST = """
import os, signal

def test_the_rule(tmp_path):
    mutant = os.environ.get("MUTANT_UNDER_TEST", "")
    if mutant == "room.rule.x_rule__mutmut_3":
        os.kill(os.getpid(), signal.SIGALRM)  # as after the time limit
    assert mutant != "room.rule.x_rule__mutmut_1"
"""


def test_each_mutant_has_a_fork_that_runs_the_tests(tmp_path: Path) -> None:
    (tmp_path / "test_rule.py").write_text(_TEST)
    names = [f"x_rule__mutmut_{number}" for number in (1, 2, 3)]
    Mutants(MODULE, dict.fromkeys(names), _HASHES, _SPANS).write(tmp_path)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.campaigns.mutation.forks", "test_rule.py"]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    subprocess.run(command, cwd=tmp_path, env=environment, check=True, capture_output=True)
    mutants = Mutants.read(tmp_path)
    assert mutants is not None
    assert mutants.verdicts == dict(zip(names, ["killed", "survived", "timed out"], strict=True))
