from __future__ import annotations

import errno
from pathlib import Path

import polars as pl
import pytest

from pathfinder.gates import checker
from pathfinder.gates.checker import Checker
from pathfinder.gates.gates import Suite, some_rows
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


def test_a_page_that_a_full_disk_refuses_is_an_error_without_a_traceback(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    checker = Checker()
    checker.run([Suite("rows", "rows.parquet", "id", pl.DataFrame({"id": []}, {"id": pl.Int64()}), (some_rows(),))])
    (tmp_path / "expectations").mkdir()
    (tmp_path / "expectations/rows.html").symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space left on device") as caught:
        checker.write_docs(tmp_path)
    assert (caught.value.errno, caught.value.filename) == (errno.ENOSPC, str(tmp_path))
    assert "Traceback" not in caplog.text
