"""Parts of the conversion: they take each file's batches in turn, and the file's digest decides which part begins.

A part holds, per batch, what ``convert_batch`` returned: the rows as one row group of a Parquet file per table, the
rest in ``batches.json``. The stage adds them in the order of the input, so its tables have the same bytes as from one
process.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.parquet

from ground.io import read_json, write_json
from ground.progress import Progress
from pathfinder.core.params import Preset
from pathfinder.core.parts import Part, Parts
from pathfinder.core.tables import TableWriter, table_writers
from pathfinder.data.conversion import OF_BATCH, Batch, Converted, Counts, Finished, Source, workers

_BATCHES = "batches.json"


def conversion_parts(sources: Sequence[Source], preset: Preset) -> Parts:
    """The parts of converting ``sources``."""

    def identity() -> dict[str, Any]:
        digests = {source.name(file): digest for source in sources for file, digest in source.digests.items()}
        return {"files": digests, "preset": preset}

    return Parts("prepare", identity)


def write_part(parts: Parts, part: Part, sources: Sequence[Source], preset: Preset) -> None:
    """Convert the batches of ``part`` and store them."""
    batches, totals = list[dict[str, Any]](), dict[str, int]()
    with parts.writing(part) as folder:
        with table_writers(folder, OF_BATCH) as tables:
            for source in sources:
                share = source.size // part.count
                title = f"prepare {source.folder.name}, part {part.number} of {part.count}"
                with Progress(title, share, "B") as progress, workers(share) as convert:
                    for file in source.digests:
                        name = source.name(file)
                        for converted in convert(_own(source, file, preset, part, totals)):
                            _add(converted, tables)
                            batches.append({"file": name, **_as_json(converted)})
                            progress.advance(converted.bytes)
        write_json(folder / _BATCHES, {"batches": batches, "totals": totals})


def _own(source: Source, file: Path, preset: Preset, part: Part, totals: dict[str, int]) -> Iterator[Batch]:
    """The part's own batches of a file; ``totals`` counts all batches."""
    name, first = source.name(file), int(source.digests[file][:8], 16)
    totals[name] = 0
    for batch in source.batches(file, preset):
        totals[name] += 1
        if part.has(first + batch.number):
            yield batch


def _add(converted: Converted, tables: Mapping[str, TableWriter]) -> None:
    for name, table in tables.items():
        table.add_table(converted.tables[name])
        table.flush()


class FinishedBatches:
    """The batches that parts have converted."""

    def __init__(self, folders: Mapping[Part, Path], preset: Preset) -> None:
        self._preset = preset
        self._totals: dict[str, int] = {}
        self._found: dict[tuple[str, int], Finished] = {}
        for folder in folders.values():
            index = read_json(folder / _BATCHES)
            self._totals |= index["totals"]
            files = {name: pyarrow.parquet.ParquetFile(folder / f"{name}.parquet") for name in OF_BATCH}
            for place, entry in enumerate(index["batches"]):
                self._found[entry["file"], entry["number"]] = partial(_read, files, place, entry)

    def work(self, source: Source, file: Path) -> Iterator[Batch | Finished]:
        """The batches of a file; it is not read if all batches are converted."""
        name = source.name(file)
        total = self._totals.get(name)
        if total is not None and all((name, number) in self._found for number in range(total)):
            yield from (self._found[name, number] for number in range(total))
            return
        for batch in source.batches(file, self._preset):
            yield self._found.get((name, batch.number), batch)


def _read(files: Mapping[str, pyarrow.parquet.ParquetFile], place: int, entry: Mapping[str, Any]) -> Converted:
    tables = {name: file.read_row_group(place) for name, file in files.items()}
    counts = {source: _counts(found) for source, found in entry["counts"].items()}
    return Converted(entry["number"], tables, counts, entry["bytes"])


def _as_json(converted: Converted) -> dict[str, Any]:
    counts = {
        source: {item.name: getattr(found, item.name) for item in fields(found)}
        for source, found in converted.counts.items()
    }
    return {"number": converted.number, "bytes": converted.bytes, "counts": counts}


def _counts(values: Mapping[str, Any]) -> Counts:
    counted: dict[str, Any] = {name: Counter(v) if isinstance(v, dict) else v for name, v in values.items()}
    return Counts(**counted)
