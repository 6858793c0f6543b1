"""Parts of a stage's work: who owns an item, and which stored parts a stage uses."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from ground.io import DataError, sha256_file, write_text
from pathfinder.core.parts import SEAL, Part, Parts


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def parts_of(**inputs: Any) -> Parts:
    return Parts("prepare", lambda: inputs)


def write(parts: Parts, text: str) -> Path:
    part = Part.parse(text)
    with parts.writing(part) as folder:
        write_text(folder / "deep/rows.txt", f"rows of {part}")
    return parts.folder(part)


@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_every_item_belongs_to_exactly_one_part(count: int) -> None:
    parts = [Part.parse(f"{number}/{count}") for number in range(1, count + 1)]
    assert all(sum(part.has(item) for part in parts) == 1 for item in [*range(50), 2**64])
    assert [Part.parse(str(part)) for part in parts] == parts


@pytest.mark.parametrize("text", ["", "0/3", "4/3", "1/0", "1", "a/b", "1/3/", "-1/3", "1 /3", "01/3", "1/3\n", "²/³"])
def test_other_texts_are_no_part(text: str) -> None:
    with pytest.raises(DataError, match="expected NUMBER/COUNT, for example 2/3"):
        Part.parse(text)


def test_stored_parts_are_found_in_order_and_enter_the_record(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = parts_of(files="a")
    assert parts.collect() == {}
    second, first = write(parts, "2/3"), write(parts, "1/3")
    notes = Path("notes")
    monkeypatch.setenv("RECORDER_NOTES", str(notes))
    found = parts.collect()
    assert list(found.items()) == [(Part(3, 1), first), (Part(3, 2), second)]
    digests = {part: sha256_file(path / SEAL) for part, path in (("1-of-3", first), ("2-of-3", second))}
    assert json.loads(notes.read_text()) == {"parts": digests}


def test_parts_of_other_inputs_have_another_folder(capsys: pytest.CaptureFixture[str]) -> None:
    write(parts_of(files="a"), "1/1")
    assert parts_of(files="b").collect() == {}
    assert "prepare: parts of other inputs or code, not used: 1" in capsys.readouterr().err
    assert parts_of(files="a").collect()
    assert "other inputs" not in capsys.readouterr().err


def test_the_count_with_the_largest_share_is_used() -> None:
    parts = parts_of(files="a")
    for text in ("1/3", "2/3", "1/2", "4/7"):
        write(parts, text)
    assert [str(part) for part in parts.collect()] == ["1-of-3", "2-of-3"]
    write(parts, "1/1")
    assert [str(part) for part in parts.collect()] == ["1-of-1"]


def test_a_part_of_other_inputs_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    other, parts = parts_of(files="other"), parts_of(files="a")
    write(parts, "2/2")
    shutil.copytree(write(other, "1/2"), parts.folder(Part(2, 1)))
    assert [str(part) for part in parts.collect()] == ["2-of-2"]
    assert "1-of-2: not used: it was made from other inputs or by other code" in capsys.readouterr().err


@pytest.mark.parametrize(
    "name, content, says",
    [
        ("deep/rows.txt", "rows of 1-of-2 ", "its files do not have the digests in part.json"),
        ("more.txt", "", "its files do not have the digests in part.json"),
        (SEAL, "{", "part.json cannot be read"),
        (SEAL, "[]", "part.json names another part"),
    ],
)
def test_a_damaged_part_is_refused(name: str, content: str, says: str, capsys: pytest.CaptureFixture[str]) -> None:
    parts = parts_of(files="a")
    path = write(parts, "1/2")
    (path / name).write_text(content)
    assert parts.collect() == {}
    assert says in capsys.readouterr().err


def test_a_renamed_part_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    parts = parts_of(files="a")
    write(parts, "1/2").rename(parts.folder(Part(2, 2)))
    assert parts.collect() == {}
    assert "part.json names another part" in capsys.readouterr().err


def test_an_interrupted_part_leaves_nothing() -> None:
    parts = parts_of(files="a")
    with pytest.raises(KeyboardInterrupt), parts.writing(Part(2, 1)) as folder:
        write_text(folder / "rows.txt", "half")
        raise KeyboardInterrupt
    assert list(parts.folder(Part(2, 1)).parent.iterdir()) == []


def test_only_parts_of_the_same_inputs_are_deleted() -> None:
    other, parts = parts_of(files="other"), parts_of(files="a")
    kept = [write(other, "1/2"), parts.folder(Part(2, 1)).with_name("notes")]
    kept[1].mkdir()
    for text in ("1/2", "2/3"):
        write(parts, text)
    parts.clear()
    assert sorted((Path(".pathfinder/parts/prepare")).iterdir()) == sorted(kept)
