from __future__ import annotations

import gzip
from pathlib import Path

import polars as pl
import pytest

from pathfinder.core import io


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    target = tmp_path / "out.json"
    io.write_json(target, {"a": 1})
    with pytest.raises(RuntimeError), io.atomic_file(target) as temporary:
        temporary.write_text("half")
        raise RuntimeError("stop")
    assert io.read_json(target) == {"a": 1}
    assert [path.name for path in tmp_path.iterdir()] == ["out.json"]


def test_a_failed_folder_leaves_the_old_folder(tmp_path: Path) -> None:
    target = tmp_path / "model"
    with io.atomic_folder(target) as folder:
        (folder / "a").write_text("1")
    with pytest.raises(RuntimeError), io.atomic_folder(target) as folder:
        (folder / "a").write_text("2")
        raise RuntimeError("stop")
    assert (target / "a").read_text() == "1"
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_equal_rows_give_equal_bytes_and_no_time_stamp(tmp_path: Path) -> None:
    for name in ("a", "b"):
        io.write_jsonl(tmp_path / f"{name}.jsonl.gz", [{"x": "ü\u2028"}])
        io.write_parquet(tmp_path / f"{name}.parquet", pl.DataFrame({"x": [["a"], []]}))
    assert (tmp_path / "a.jsonl.gz").read_bytes() == (tmp_path / "b.jsonl.gz").read_bytes()
    assert (tmp_path / "a.parquet").read_bytes() == (tmp_path / "b.parquet").read_bytes()
    assert gzip.decompress((tmp_path / "a.jsonl.gz").read_bytes()).count(b"\n") == 1


def test_line_separators_inside_text_do_not_split_records(tmp_path: Path) -> None:
    rows = [{"x": "a\u2028b\u0085c\x0b"}, {"x": "\r"}]
    io.write_jsonl(tmp_path / "rows.jsonl", rows)
    assert [value for _, value in io.read_jsonl(tmp_path / "rows.jsonl")] == rows


def test_errors_name_file_and_line(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"a": 1}\n{"a": \n')
    with pytest.raises(io.DataError, match=r"rows\.jsonl:2"):
        list(io.read_jsonl(path))
    with pytest.raises(io.DataError, match="no such file"):
        io.read_parquet(tmp_path / "none.parquet")


def test_nan_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        io.write_json(tmp_path / "x.json", {"f1": float("nan")})
    assert not (tmp_path / "x.json").exists()


def test_a_wrong_schema_is_refused(tmp_path: Path) -> None:
    io.write_parquet(tmp_path / "x.parquet", pl.DataFrame({"id": [1]}))
    with pytest.raises(io.DataError, match="expected"):
        io.read_parquet(tmp_path / "x.parquet", {"id": pl.String()})


@pytest.mark.parametrize("content", [b"{", b"\xff", b'{"a": {"b": 1, "b": 2}}'])
def test_json_that_is_broken_or_has_a_key_twice_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "value.json").write_bytes(content)
    with pytest.raises(io.DataError, match=r"value\.json: not valid JSON \("):
        io.read_json(tmp_path / "value.json")
