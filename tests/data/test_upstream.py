from __future__ import annotations

import gzip
import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from ground.io import DataError
from pathfinder.data.upstream import (
    Reading,
    UnreadableError,
    data_files,
    decoded,
    read_batches,
    read_lines,
    step_problem,
)

HOSTILE = "a\u2028b\x85c <|im_end|> <+> Score A: 1"


def records(path: Path) -> list[tuple[int, Any]]:
    """The decoded lines of a file."""
    return [(line, decoded(value)) for line, value, _ in read_lines(path)]


def test_every_container_gives_the_same_records(tmp_path: Path) -> None:
    values = [{"a": HOSTILE, "n": n} for n in range(50)]
    lines = "".join(json.dumps(value, ensure_ascii=False) + "\n" for value in values).encode()
    (tmp_path / "a.jsonl").write_bytes(lines)
    (tmp_path / "b.jsonl.gz").write_bytes(gzip.compress(lines))
    (tmp_path / "c.json").write_text(json.dumps(values, indent=4), encoding="utf-8")
    (tmp_path / "d.json.gz").write_bytes(gzip.compress(json.dumps(values).encode()))
    pl.DataFrame(values).write_parquet(tmp_path / "e.parquet")
    (tmp_path / "README.md").write_text("no data", encoding="utf-8")
    files = data_files(tmp_path)
    assert len(files) == 5
    for file in files:
        assert records(file) == list(enumerate(values, start=1)), file


def test_files_are_sorted_by_path_and_folders_are_no_files(tmp_path: Path) -> None:
    names = ["b/1.jsonl", "a.json", "b/0.parquet"]
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "folder.json").mkdir()
    assert [path.relative_to(tmp_path).as_posix() for path in data_files(tmp_path)] == sorted(names)


def test_a_batch_ends_with_the_line_that_fills_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pathfinder.data.upstream._CHUNK", 512)
    (tmp_path / "a.jsonl").write_bytes((b"1" * 510 + b"\n") * 5)
    batches = [batch for batch, _ in read_batches(tmp_path / "a.jsonl")]
    assert [[line for line, _ in batch] for batch in batches] == [[1, 2], [3, 4], [5]]
    (tmp_path / "a.json").write_text(json.dumps(list(range(600))))
    batches = [batch for batch, _ in read_batches(tmp_path / "a.json")]
    assert [len(batch) for batch in batches] == [256, 256, 88]
    assert [value for batch in batches for _, value in batch] == list(range(600))


def test_batches_tell_how_much_of_any_file_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pathfinder.data.upstream._CHUNK", 1 << 14)
    rows = [{"a": hashlib.sha256(str(n).encode()).hexdigest()} for n in range(6000)]
    lines = "".join(json.dumps(row) + "\n" for row in rows).encode()
    (tmp_path / "a.jsonl").write_bytes(lines)
    (tmp_path / "b.jsonl.gz").write_bytes(gzip.compress(lines))
    (tmp_path / "c.json").write_text(json.dumps(rows))
    (tmp_path / "d.json.gz").write_bytes(gzip.compress(json.dumps(rows).encode()))
    pl.DataFrame(rows).write_parquet(tmp_path / "e.parquet")
    for file in data_files(tmp_path):
        amounts = [amount for _, amount in read_batches(file)]
        read, size = np.cumsum(amounts), file.stat().st_size
        assert {type(amount) for amount in amounts} == {int}
        assert len(read) > 20, file
        assert read[len(read) // 2] == pytest.approx(size / 2, rel=0.25), file
        assert 0.99 * size <= read[-1] <= size, file


@pytest.mark.parametrize(
    ("value", "repaired", "official"),
    [
        (None, "null_text", "null_text"),
        (3, "not_text", "not_text"),
        (" \n", "empty_text", None),
        ("\ud800", "not_unicode", "not_unicode"),
        ("a", None, None),
        ("é", None, None),
    ],
)
def test_what_cannot_be_a_step_has_a_reason(value: Any, repaired: str | None, official: str | None) -> None:
    assert (step_problem(value, "repaired"), step_problem(value, "official")) == (repaired, official)


def test_details_are_short_and_have_no_lone_surrogate() -> None:
    reading = Reading("s", "p")
    reading.refuse(1, 2, "why", "\ud800" + "é" * 300)
    assert reading.set_aside == [(1, 2, "why", r"\ud800" + "é" * 194)]
    assert UnreadableError("why", "x" * 300).detail == "x" * 200
    assert str(UnreadableError("why", "a")) == "why: a"
    assert UnreadableError("why").detail == ""


def test_json_lists_are_read_across_window_borders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pathfinder.data.upstream._CHUNK", 7)
    values = [{"text": "é💥" * n, "n": n} for n in range(30)] + [12345678901, None, "x"]
    (tmp_path / "a.json").write_text(json.dumps(values, ensure_ascii=False), encoding="utf-8")
    assert [value for _, value in records(tmp_path / "a.json")] == values


def test_an_item_over_the_limit_is_refused_before_the_whole_file_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pathfinder.data.upstream._CHUNK", 100)
    monkeypatch.setattr("ground.io.LONGEST_LINE", 1000)
    (tmp_path / "a.json").write_text(json.dumps(["x" * 300] * 9))
    assert len(records(tmp_path / "a.json")) == 9
    (tmp_path / "a.json").write_text(json.dumps(["x" * 9000]))
    with pytest.raises(DataError, match="not valid JSON"):
        records(tmp_path / "a.json")


def test_a_single_object_is_one_record(tmp_path: Path) -> None:
    (tmp_path / "one.json").write_text('{\n "a": 1\n}\n', encoding="utf-8")
    assert records(tmp_path / "one.json") == [(1, {"a": 1})]


@pytest.mark.parametrize(
    ("text", "values"),
    [("[]", []), ("[ ]\n", []), (" \r\n[1,\t2]", [1, 2]), ("\ufeff[1, 2]", [1, 2]), ("\ufeff3", [3])],
)
def test_white_space_and_a_byte_order_mark_are_no_records(tmp_path: Path, text: str, values: list[int]) -> None:
    (tmp_path / "a.json").write_bytes(text.encode())
    assert [value for _, value in records(tmp_path / "a.json")] == values


def test_a_bad_line_does_not_stop_the_others(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"a": 1}\n{"a": \n\xff\xfe\n' + b"[" * 100_000 + b'\n\n{"a": 2}')
    (first, *bad, last) = read_lines(path)
    assert [number for number, *_ in (first, *bad, last)] == [1, 2, 3, 4, 6]
    assert (decoded(first[1]), decoded(last[1])) == ({"a": 1}, {"a": 2})
    for _, line, _ in bad:
        with pytest.raises(UnreadableError) as caught:
            decoded(line)
        assert caught.value.reason == "not_json"


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.json", b'[{"a": 1}, {"a": '),
        ("b.json", b'[{"a": 1} {"a": 2}]'),
        ("c.json", b'[{"a": 1}] x'),
        ("h.json", b"[1]X"),
        ("d.json", b'["\xff"]'),
        ("e.jsonl.gz", gzip.compress(b'{"a": 1}\n' * 1000, mtime=0)[:-20]),
        ("f.jsonl.gz", b"not gzip"),
        ("g.parquet", b"PAR1 no"),
    ],
)
def test_a_damaged_file_is_named(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=name) as caught:
        records(tmp_path / name)
    if name == "g.parquet":
        assert str(caught.value).endswith("; fetch the file again")


def test_a_file_that_memory_cannot_hold_is_not_called_damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: object) -> None:
        raise MemoryError("malloc failed")  # as Arrow does for a page of many gigabytes

    monkeypatch.setattr("pyarrow.parquet.ParquetFile", full)
    (tmp_path / "a.parquet").touch()
    with pytest.raises(DataError, match=r"a\.parquet: cannot be read .* \(malloc failed\); it needs more memory$"):
        records(tmp_path / "a.parquet")
