"""Parts of the conversion: each file's batches are dealt to the parts in turn, the first one by the file's digest.

A part holds, per batch, what ``convert_batch`` returned: the rows as one record batch of an Arrow file per table, the
rest in ``batches.json``. The stage adds them in the order of the input, so its tables have the bytes of one process.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any, Self

import polars as pl
import pyarrow
import pyarrow.ipc

from ground.io import read_json, write_json
from ground.progress import Progress
from pathfinder.core.params import Preset
from pathfinder.core.parts import Part, Parts
from pathfinder.core.tables import arrow_table
from pathfinder.data.conversion import KEYS, SCHEMAS, Batch, Converted, Counts, Finished, Source, workers

_TABLES = {**SCHEMAS, "keys": KEYS}
_BATCHES = "batches.json"
_OPTIONS = pyarrow.ipc.IpcWriteOptions(compression="zstd")


def conversion_parts(sources: Sequence[Source], preset: Preset) -> Parts:
    """The parts of converting ``sources``."""

    def identity() -> dict[str, Any]:
        digests = {source.name(file): digest for source in sources for file, digest in source.digests.items()}
        return {"files": digests, "preset": preset}

    return Parts("prepare", identity)


def write_part(parts: Parts, part: Part, sources: Sequence[Source], preset: Preset) -> None:
    """Convert the batches of ``part`` and store them."""
    with parts.writing(part) as folder, _Writer(folder) as writer:
        for source in sources:
            share = source.size // part.count
            title = f"prepare {source.folder.name}, part {part.number} of {part.count}"
            with Progress(title, share, "B") as progress, workers(share) as convert:
                for file in source.digests:
                    name = source.name(file)
                    for converted in convert(writer.counted(name, _own(source, file, preset, part))):
                        writer.add(name, converted)
                        progress.advance(converted.bytes)


def _own(source: Source, file: Path, preset: Preset, part: Part) -> Iterator[Batch | None]:
    """The batches of a file; batches of other parts are ``None``."""
    first = int(source.digests[file][:8], 16)
    return (batch if part.has(first + batch.number) else None for batch in source.batches(file, preset))


class _Writer:
    """Writes the files of one part into ``folder``."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files = {
            name: pyarrow.ipc.new_file(folder / f"{name}.arrow", arrow_table(schema, []).schema, options=_OPTIONS)
            for name, schema in _TABLES.items()
        }
        self._batches: list[dict[str, Any]] = []
        self._totals: dict[str, int] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for file in self._files.values():
            file.close()
        write_json(self._folder / _BATCHES, {"batches": self._batches, "totals": self._totals})

    def counted(self, name: str, batches: Iterator[Batch | None]) -> Iterator[Batch]:
        """The part's own batches of a file; all are counted."""
        self._totals[name] = 0
        for batch in batches:
            self._totals[name] += 1
            if batch is not None:
                yield batch

    def add(self, name: str, converted: Converted) -> None:
        """Store a batch of file ``name``."""
        keys = converted.keys.to_arrow(compat_level=pl.CompatLevel.oldest())
        for table, rows in {**converted.tables, "keys": keys}.items():
            self._files[table].write_batch(_record_batch(rows))
        counts = {source: _as_json(found) for source, found in converted.counts.items()}
        where = {"file": name, "number": converted.number, "bytes": converted.bytes}
        self._batches.append({**where, "counts": counts})


class FinishedBatches:
    """The batches that parts have converted."""

    def __init__(self, folders: Mapping[Part, Path], preset: Preset) -> None:
        self._preset = preset
        self._totals: dict[str, int] = {}
        self._found: dict[tuple[str, int], Finished] = {}
        for folder in folders.values():
            index = read_json(folder / _BATCHES)
            self._totals |= index["totals"]
            files = {name: pyarrow.ipc.open_file(pyarrow.memory_map(str(folder / f"{name}.arrow"))) for name in _TABLES}
            for place, entry in enumerate(index["batches"]):
                self._found[entry["file"], entry["number"]] = partial(_read, files, place, entry)

    def work(self, source: Source, file: Path) -> Iterator[Batch | Finished]:
        """The batches of a file; it is not read if all of them are converted."""
        name = source.name(file)
        total = self._totals.get(name)
        if total is not None and all((name, number) in self._found for number in range(total)):
            yield from (self._found[name, number] for number in range(total))
            return
        for batch in source.batches(file, self._preset):
            yield self._found.get((name, batch.number), batch)


def _record_batch(table: pyarrow.Table) -> pyarrow.RecordBatch:
    """A table as exactly one record batch, an empty one included."""
    columns = [column.combine_chunks() for column in table.columns]
    return pyarrow.RecordBatch.from_arrays(columns, schema=table.schema)


def _read(files: Mapping[str, Any], place: int, entry: Mapping[str, Any]) -> Converted:
    tables = {name: pyarrow.Table.from_batches([file.get_batch(place)]) for name, file in files.items()}
    keys = pl.DataFrame(pl.from_arrow(tables.pop("keys")), schema=KEYS)
    counts = {source: _counts(found) for source, found in entry["counts"].items()}
    return Converted(entry["number"], tables, counts, keys, entry["bytes"])


def _as_json(counts: Counts) -> dict[str, Any]:
    return {item.name: getattr(counts, item.name) for item in fields(counts)}


def _counts(values: Mapping[str, Any]) -> Counts:
    counted: dict[str, Any] = {name: Counter(v) if isinstance(v, dict) else v for name, v in values.items()}
    return Counts(**counted)
