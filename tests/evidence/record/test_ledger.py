"""The ledger of records: a chain that shows every edit."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from evidence.record.ledger import LEDGER, RECORDS, enter, read_ledger
from ground.io import DataError

DIGESTS = [hashlib.sha256(bytes([number])).hexdigest() for number in range(12)]


def no_files(_: str) -> dict[str, str]:
    return {}


def test_entries_keep_their_order_and_name_the_line_before_them(tmp_path: Path) -> None:
    assert read_ledger(tmp_path) is None
    for digest in DIGESTS:
        enter("train@full", digest, no_files, tmp_path)
    lines = (tmp_path / LEDGER).read_bytes().splitlines(keepends=True)
    entries = read_ledger(tmp_path)
    assert entries is not None
    assert [entry.record for entry in entries] == DIGESTS
    assert [entry.previous for entry in entries[1:]] == [hashlib.sha256(line).hexdigest() for line in lines[:-1]]


def test_stages_that_end_at_the_same_time_make_one_chain(tmp_path: Path) -> None:
    with ProcessPoolExecutor(4) as pool:
        list(pool.map(partial(enter, "train@full", make=no_files, root=tmp_path), DIGESTS))
    assert {entry.record for entry in read_ledger(tmp_path) or ()} == set(DIGESTS)


def test_a_line_that_a_full_disk_cut_is_removed(tmp_path: Path) -> None:
    for digest in DIGESTS[:2]:
        enter("train@full", digest, no_files, tmp_path)
    os.truncate(tmp_path / LEDGER, (tmp_path / LEDGER).stat().st_size - 9)
    enter("train@full", DIGESTS[2], no_files, tmp_path)
    assert [entry.record for entry in read_ledger(tmp_path) or ()] == DIGESTS[:3:2]


def test_a_record_that_a_killed_run_entered_is_not_entered_again(tmp_path: Path) -> None:
    for digest in DIGESTS[:2]:
        enter("train@full", digest, lambda _: {".json": "{}"}, tmp_path)
    path = tmp_path / RECORDS / f"train@full/{DIGESTS[0]}.json"
    path.rename(f"{path}.new")  # the run was killed before the file could get its name
    enter("train@full", DIGESTS[0], lambda _: {".json": "{}"}, tmp_path)
    assert [entry.record for entry in read_ledger(tmp_path) or ()] == DIGESTS[:2]
    assert path.exists()


def test_a_file_system_without_locks_loses_no_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    monkeypatch.setattr(fcntl, "flock", refuse)
    enter("train@full", DIGESTS[0], no_files, tmp_path)
    assert [entry.record for entry in read_ledger(tmp_path) or ()] == DIGESTS[:1]


@pytest.mark.parametrize(
    ("line", "message"), [("{}\n", r"jsonl:2: number: Field required"), ("", "jsonl:2: the chain")]
)
def test_a_broken_line_is_named(tmp_path: Path, line: str, message: str) -> None:
    for digest in DIGESTS[:3]:
        enter("train@full", digest, no_files, tmp_path)
    lines = (tmp_path / LEDGER).read_text().splitlines(keepends=True)
    (tmp_path / LEDGER).write_text("".join([lines[0], line, lines[2]]))
    with pytest.raises(DataError, match=message):
        read_ledger(tmp_path)
