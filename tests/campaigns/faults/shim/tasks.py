"""Small pieces of work for every writer of the library, for runs under one fault at one system call.

A task's ``_before`` makes the files that it finds, and the task itself can be repeated until it succeeds.
"""

from __future__ import annotations

from pathlib import Path

import polars as pl

from evidence.remote.publication import commit_manifest
from ground import io
from ground.recording import listen
from ground.remote import open_store
from pathfinder.core.parts import Part, Parts
from pathfinder.core.tables import table_writer
from pathfinder.engines.journal import Journal

FOLDER, STORE = Path("folder"), Path("store")
_ROWS = pl.DataFrame({"id": [f"record-{number}" for number in range(300)], "value": range(300)})
_WIDE = pl.DataFrame({f"column_{number}": ["text"] * 20 for number in range(60)})  # a write fails within a header


def files_before(_: list[str]) -> None:
    """Former versions of the files and the folder."""
    _write_files("before")


def files(_: list[str]) -> None:
    """Every atomic writer of ``core``."""
    _write_files("after")
    with table_writer(Path("rows.parquet"), dict(_ROWS.schema)) as table:
        for row in _ROWS.iter_rows():
            table.add(*row)


def _write_files(word: str) -> None:
    io.write_text(Path("text.txt.gz"), word * 100)
    io.write_json(Path("value.json"), {"word": word})
    io.write_jsonl(Path("lines.jsonl"), [word] * 10)
    io.write_parquet(Path("table.parquet"), _ROWS.with_columns(word=pl.lit(word)))
    io.write_parquet(Path("wide.parquet"), _WIDE.with_columns(word=pl.lit(word)))
    with io.atomic_folder(FOLDER) as folder:
        io.write_json(folder / "one.json", word)
        (folder / "below").mkdir()
        io.write_json(folder / "below/two.json", word)


def journal_before(_: list[str]) -> None:
    """A journal with three answers."""
    with Journal(Path("journal.jsonl")) as journal:
        for number in range(3):
            journal.write(f"key-{number}", {"answer": "before" * number})


def journal(_: list[str]) -> None:
    """Ask for answers that are missing in the journal, then read all of them."""
    with Journal(Path("journal.jsonl")) as journal:
        for number in range(8):
            if (key := f"key-{number}") not in journal:
                journal.append({key: {"answer": "after" * number}})
        io.write_json(Path("answers.json"), {f"key-{number}": journal[f"key-{number}"] for number in range(8)})


def store_before(_: list[str]) -> None:
    """A store with one object."""
    open_store(str(STORE)).put("objects/one", b"before")


def store(_: list[str]) -> None:
    """Put, create, fetch and delete objects of a store in a folder."""
    opened = open_store(str(STORE))
    opened.put("objects/one", b"after")
    opened.put("objects/two", b"2" * 5000)
    if not opened.create("objects/three", b"three"):
        assert opened.read("objects/three") == b"three"
    opened.put("objects/four", b"")
    opened.delete("objects/four")
    opened.fetch("objects/two", Path("fetched/two"))


def log_before(_: list[str]) -> None:
    """A log with one entry."""
    commit_manifest(open_store(str(STORE)), {"run": 1})


def log(_: list[str]) -> None:
    """Enter a manifest into the log."""
    commit_manifest(open_store(str(STORE)), {"run": 2})


def parts_before(_: list[str]) -> None:
    """The folder is empty before."""


def parts(_: list[str]) -> None:
    """Compute two parts, collect them, write their sum and delete them."""
    listen(code=lambda _: "code")  # as the recorder of a stage does
    stored = Parts("prepare", lambda: {"inputs": "none"})
    found = stored.collect()
    for number in (1, 2):
        if (part := Part(2, number)) not in found:
            with stored.writing(part) as folder:
                io.write_json(folder / "value.json", number)
    total = sum(io.read_json(folder / "value.json") for folder in stored.collect().values())
    io.write_json(Path("total.json"), total)
    stored.clear()
