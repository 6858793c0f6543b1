from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ground.io import DataError
from pathfinder.engines.journal import Journal

HOSTILE = 'a\nb\r\u2028{"sum": "0", "key": "x"}\x00\ud800 é <|im_end|>'
WRITER = """
import sys
from pathlib import Path
from pathfinder.engines.journal import Journal
with Journal(Path(sys.argv[1])) as journal:
    for start in range(len(journal), 100_000, 7):
        entries = {str(n): {"text": "é" * (n % 50)} for n in range(start, start + 7)}
        if start % 2:
            journal.append(entries)
        else:  # the kernel holds what write() got, synced or not
            for key, value in entries.items():
                journal.write(key, value)
        print(len(journal), flush=True)
"""


def written(path: Path, entries: dict[str, Any]) -> bytes:
    with Journal(path) as journal:
        journal.append(entries)
    return path.read_bytes()


def test_entries_are_read_back(tmp_path: Path) -> None:
    path = tmp_path / "very" / "deep" / "journal.jsonl"
    written(path, {"a:0": {"text": HOSTILE}, "b:1": [1, None]})
    with Journal(path) as journal:
        assert journal["a:0"] == {"text": HOSTILE}
        assert journal["b:1"] == [1, None]
        assert len(journal) == 2
        assert "c" not in journal
        with pytest.raises(KeyError):
            journal["c"]
    assert path.read_bytes().count(b"\n") == 2


def test_a_known_key_or_a_bad_one_is_refused(tmp_path: Path) -> None:
    with Journal(tmp_path / "j") as journal:
        journal.append({"a": 1})
        with pytest.raises(ValueError, match="already answered"):
            journal.append({"a": 2})
        with pytest.raises(ValueError, match="already answered"):
            journal.write("a", 2)
        with pytest.raises(ValueError, match="journal key"):
            journal.append({'a"': 1})
        assert len(journal) == 1


def test_one_entry_at_a_time_and_a_batch_give_the_same_bytes(tmp_path: Path) -> None:
    entries = {f"k{n}:0": {"text": HOSTILE, "tokens": n} for n in range(150)}
    whole = written(tmp_path / "batch", entries)
    with Journal(tmp_path / "single") as journal:
        for key, value in entries.items():
            journal.write(key, value)
            assert journal[key] == value
    assert (tmp_path / "single").read_bytes() == whole


def test_the_entries_that_a_run_read_are_known_by_their_bytes(tmp_path: Path) -> None:
    path = tmp_path / "j"
    whole = written(path, {"a": 1, "b": 22, "c": 333, "d": 4444})
    ends = [place + 1 for place, byte in enumerate(whole) if byte == ord("\n")]
    with Journal(path) as journal:
        assert journal.used() == []
        assert [journal["b"], journal["b"]] == [22, 22]
        assert journal.used() == [[ends[0], ends[1]]]
        assert journal["d"] == 4444
        assert journal.used() == [[ends[0], ends[1]], [ends[2], ends[3]]]
        assert journal["c"] == 333
        assert journal.used() == [[ends[0], ends[3]]]


def test_entries_are_on_disk_after_64_of_them_or_a_second(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fsync, clock = os.fsync, SimpleNamespace(now=5.0)
    synced: list[None] = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: synced.append(fsync(descriptor)))
    monkeypatch.setattr("pathfinder.engines.journal.time", SimpleNamespace(monotonic=lambda: clock.now))
    with Journal(tmp_path / "j") as journal:
        assert len(synced) == 1  # the folder, which has a new file
        seen = []
        for n in range(128):
            journal.write(str(n), n)
            seen.append(len(synced))
        assert seen == [1] * 63 + [2] * 64 + [3]
        for seconds, expected in ((0.5, 3), (0.5, 3), (0.5, 4), (0.5, 4), (0.6, 5)):
            clock.now += seconds
            journal.write(str(clock.now), None)
            assert len(synced) == expected
        journal.append({"last": 1})
        journal.append({})
        assert len(synced) == 6
        clock.now += 0.9
        journal.sync()
        clock.now += 0.9
        journal.write("after-a-sync", None)
        assert len(synced) == 6
    assert len(synced) == 7


def test_half_a_line_on_a_full_disk_is_removed_before_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = written(tmp_path / "undisturbed", {"a": HOSTILE, "b": HOSTILE})
    write, room = os.write, [10]

    def full(descriptor: int, line: bytes) -> int:
        if not room:
            raise OSError(28, "No space left on device")
        return write(descriptor, line[: room.pop()])

    with Journal(tmp_path / "j") as journal:
        journal.append({"a": HOSTILE})
        with monkeypatch.context() as disk:
            disk.setattr(os, "write", full)
            with pytest.raises(OSError, match=f"No space left.*{tmp_path}/j"):
                journal.append({"b": HOSTILE})
        assert (tmp_path / "j").read_bytes() == whole[: len(whole) // 2]
        assert "b" not in journal
        journal.append({"b": HOSTILE})
    assert (tmp_path / "j").read_bytes() == whole


def test_a_torn_last_line_is_removed_wherever_it_is_cut(tmp_path: Path) -> None:
    path = tmp_path / "j"
    whole = written(path, {"a": "first", "b": "second", "c": HOSTILE})
    ends = [place + 1 for place, byte in enumerate(whole) if byte == ord("\n")]
    for cut in range(len(whole) + 1):
        path.write_bytes(whole[:cut])
        with Journal(path) as journal:
            kept = sum(end <= cut for end in ends)
            assert len(journal) == kept
            missing = {
                key: value for key, value in (("a", "first"), ("b", "second"), ("c", HOSTILE)) if key not in journal
            }
            journal.append(missing)
        assert path.read_bytes() == whole


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_damage_before_the_end_is_refused_with_its_line(data: st.DataObject) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "j"
        whole = written(path, {"a": "first", "b": "second", "c": "third"})
        last_start = whole.rstrip(b"\n").rfind(b"\n") + 1
        place = data.draw(st.integers(0, last_start - 1))
        value = data.draw(st.integers(0, 255).filter(lambda v: v != whole[place]))
        path.write_bytes(whole[:place] + bytes([value]) + whole[place + 1 :])
        with pytest.raises(DataError, match=r"j:[12]: (damaged|. occurs)"):
            Journal(path)


def test_a_repeated_line_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "j"
    path.write_bytes(written(path, {"a": 1}) * 2)
    with pytest.raises(DataError, match="j:2: a occurs twice"):
        Journal(path)


def test_the_lock_excludes_a_second_writer_and_ends_with_a_dead_one(tmp_path: Path) -> None:
    path = tmp_path / "j"
    with subprocess.Popen([sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        other.stdout.readline()
        with pytest.raises(DataError, match="another process"):
            Journal(path)
        other.send_signal(signal.SIGKILL)
    with Journal(path) as journal:
        assert len(journal) >= 7


def test_nothing_acknowledged_is_lost_over_many_kills(tmp_path: Path) -> None:
    path = tmp_path / "j"
    acknowledged = 0
    for round_ in range(3):
        with subprocess.Popen([sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, text=True) as writer:
            assert writer.stdout is not None
            writer.stdout.readline()
            time.sleep(0.02 * (round_ + 1))
            writer.send_signal(signal.SIGKILL)
            reported = writer.stdout.read().split()
        acknowledged = max([acknowledged, *(int(line) for line in reported[:-1])])
        with Journal(path) as journal:
            assert len(journal) >= acknowledged
            for n in range(len(journal)):
                assert journal[str(n)] == {"text": "é" * (n % 50)}
    assert acknowledged > 0
