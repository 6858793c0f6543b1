"""The catalogue of faults: its rows fit the tree, one is put back in every test run, and all by ``make faults``."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.faults.__main__ import run, select
from tests.faults.catalogue import GROUPS
from tests.faults.planting import Fault

ROOT = Path(__file__).resolve().parents[2]
FAULTS = [fault for faults in GROUPS.values() for fault in faults]


@pytest.mark.parametrize("group", GROUPS)
def test_every_row_names_lines_and_a_test_that_exist(group: str) -> None:
    for fault in GROUPS[group]:
        text = (ROOT / fault.file).read_text(encoding="utf-8")
        edited = fault.edited(text)
        assert edited != text, fault
        if fault.file.endswith(".py"):
            ast.parse(edited)
        assert _test_exists(fault), f"{fault.key}: there is no {fault.test}"


def _test_exists(fault: Fault) -> bool:
    file, _, name = fault.test.partition("[")[0].partition("::")
    if not (ROOT / file).is_file():
        return False
    functions = {
        node.name for node in ast.walk(ast.parse((ROOT / file).read_text())) if isinstance(node, ast.FunctionDef)
    }
    return not name or name in functions


def test_a_name_selects_a_row_a_pattern_or_a_group() -> None:
    assert [fault.key for fault in select(["D4-cause"])] == ["D4-cause"]
    assert {fault.key for fault in select(["json-*"])} == {"json-nested", "json-digits"}
    assert tuple(select(["small"])) == GROUPS["small"]
    assert list(select([])) == FAULTS


@pytest.mark.faults
def test_every_fault_is_noticed() -> None:
    assert run(FAULTS) == 0
