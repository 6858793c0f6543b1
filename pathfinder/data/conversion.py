"""Convert the upstream files of one source folder into trajectories, rated steps and quarantined records.

Counts are records, that is, rated steps or alternatives. A line that cannot be read counts as one quarantined record.
"""

from __future__ import annotations

import hashlib
import os
from array import array
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow

from pathfinder.core.io import DataError, sha256_file
from pathfinder.core.progress import Progress
from pathfinder.core.records import QUARANTINE, STEPS, TRAJECTORIES, problem_id, record_id, trajectory_id
from pathfinder.core.tables import TableWriter, arrow_table
from pathfinder.data.monte_carlo import RLHFLOW, SHEPHERD, read_monte_carlo
from pathfinder.data.prm800k import SOURCE as PRM800K
from pathfinder.data.prm800k import read_prm800k
from pathfinder.data.upstream import ConversionPreset, Reading, UnreadableError, data_files, decoded, read_batches

READERS: dict[str, tuple[Callable[[Any, ConversionPreset], Reading], str]] = {
    "prm800k": (read_prm800k, PRM800K),
    "mistral": (read_monte_carlo, RLHFLOW),
    "math_shepherd": (read_monte_carlo, SHEPHERD),
}
"""Per folder, the reader of its lines, and the source that an unreadable line is counted for."""
SCHEMAS = {"trajectories": TRAJECTORIES, "steps": STEPS, "quarantine": QUARANTINE}
_IN_PROCESS_BYTES = 32_000_000  # smaller folders are converted before worker processes would have started
_UNRATED = 9
Rows = list[tuple[Any, ...]]


@dataclass(slots=True)
class Counts:
    """Lines and records of one source."""

    lines: int = 0
    lines_quarantined: int = 0
    read: int = 0
    kept: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    quarantined: Counter[str] = field(default_factory=Counter)
    notes: Counter[str] = field(default_factory=Counter)

    def figures(self) -> dict[str, Any]:
        """The counts as metrics; raises ``DataError`` if they do not add up."""
        if self.read != self.kept + self.dropped.total() + self.quarantined.total():
            raise DataError(f"the counts of prepare do not add up: {self}; this is a defect of the stage, report it")
        return {
            "read": self.read,
            "kept": self.kept,
            "dropped": dict(self.dropped),
            "quarantined": dict(self.quarantined),
            "lines": {
                "read": self.lines,
                "kept": self.lines - self.lines_quarantined,
                "quarantined": self.lines_quarantined,
            },
            "notes": {name: count for name, count in self.notes.items() if count},
        }

    def __add__(self, other: Counts) -> Counts:
        return Counts(*(getattr(self, item.name) + getattr(other, item.name) for item in fields(self)))


class Repeats:
    """Finds repeated (problem, prefix, step) keys and conflicting ratings; nine bytes per record."""

    def __init__(self) -> None:
        self._keys = array("Q")
        self._ratings = array("b")

    def add(self, reading: Reading) -> None:
        """Add the records of a line."""
        prefixes = [hashlib.blake2b(reading.problem.encode(), digest_size=16).digest()]
        for step in reading.trunk:
            prefixes.append(hashlib.blake2b(prefixes[-1] + step.encode(), digest_size=16).digest())
        for record in reading.records:
            key = hashlib.blake2b(prefixes[record.step_index] + record.text.encode(), digest_size=8).digest()
            self._keys.append(int.from_bytes(key, "little"))
            self._ratings.append(_UNRATED if record.rating is None else record.rating)

    def extend(self, other: Repeats) -> None:
        """Add the records of ``other``."""
        self._keys.extend(other._keys)
        self._ratings.extend(other._ratings)

    def figures(self) -> dict[str, int]:
        """The records that repeat an earlier one, and the keys with different ratings (null is not a rating)."""
        frame = pl.DataFrame({"key": pl.Series(self._keys, dtype=pl.UInt64), "rating": pl.Series(self._ratings)})
        rated = frame.filter(pl.col("rating") != _UNRATED)
        conflicts = rated.group_by("key").agg(pl.col("rating").n_unique()).filter(pl.col("rating") > 1)
        return {"exact_repeats": len(frame) - frame["key"].n_unique(), "conflicting_ratings": len(conflicts)}


@dataclass(frozen=True, slots=True)
class Batch:
    """Lines of one file, as ``read_batches`` yields them; ``digest`` is that of the file."""

    folder: str
    file: str  # below artifacts/raw
    digest: str
    preset: ConversionPreset
    lines: list[tuple[int, Any]]

    @property
    def bytes(self) -> int:
        """The size of the lines that are text."""
        return sum(len(value) for _, value in self.lines if isinstance(value, bytes))


@dataclass(frozen=True, slots=True)
class Converted:
    """The result of a batch: rows by table, counts by source, and its repeats."""

    tables: dict[str, pyarrow.Table]
    counts: dict[str, Counts]
    repeats: Repeats


def convert_batch(batch: Batch) -> Converted:
    """Convert lines to rows; the result depends only on the batch."""
    read, default_source = READERS[batch.folder]
    rows: dict[str, Rows] = {name: [] for name in SCHEMAS}
    counts: defaultdict[str, Counts] = defaultdict(Counts)
    repeats = Repeats()
    for line, raw in batch.lines:
        try:
            value = decoded(raw)
            if isinstance(value, UnreadableError):
                raise value
            reading = read(value, batch.preset)
        except UnreadableError as error:
            counts[default_source] += Counts(1, 1, 1, quarantined=Counter({error.reason: 1}))
            rows["quarantine"].append((batch.folder, batch.file, line, None, error.reason, error.detail))
        else:
            counts[reading.source] += _add_rows(reading, batch, line, rows)
            repeats.add(reading)
    return Converted({name: arrow_table(SCHEMAS[name], rows[name]) for name in SCHEMAS}, dict(counts), repeats)


def _add_rows(reading: Reading, batch: Batch, line: int, rows: Mapping[str, Rows]) -> Counts:
    source, kept = reading.source, len(reading.records)
    trajectory = trajectory_id(source, batch.digest, line)
    for bad in reading.set_aside:
        identity = record_id(trajectory, bad.position, bad.completion)
        rows["quarantine"].append((batch.folder, batch.file, line, identity, bad.reason, bad.detail))
    notes = Counter(reading.notes)
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
    read = kept + len(reading.set_aside) + reading.dropped.total()
    return Counts(1, 0, read, kept, reading.dropped, Counter(bad.reason for bad in reading.set_aside), notes)


def convert_folder(
    raw: Path,
    folder: str,
    preset: ConversionPreset,
    limit: float,
    tables: Mapping[str, TableWriter],
    repeats: Repeats,
) -> dict[str, Counts]:
    """Convert every file of ``raw / folder`` into ``tables``; returns the counts by source.

    Raises ``DataError`` if the folder has no records, or if a share above ``limit`` of its lines or records is
    unreadable.
    """
    files = data_files(raw / folder)
    if not files:
        raise DataError(
            f"{raw / folder}: no file with records (.jsonl, .json, .parquet, also .gz); see params: download"
        )
    counts: defaultdict[str, Counts] = defaultdict(Counts)
    size = sum(file.stat().st_size for file in files)
    with Progress(f"prepare {folder}", size, "B") as progress, _workers(size) as convert:
        for file in files:
            left = file.stat().st_size
            name, digest = file.relative_to(raw).as_posix(), sha256_file(file)
            batches = (Batch(folder, name, digest, preset, lines) for lines in read_batches(file))
            for batch, converted in convert(batches):
                for table, rows in converted.tables.items():
                    tables[table].add_table(rows)
                for source, found in converted.counts.items():
                    counts[source] += found
                repeats.extend(converted.repeats)
                done = 0 if file.suffix == ".gz" else min(batch.bytes, left)  # compressed sizes do not compare
                left -= done
                progress.advance(done)
            progress.advance(left)
    _check(raw / folder, sum(counts.values(), Counts()), limit)
    return dict(counts)


@contextmanager
def _workers(size: int) -> Iterator[Callable[[Iterable[Batch]], Iterator[tuple[Batch, Converted]]]]:
    """A function that converts batches in order: in this process, or in worker processes if ``size`` bytes are many."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if size < _IN_PROCESS_BYTES or count < 2:
        yield lambda batches: ((batch, convert_batch(batch)) for batch in batches)
        return
    # spawn: a fork would copy the threads of this process in an unknown state
    with ProcessPoolExecutor(count, mp_context=get_context("spawn")) as pool:

        def convert(batches: Iterable[Batch]) -> Iterator[tuple[Batch, Converted]]:
            waiting = deque[tuple[Batch, Future[Converted]]]()
            for batch in batches:
                waiting.append((batch, pool.submit(convert_batch, batch)))
                if len(waiting) > 2 * count:  # limits how many batches are in memory
                    ready, future = waiting.popleft()
                    yield ready, future.result()
            for ready, future in waiting:
                yield ready, future.result()

        yield convert


def _check(folder: Path, counts: Counts, limit: float) -> None:
    quarantined = counts.quarantined.total()
    too_many = counts.lines_quarantined > limit * counts.lines or quarantined > limit * counts.read
    if not counts.lines or too_many:
        raise DataError(
            f"{folder}: {counts.lines_quarantined} of {counts.lines} lines and {quarantined} of {counts.read} records "
            f"cannot be read ({dict(counts.quarantined)}), more than prepare.max_quarantined_share = {limit}; "
            "look at the files, or raise the share"
        )
