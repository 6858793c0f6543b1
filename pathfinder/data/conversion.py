"""Convert the upstream files of one source folder into trajectories, rated steps and quarantined records.

The unit of all counts is the record: a rated step or an alternative. A line that cannot be read counts as one
quarantined record.
"""

from __future__ import annotations

import hashlib
import os
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow

from ground.io import DataError, sha256_file
from ground.progress import Progress
from ground.recording import report_as
from pathfinder.core.labels import FOLDERS
from pathfinder.core.params import Prepare, Preset
from pathfinder.core.records import (
    DROPS,
    LINES,
    QUARANTINE,
    STEPS,
    TRAJECTORIES,
    content_id,
    problem_id,
    record_id,
    trajectory_id,
)
from pathfinder.core.tables import TableWriter, arrow_table
from pathfinder.data.metrics import Lines, Upstream
from pathfinder.data.monte_carlo import RLHFLOW, SHEPHERD, read_monte_carlo
from pathfinder.data.prm800k import SOURCE as PRM800K
from pathfinder.data.prm800k import read_prm800k
from pathfinder.data.upstream import Reading, UnreadableError, data_files, decoded, read_batches

READERS: dict[str, tuple[Callable[[Any, Preset], Reading], str]] = {
    FOLDERS[PRM800K]: (read_prm800k, PRM800K),
    FOLDERS[RLHFLOW]: (read_monte_carlo, RLHFLOW),
    FOLDERS[SHEPHERD]: (read_monte_carlo, SHEPHERD),
}
"""For each folder, the reader of its lines, and the source to which an unreadable line counts."""
SCHEMAS = {"trajectories": TRAJECTORIES, "steps": STEPS, "quarantine": QUARANTINE, "lines": LINES, "dropped": DROPS}
KEYS: dict[str, Any] = {"key": pl.UInt64(), "rating": pl.Int8()}
OF_BATCH = {**SCHEMAS, "keys": KEYS}
"""The tables of a batch: the stage's tables, and the record keys, which only serve to count repeats."""
_IN_PROCESS_BYTES = 32_000_000  # converting a smaller folder takes less time than starting worker processes
_MOST_WORKERS = 8  # one process reads all lines and writes all rows; more workers only take memory
Rows = list[tuple[Any, ...]]


@dataclass(slots=True)
class Counts:
    """Lines and records of one source."""

    lines: int = 0
    lines_quarantined: int = 0
    kept: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    quarantined: Counter[str] = field(default_factory=Counter)
    notes: Counter[str] = field(default_factory=Counter)

    @property
    def read(self) -> int:
        """The number of records."""
        return self.kept + self.dropped.total() + self.quarantined.total()

    def figures(self) -> Upstream:
        """The counts as metrics."""
        lines, bad = self.lines, self.lines_quarantined
        return Upstream(
            read=self.read,
            kept=self.kept,
            dropped=dict(self.dropped),
            quarantined=dict(self.quarantined),
            lines=Lines(read=lines, kept=lines - bad, quarantined=bad),
            notes={name: count for name, count in self.notes.items() if count},
        )

    def __add__(self, other: Counts) -> Counts:
        return Counts(*(getattr(self, item.name) + getattr(other, item.name) for item in fields(self)))


def repeat_figures(keys: Iterable[pyarrow.Table]) -> dict[str, Any]:
    """The records that repeat an earlier one (problem, prefix and step), and the steps with different ratings."""
    frame = pl.DataFrame(pyarrow.concat_tables([arrow_table(KEYS, []), *keys]))
    ratings = frame.drop_nulls("rating").group_by("key").agg(pl.col("rating").n_unique())
    conflicts = ratings.filter(pl.col("rating") > 1)
    return {"exact_repeats": len(frame) - frame["key"].n_unique(), "conflicting_ratings": len(conflicts)}


def _record_keys(reading: Reading) -> Iterator[tuple[int, int | None]]:
    """The hash of (problem, prefix, step) of each record, and its rating."""
    prefixes = [hashlib.blake2b(reading.problem.encode(), digest_size=16).digest()]
    for step in reading.trunk:
        prefixes.append(hashlib.blake2b(prefixes[-1] + step.encode(), digest_size=16).digest())
    for record in reading.records:
        key = hashlib.blake2b(prefixes[record.step_index] + record.text.encode(), digest_size=8).digest()
        yield int.from_bytes(key, "little"), record.rating


@dataclass(frozen=True, slots=True)
class Batch:
    """List ``number``, from 0, of the lines of one file (``read_batches``); ``digest`` is the file's."""

    folder: str
    file: str  # below artifacts/raw
    digest: str
    preset: Preset
    number: int
    lines: list[tuple[int, Any]]
    bytes: int  # of the file, read for these lines


@dataclass(frozen=True, slots=True)
class Converted:
    """The result of a batch: rows by table (``OF_BATCH``), counts by source, and its bytes of the file."""

    number: int
    tables: dict[str, pyarrow.Table]
    counts: dict[str, Counts]
    bytes: int


def convert_batch(batch: Batch) -> Converted:
    """Convert lines to rows; a line that raises ``UnreadableError`` is quarantined."""
    read, default_source = READERS[batch.folder]
    rows: dict[str, Rows] = {name: [] for name in OF_BATCH}
    counts: defaultdict[str, Counts] = defaultdict(Counts)
    for line, raw in batch.lines:
        value = raw
        try:
            value = decoded(raw)
            reading = read(value, batch.preset)
        except UnreadableError as error:
            identity = trajectory_id(default_source, batch.digest, line)
            rows["lines"].append((identity, content_id(value), default_source, batch.file, line, None, 0, error.reason))
            counts[default_source] += Counts(1, 1, quarantined=Counter({error.reason: 1}))
            rows["quarantine"].append((batch.folder, batch.file, line, None, error.reason, error.detail))
        else:
            identity = trajectory_id(reading.source, batch.digest, line)
            of_line = (content_id(value), reading.source, batch.file, line, reading.rater, len(reading.records), None)
            rows["lines"].append((identity, *of_line))
            counts[reading.source] += _add_rows(reading, identity, batch, line, rows)
            rows["keys"].extend(_record_keys(reading))
    tables = {name: arrow_table(schema, rows[name]) for name, schema in OF_BATCH.items()}
    return Converted(batch.number, tables, dict(counts), batch.bytes)


def _add_rows(reading: Reading, trajectory: str, batch: Batch, line: int, rows: Mapping[str, Rows]) -> Counts:
    source, kept = reading.source, len(reading.records)
    rows["dropped"].extend(
        (record_id(trajectory, lost.position, lost.completion), lost.reason) for lost in reading.lost
    )
    for bad in reading.set_aside:
        identity = record_id(trajectory, bad.position, bad.completion)
        rows["quarantine"].append((batch.folder, batch.file, line, identity, bad.reason, bad.detail))
    notes = reading.notes
    if kept:
        problem = problem_id(reading.problem)
        rows["trajectories"].append((trajectory, source, batch.file, line, problem, reading.problem, reading.trunk))
        rows["steps"].extend(
            (record_id(trajectory, position, completion), trajectory, source, step_index, completion, text, rating)
            for position, completion, step_index, text, rating in reading.records
        )
        notes["null_ratings"] += sum(record.rating is None for record in reading.records)
    else:
        notes["lines_without_records"] += 1
    return Counts(1, 0, kept, reading.dropped, Counter(bad.reason for bad in reading.set_aside), notes)


@dataclass(frozen=True, slots=True)
class Source:
    """A folder below artifacts/raw that ``READERS`` names, and the sha256 of its files by path."""

    folder: Path
    digests: dict[Path, str]

    @property
    def size(self) -> int:
        """The bytes of all files."""
        return sum(file.stat().st_size for file in self.digests)

    def name(self, file: Path) -> str:
        """A file's path below artifacts/raw."""
        return file.relative_to(self.folder.parent).as_posix()

    def batches(self, file: Path, preset: Preset) -> Iterator[Batch]:
        """The batches of a file; their order and content depend only on the file."""
        name, digest = self.name(file), self.digests[file]
        numbered = enumerate(read_batches(file))
        return (Batch(self.folder.name, name, digest, preset, number, *batch) for number, batch in numbered)


def open_source(folder: Path) -> Source:
    """The files of a source folder; raises ``DataError`` if no file has records."""
    files = data_files(folder)
    if not files:
        raise DataError(f"{folder}: no file with records (.jsonl, .json, .parquet, also .gz); see params: download")
    return Source(folder, {file: sha256_file(file) for file in files})


def open_sources(folders: Iterable[Path]) -> list[Source]:
    """The files of several source folders.

    Raises ``DataError`` as ``open_source``, and for two equal files, because their records would have the same ids.
    """
    sources, first = [open_source(folder) for folder in folders], dict[str, str]()
    for source in sources:
        for file, digest in source.digests.items():
            other = first.setdefault(digest, source.name(file))
            if other != source.name(file) and file.stat().st_size:
                raise DataError(f"{source.name(file)}: equal to {other}; remove one of them from download.sources")
    return sources


Finished = Callable[[], Converted]
"""Reads a batch that is already converted."""
Work = Callable[[Source, Path], Iterable[Batch | Finished]]
"""The batches of a file of a source, in order, each as lines or converted."""
Workers = Callable[[Iterable[Batch | Finished]], Iterator[Converted]]


def convert_source(
    source: Source, settings: Prepare, tables: Mapping[str, TableWriter], keys: list[pyarrow.Table], work: Work
) -> dict[str, Counts]:
    """Convert every file of ``source``; returns the counts by source.

    Rows are added to ``tables``, and the keys of the records to ``keys`` (for ``repeat_figures``). Raises ``DataError``
    if there is no record, or if more than ``max_quarantined_share`` of the lines or records are unreadable.
    """
    counts: defaultdict[str, Counts] = defaultdict(Counts)
    with Progress(f"prepare {source.folder.name}", source.size, "B") as progress, workers(source.size) as convert:
        for file in source.digests:
            left = file.stat().st_size
            for converted in convert(work(source, file)):
                for name, table in tables.items():
                    table.add_table(converted.tables[name])
                for name, found in converted.counts.items():
                    counts[name] += found
                keys.append(converted.tables["keys"])
                progress.advance(converted.bytes)
                left -= converted.bytes
            progress.advance(left)
    _check(source.folder, sum(counts.values(), Counts()), settings.max_quarantined_share)
    return dict(counts)


@contextmanager
def workers(size: int) -> Iterator[Workers]:
    """A function that converts batches in order: in this process or, for large ``size`` (bytes), in workers."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    count = min(cores, _MOST_WORKERS)
    if size < _IN_PROCESS_BYTES or count < 2:
        yield lambda items: (item() if callable(item) else convert_batch(item) for item in items)
        return
    # spawn: a fork would copy the threads of this process in an unknown state
    context = get_context("spawn")
    with ProcessPoolExecutor(count, context, initializer=report_as, initargs=("converter",)) as pool:

        def convert(items: Iterable[Batch | Finished]) -> Iterator[Converted]:
            waiting = deque[Finished]()
            for item in items:
                waiting.append(item if callable(item) else pool.submit(convert_batch, item).result)
                if len(waiting) > 2 * count:  # limits how many batches are in memory
                    yield waiting.popleft()()
            while waiting:
                yield waiting.popleft()()

        yield convert


def _check(folder: Path, counts: Counts, limit: float) -> None:
    if not counts.read:
        raise DataError(f"{folder}: its files hold no record; fetch them again, or correct download.sources")
    quarantined = counts.quarantined.total()
    if counts.lines_quarantined > limit * counts.lines or quarantined > limit * counts.read:
        raise DataError(
            f"{folder}: {counts.lines_quarantined} of {counts.lines} lines and {quarantined} of {counts.read} records "
            f"cannot be read ({dict(counts.quarantined)}), more than prepare.max_quarantined_share = {limit}; "
            "look at the files (the list is .pathfinder/prepare/quarantine.jsonl), or raise the share"
        )
