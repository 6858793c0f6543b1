from __future__ import annotations

import pytest

from pathfinder.gates import checker
from pathfinder.gates.checker import Checker
from pathfinder.gates.suites import contents
from tests.gates.test_suites import FAULTS
from tests.support.gate_tables import BOUNDS, clean_tables


def test_a_large_table_is_checked_by_its_distinct_values_with_the_same_results(monkeypatch: pytest.MonkeyPatch) -> None:
    tables = clean_tables()
    for fault in FAULTS[:5] + FAULTS[-12:]:
        if not fault.suite.endswith("_structure"):
            tables[fault.table] = fault.spoil(tables[fault.table])
    whole = Checker().run(contents(tables, BOUNDS))
    monkeypatch.setattr(checker, "_WHOLE_ROWS", 0)
    monkeypatch.setattr(checker, "_FEW_VALUES", 4)
    assert Checker().run(contents(tables, BOUNDS)) == whole
    assert {True, False} == {result.passed for result in whole}
