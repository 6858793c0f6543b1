from __future__ import annotations

import errno
import gzip
import os
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time
import tracemalloc
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from ground import io


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
    with pytest.raises(io.DataError, match=r"rows\.jsonl:2: not valid JSON \(.*: column \d+ "):
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


MANY_KEYS = b"{%s}" % b",".join(b'"%d": 1' % number for number in (*range(100_000), 99_999))
HOSTILE = [b"[" * 100_000 + b"]" * 100_000, b"9" * 5_000, MANY_KEYS]


@pytest.mark.parametrize("content", [b"{", b"\xff", b'{"a": {"b": 1, "b": 2}}', *HOSTILE], ids=range(6))
def test_json_that_is_broken_or_has_a_key_twice_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "value.json").write_bytes(content)
    with pytest.raises(io.DataError, match=r"value\.json: not valid JSON \("):
        io.read_json(tmp_path / "value.json")


@pytest.mark.parametrize("content", HOSTILE, ids=("nested", "digits", "keys"))
def test_hostile_json_in_a_line_is_refused_by_file_and_line(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "rows.jsonl").write_bytes(b"{}\n" + content + b"\n")
    with pytest.raises(io.DataError, match=r"rows\.jsonl:2: not valid JSON \("):
        list(io.read_jsonl(tmp_path / "rows.jsonl"))


def test_a_small_file_reserves_little_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    io.write_json(tmp_path / "a.json", {"a": 1})
    tracemalloc.start()
    try:
        assert io.read_json(tmp_path / "a.json") == {"a": 1}
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()
    monkeypatch.setattr(io, "LONGEST_LINE", 1 << 19)
    (tmp_path / "long.json").write_text('"' + "x" * (2 << 20) + '"')
    with pytest.raises(io.DataError, match=r"long\.json: over 2 MiB in one JSON value"):
        io.read_json(tmp_path / "long.json")


def test_a_file_that_cannot_be_made_is_named_as_it_is_known(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="File name too long") as caught:
        io.write_text(tmp_path / ("x" * 255), "text")
    assert caught.value.filename == str(tmp_path / ("x" * 255))


def test_a_line_over_the_limit_is_refused_before_it_fills_the_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(io, "LONGEST_LINE", 100)
    (tmp_path / "rows.jsonl").write_bytes(b'"' + b"a" * 98 + b'"\n' + b'"' + b"a" * 1_000 + b'"\n')
    rows = io.read_jsonl(tmp_path / "rows.jsonl")
    with pytest.raises(io.DataError, match=r"rows\.jsonl:1: a line of over"):
        list(rows)
    monkeypatch.setattr(io, "LONGEST_LINE", 101)
    with pytest.raises(io.DataError, match=r"rows\.jsonl:2: a line of over"):
        list(io.read_jsonl(tmp_path / "rows.jsonl"))


WRITER = """
import sys, time
from pathlib import Path
from ground import io
with getattr(io, sys.argv[1])(Path(sys.argv[2])):
    print("open", flush=True)
    time.sleep(60)
"""


@pytest.mark.parametrize("kind", ["atomic_file", "atomic_folder"])
def test_what_a_killed_writer_leaves_is_removed_by_the_next_one(tmp_path: Path, kind: str) -> None:
    target = tmp_path / "out [1].bin"
    with subprocess.Popen([sys.executable, "-c", WRITER, kind, target], stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        writer.stdout.readline()
        (left,) = tmp_path.iterdir()
        io.write_text(target.with_name("other"), "")
        io.write_text(target, "alive")
        assert left.exists(), "its writer lives"
        writer.send_signal(signal.SIGKILL)
    io.write_text(target, "new")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["other", "out [1].bin"]


def test_a_file_taken_for_left_over_before_its_lock_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make, made = tempfile.mkstemp, list[str]()

    def robbed(**options: Any) -> tuple[int, str]:
        descriptor, name = make(**options)
        made.append(name)
        if len(made) == 1:
            io._sweep(tmp_path / "file")
        return descriptor, name

    monkeypatch.setattr(tempfile, "mkstemp", robbed)
    io.write_text(tmp_path / "file", "text")
    assert len(made) == 2
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_an_error_of_the_system_in_a_library_has_its_number_and_the_file(tmp_path: Path) -> None:
    for error in (OSError("No space left on device (os error 28)"), ValueError("I/O error: full (os error 28)")):
        with pytest.raises(OSError, match="No space left on device") as caught, io.atomic_file(tmp_path / "file"):
            raise error
        assert (caught.value.errno, caught.value.filename) == (28, str(tmp_path / "file"))


def test_a_folder_that_takes_no_new_names_is_a_read_only_one() -> None:
    """Linux says of each new name in /proc that its folder is absent."""
    for make in (io.make_folder, lambda path: io.write_text(path, "")):
        for name in ("/proc/new", "/proc/new/inner"):
            with pytest.raises(OSError, match="/proc/new") as caught:
                make(Path(name))
            assert caught.value.errno == errno.EROFS


def test_a_table_that_a_full_disk_cuts_in_a_header_is_an_error_with_the_file(tmp_path: Path) -> None:
    path, before = tmp_path / "table.parquet", resource.getrlimit(resource.RLIMIT_FSIZE)
    frame = pl.DataFrame({f"column_{number}": ["text"] * 20 for number in range(60)})
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before[1]))
    try:
        with pytest.raises(io.DataError, match=r"table\.parquet: not written; check its disk") as caught:
            io.write_parquet(path, frame)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert "transport error" in str(caught.value.__cause__)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("in_one_step", [True, False])
def test_of_two_writers_of_a_new_file_the_second_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_one_step: bool
) -> None:
    if not in_one_step:
        monkeypatch.setattr(io, "_renamed", lambda *_: False)
    with pytest.raises(FileExistsError), io.exclusive_file(tmp_path / "file") as second:
        with io.exclusive_file(tmp_path / "file") as first:
            first.write_text("first")
        second.write_text("second")
    assert [path.read_text() for path in tmp_path.iterdir()] == ["first"]


def test_a_new_file_never_has_two_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "link", None)  # a writer killed after it would leave the second name for ever
    with io.exclusive_file(tmp_path / "file") as temporary:
        temporary.write_text("text")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_reader_never_finds_a_folder_missing_or_mixed(tmp_path: Path) -> None:
    target = tmp_path / "model"
    stop = threading.Event()
    seen: list[bool] = []

    def read() -> None:
        while not stop.is_set():
            try:
                folder = os.open(target, os.O_RDONLY)
            except FileNotFoundError:
                seen.append(False)
            else:
                seen.append({"a", "b"} >= set(os.listdir(folder)))
                os.close(folder)

    with io.atomic_folder(target) as folder:
        (folder / "a").write_text("")
    reader = threading.Thread(target=read)
    reader.start()
    end = time.monotonic() + 0.5
    while time.monotonic() < end:
        with io.atomic_folder(target) as folder:
            (folder / "b").write_text("")
    stop.set()
    reader.join()
    assert len(seen) > 10
    assert all(seen)


def test_a_folder_is_replaced_in_one_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target, gaps, replace = tmp_path / "model", [], Path.replace

    def watched(self: Path, other: Path) -> Path:
        moved = replace(self, other)
        gaps.append(not target.exists())
        return moved

    monkeypatch.setattr(Path, "replace", watched)
    for name in "ab":
        with io.atomic_folder(target) as folder:
            (folder / name).write_text("")
    assert [path.name for path in target.iterdir()] == ["b"]
    assert gaps == [False], "the second folder changes places with the first"


def test_without_an_exchange_the_former_folder_is_moved_away_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(io, "_renamed", lambda *_: False)
    for name in "ab":
        with io.atomic_folder(tmp_path / "model") as folder:
            (folder / name).write_text("")
    assert [str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")] == ["model", "model/b"]


def test_an_interrupted_call_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unlink = os.unlink
    interrupted: list[Any] = []

    def once(*arguments: Any, **options: Any) -> None:
        if not interrupted:
            interrupted.append(arguments)
            raise InterruptedError
        unlink(*arguments, **options)

    for name in "ab":
        with io.atomic_folder(tmp_path / "model") as folder:
            (folder / name).write_text("")
        monkeypatch.setattr(os, "unlink", once)
    assert interrupted
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
    interrupted.clear()
    (tmp_path / ".rows.killed.part").touch()
    io.write_text(tmp_path / "rows", "")
    assert interrupted
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model", "rows"]
