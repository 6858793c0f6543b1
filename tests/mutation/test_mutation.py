"""The command that measures the mutation score: what it chooses, how it reads mutmut, what it accepts."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.mutation import __main__ as command
from tests.mutation.chosen import CHOSEN
from tests.mutation.trial import forget_unkilled
from tests.mutation.verdicts import Survivor, outdated, read_accepted, read_verdicts, table

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


@pytest.fixture
def mutants(tmp_path: Path) -> Path:
    """The folder of mutmut after a run with three mutants: killed, survived, refused by mypy."""
    (tmp_path / "room").mkdir()
    (tmp_path / MODULE).write_text(_MUTATED, encoding="utf-8")
    (tmp_path / f"{MODULE}.spans").write_text(json.dumps({"version": 1, "spans": _SPANS}))
    codes = {"room.rule.x_rule__mutmut_1": 1, "room.rule.x_rule__mutmut_2": 0, "room.rule.xǁRuleǁof__mutmut_1": 37}
    (tmp_path / f"{MODULE}.meta").write_text(json.dumps({"exit_code_by_key": codes}))
    return tmp_path


def test_modules_and_tests_exist() -> None:
    names = {*CHOSEN, *(test for tests in CHOSEN.values() for test in tests)}
    assert [name for name in names if not (ROOT / name).is_file()] == []


def test_accepted_survivors_name_code_that_exists() -> None:
    sources = {module: " ".join((ROOT / module).read_text(encoding="utf-8").split()) for module in CHOSEN}
    accepted = read_accepted()
    assert accepted
    assert [one for one in accepted if " ".join(one.was.split()) not in sources[one.module]] == []


def test_a_survivor_is_named_by_its_lines(mutants: Path) -> None:
    verdicts = read_verdicts(mutants, MODULE)
    assert (verdicts.refused, verdicts.killed, verdicts.timed_out, verdicts.untried) == (1, 1, 0, 0)
    assert verdicts.survivors == (SURVIVOR,)
    assert "| `room/rule.py` | 1 | 2 | 1 | 0 | 1 | 1 | 50.0 % |" in table([verdicts], [SURVIVOR])


def test_new_and_outdated_survivors_fail_the_command(
    mutants: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    verdicts = read_verdicts(mutants, MODULE)
    gone = replace(SURVIVOR, becomes="b = a + 3")
    for accepted, status, said in (
        ({SURVIVOR: "why"}, 0, None),
        ({}, 1, f"survived: {SURVIVOR}"),
        ({SURVIVOR: "why", gone: "why"}, 1, f"accepted, but killed or gone: {gone}"),
    ):
        monkeypatch.setattr(command, "read_accepted", lambda accepted=accepted: accepted)
        assert command.report([verdicts]) == status
        assert said is None or said in capsys.readouterr().out


def test_an_unfinished_module_has_no_outdated_survivors(mutants: Path) -> None:
    forget_unkilled(mutants, MODULE)
    verdicts = read_verdicts(mutants, MODULE)
    assert (verdicts.killed, verdicts.untried) == (1, 2)
    assert outdated([SURVIVOR], [verdicts]) == []
    assert "(2 not tried)" in table([verdicts], [])
