"""Parts of the search for near duplicates: each distinct text of a training step belongs to one part.

A part finds the matches of its steps in artifacts/steps with benchmark steps, which depend only on the benchmarks; the
build does so for the steps of its trees. Matches of texts that are in no tree have no effect.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow.parquet

from ground.io import read_parquet, sha256_file, write_parquet
from ground.progress import Progress
from pathfinder.core.parts import Part, Parts
from pathfinder.data.overlap import BenchmarkText, StepIndex, StepMatch
from pathfinder.data.trainset import TextMatches

_TABLES = {"trajectories.parquet": "steps", "steps.parquet": "step"}
"""The column with the training texts in each table."""
_MATCHES = "matches.parquet"
_SCHEMA: dict[str, Any] = {
    "text": pl.String(),
    "number": pl.Int64(),
    "is_exact": pl.Boolean(),
    "similarity": pl.Float64(),
    "digest": pl.String(),
}
_ROWS = 50_000


def match_parts(steps: Path, benchmarks: Sequence[Path], sets: Sequence[str], threshold: float) -> Parts:
    """The parts of matching the texts of folder ``steps`` with the benchmarks in these folders."""

    def identity() -> dict[str, Any]:
        files = [file for folder in benchmarks for file in sorted(folder.rglob("*")) if file.is_file()]
        tables = [steps / name for name in _TABLES]
        digests = {file.as_posix(): sha256_file(file) for file in [*tables, *files]}
        return {"files": digests, "sets": list(sets), "threshold": threshold}

    return Parts("build", identity)


def write_part(parts: Parts, part: Part, steps: Path, items: Sequence[BenchmarkText], threshold: float) -> None:
    """Match the steps of ``part`` and store the matches."""
    with parts.writing(part) as folder:
        texts, index = _texts(steps, part), StepIndex(items, threshold)
        title = f"build, part {part.number} of {part.count}"
        with Progress(title, len(texts), "text") as progress:
            rows = []
            for piece in texts.iter_slices(_ROWS):
                rows += list(_rows(index.match(piece["text"])))
                progress.advance(len(piece))
        write_parquet(folder / _MATCHES, pl.DataFrame(sorted(rows), schema=_SCHEMA, orient="row"))


def match_steps(
    texts: pl.Series, items: Sequence[BenchmarkText], threshold: float, folders: Mapping[Part, Path]
) -> tuple[StepIndex, TextMatches]:
    """The benchmark steps, and the texts that match them: it reads the matches of parts and computes the rest.

    It may include matches of texts that are not needed.
    """
    index = StepIndex(items, threshold)
    known = {text: found for folder in folders.values() for text, found in _read(folder / _MATCHES)}
    if folders:
        is_left = [not any(part.has(number) for part in folders) for number in map(_number, texts)]
        texts = texts.filter(pl.Series(is_left, dtype=pl.Boolean))
    return index, known | index.match(texts)


def _number(text: str) -> int:
    """The number of a text, which decides its part: equal on every machine."""
    return zlib.crc32(text.encode())


def _texts(steps: Path, part: Part) -> pl.DataFrame:
    """The distinct texts in ``_TABLES`` that belong to a part, in one column; tables are read in pieces."""
    own = [pl.DataFrame(schema={"text": pl.String()})]
    for name, column in _TABLES.items():
        with pyarrow.parquet.ParquetFile(steps / name) as file:
            for batch in file.iter_batches(batch_size=_ROWS, columns=[column]):
                series = pl.Series(pl.from_arrow(batch.column(0)))
                texts = (series.explode() if series.dtype == pl.List else series).drop_nulls().unique()
                mine = [part.has(_number(text)) for text in texts]
                own.append(texts.filter(pl.Series(mine, dtype=pl.Boolean)).to_frame("text"))
    return pl.concat(own).unique(maintain_order=True)


def _rows(matches: TextMatches) -> Iterator[tuple[Any, ...]]:
    for text, found in matches.items():
        for number, match in found.items():
            yield text, number, match.is_exact, match.similarity, match.digest


def _read(path: Path) -> Iterator[tuple[str, dict[int, StepMatch]]]:
    table = read_parquet(path, _SCHEMA)
    for (text,), rows in table.group_by("text", maintain_order=True):
        columns = rows.select("number", "is_exact", "similarity", "digest").iter_rows()
        yield str(text), {number: StepMatch(*rest) for number, *rest in columns}
