from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from ground.io import DataError, read_parquet
from pathfinder.core.tables import table_writer

SCHEMA = {"id": pl.String(), "n": pl.Int8(), "steps": pl.List(pl.String())}


def write(path: Path, rows: int) -> None:
    with table_writer(path, SCHEMA) as table:
        for n in range(rows):
            table.add(f"r{n}", None if n % 7 == 0 else n % 100, ["a", "é\x00"] * (n % 3))


def test_rows_come_back_in_order_with_the_schema_over_many_row_groups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pathfinder.core.tables._ROWS", 100)
    write(tmp_path / "a.parquet", 1234)
    frame = read_parquet(tmp_path / "a.parquet", SCHEMA)
    assert frame["id"].to_list() == [f"r{n}" for n in range(1234)]
    assert frame["n"].null_count() == 177
    assert frame["steps"].list.len().sum() == sum(2 * (n % 3) for n in range(1234))
    write(tmp_path / "b.parquet", 1234)
    assert (tmp_path / "a.parquet").read_bytes() == (tmp_path / "b.parquet").read_bytes()


def test_an_empty_table_has_its_columns_and_a_failed_one_does_not_appear(tmp_path: Path) -> None:
    write(tmp_path / "empty.parquet", 0)
    assert len(read_parquet(tmp_path / "empty.parquet", SCHEMA)) == 0
    with pytest.raises(pl.exceptions.ComputeError), table_writer(tmp_path / "bad.parquet", SCHEMA) as table:
        table.add("x", "not a number", [])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty.parquet"]


def test_the_rows_of_a_refused_table_can_be_kept(tmp_path: Path) -> None:
    path, kept = tmp_path / "x.parquet", tmp_path / "kept/x.jsonl"
    with pytest.raises(DataError), table_writer(path, SCHEMA, kept) as table:
        table.add("a\n", 1, ["", "b"])
        raise DataError("too many")
    assert kept.read_text() == '{"id":"a\\n","n":1,"steps":["","b"]}\n'
    assert [file.name for file in tmp_path.iterdir()] == ["kept"]
    with pytest.raises(ZeroDivisionError), table_writer(path, SCHEMA, tmp_path / "other.jsonl") as table:
        raise ZeroDivisionError
    assert not (tmp_path / "other.jsonl").exists()
