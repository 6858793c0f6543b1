"""Read the upstream files into trajectories and rated steps.

Reads   artifacts/raw/{prm800k,mistral,math_shepherd}, as far as the catalogue names them; params: prepare, download
Writes  artifacts/steps/{trajectories,steps,quarantine}.parquet, metrics/prepare.json
Run     python -m stages.prepare

Counts are records: one rated step or alternative. A line that cannot be read stands for one record, quarantined.
What the two presets do differently: docs/data.md.
"""

from __future__ import annotations

import hashlib
import os
from array import array
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow

from pathfinder.core.io import DataError, sha256_file, write_json
from pathfinder.core.params import load_params
from pathfinder.core.progress import Progress
from pathfinder.core.records import QUARANTINE, STEPS, TRAJECTORIES, problem_id, record_id, trajectory_id
from pathfinder.core.tables import TableWriter, arrow_table, table_writer
from pathfinder.data.monte_carlo import RLHFLOW, SHEPHERD, read_monte_carlo
from pathfinder.data.prm800k import SOURCE as PRM800K
from pathfinder.data.prm800k import read_prm800k
from pathfinder.data.upstream import Preset, Reading, UnreadableError, data_files, decoded, read_batches
from pathfinder.provenance.stage import stage

RAW = Path("artifacts/raw")
STEPS_FOLDER = Path("artifacts/steps")
METRICS = Path("metrics/prepare.json")
_ALONE = 32_000_000  # bytes up to which processes would take longer to start than they save
READERS: dict[str, tuple[Callable[[Any, Preset], Reading], str]] = {
    "prm800k": (read_prm800k, PRM800K),
    "mistral": (read_monte_carlo, RLHFLOW),
    "math_shepherd": (read_monte_carlo, SHEPHERD),
}
"""Folder -> how its lines are read, and the source that a line counts for that cannot be read."""


@dataclass(slots=True)
class Counts:
    """What happened to the lines and records of one source."""

    lines: int = 0
    lines_quarantined: int = 0
    read: int = 0
    kept: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    quarantined: Counter[str] = field(default_factory=Counter)
    notes: Counter[str] = field(default_factory=Counter)

    def figures(self) -> dict[str, Any]:
        """Accounting as metrics; raises ``DataError`` where the books do not balance."""
        if self.read != self.kept + self.dropped.total() + self.quarantined.total():
            raise DataError(f"prepare lost count: {self}; this is a defect of the stage, please report it")
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
        return Counts(
            self.lines + other.lines,
            self.lines_quarantined + other.lines_quarantined,
            self.read + other.read,
            self.kept + other.kept,
            self.dropped + other.dropped,
            self.quarantined + other.quarantined,
            self.notes + other.notes,
        )


class Repeats:
    """Exact repeats of (problem, prefix, step) and those with different ratings; nine bytes a record."""

    def __init__(self) -> None:
        self._keys = array("Q")
        self._ratings = array("b")

    def add(self, reading: Reading) -> None:
        """Note a line's records."""
        prefixes = [hashlib.blake2b(reading.problem.encode(), digest_size=16).digest()]
        for step in reading.trunk:
            prefixes.append(hashlib.blake2b(prefixes[-1] + step.encode(), digest_size=16).digest())
        for record in reading.records:
            key = hashlib.blake2b(prefixes[record.step_index] + record.text.encode(), digest_size=8).digest()
            self._keys.append(int.from_bytes(key, "little"))
            self._ratings.append(9 if record.rating is None else record.rating)

    def extend(self, other: Repeats) -> None:
        """Note what another has noted."""
        self._keys.extend(other._keys)
        self._ratings.extend(other._ratings)

    def figures(self) -> dict[str, int]:
        """Records that repeat an earlier one, and keys whose ratings conflict (null is no rating)."""
        frame = pl.DataFrame({"key": pl.Series(self._keys, dtype=pl.UInt64), "rating": pl.Series(self._ratings)})
        rated = frame.filter(pl.col("rating") != 9)
        conflicts = rated.group_by("key").agg(pl.col("rating").n_unique()).filter(pl.col("rating") > 1)
        return {"exact_repeats": len(frame) - frame["key"].n_unique(), "conflicting_ratings": len(conflicts)}


@dataclass(frozen=True, slots=True)
class Batch:
    """Lines of one file, as ``read_batches`` yields them."""

    folder: str
    file: str  # below artifacts/raw
    digest: str  # of the file
    preset: Preset
    lines: list[tuple[int, Any]]

    @property
    def bytes(self) -> int:
        """Those that are still text."""
        return sum(len(value) for _, value in self.lines if isinstance(value, bytes))


Rows = list[tuple[Any, ...]]
SCHEMAS = {"trajectories": TRAJECTORIES, "steps": STEPS, "quarantine": QUARANTINE}


@dataclass(frozen=True, slots=True)
class Prepared:
    """What a batch turned into: rows of the three tables, counts by source, and its repeats."""

    tables: dict[str, pyarrow.Table]
    books: dict[str, Counts]
    repeats: Repeats


def prepare_batch(batch: Batch) -> Prepared:
    """Turn lines into rows; depends on nothing but the batch."""
    reader, usual = READERS[batch.folder]
    rows: dict[str, Rows] = {name: [] for name in SCHEMAS}
    books: defaultdict[str, Counts] = defaultdict(Counts)
    repeats = Repeats()
    for line, value in batch.lines:
        try:
            reading = reader(_readable(decoded(value)), batch.preset)
            books[reading.source].lines += 1
            _keep(reading, batch, line, rows, books[reading.source])
            repeats.add(reading)
        except UnreadableError as error:
            counts = books[usual]
            counts.lines += 1
            counts.lines_quarantined += 1
            counts.read += 1
            counts.quarantined[error.reason] += 1
            rows["quarantine"].append((batch.folder, batch.file, line, None, error.reason, error.detail))
    return Prepared({name: arrow_table(SCHEMAS[name], rows[name]) for name in SCHEMAS}, dict(books), repeats)


def prepare_folder(
    folder: str, preset: Preset, limit: float, tables: Mapping[str, TableWriter], repeats: Repeats
) -> dict[str, Counts]:
    """Read every file of one folder; returns counts by source, or raises ``DataError`` beyond ``limit`` of its lines
    or records."""
    books: defaultdict[str, Counts] = defaultdict(Counts)
    files = data_files(RAW / folder)
    if not files:
        raise DataError(
            f"{RAW / folder}: no file with records (.jsonl, .json, .parquet, also .gz); see params: download"
        )
    size = sum(file.stat().st_size for file in files)
    with Progress(f"prepare {folder}", size, "B") as progress, _workers(size) as apply:
        for file in files:
            left = file.stat().st_size
            name, digest = file.relative_to(RAW).as_posix(), sha256_file(file)
            batches = (Batch(folder, name, digest, preset, lines) for lines in read_batches(file))
            for batch, prepared in apply(batches):
                for table, rows in prepared.tables.items():
                    tables[table].add_table(rows)
                for source, counts in prepared.books.items():
                    books[source] += counts
                repeats.extend(prepared.repeats)
                done = 0 if file.suffix == ".gz" else min(batch.bytes, left)  # a packed file is done when it is
                left -= done
                progress.advance(done)
            progress.advance(left)
    _check(folder, sum(books.values(), Counts()), limit)
    return dict(books)


Apply = Callable[[Iterable[Batch]], Iterator[tuple[Batch, Prepared]]]


@contextmanager
def _workers(size: int) -> Iterator[Apply]:
    """How batches are prepared, in their order: here, or, where ``size`` bytes make it worth it, in processes."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if size < _ALONE or count < 2:
        yield lambda batches: ((batch, prepare_batch(batch)) for batch in batches)
        return
    # spawned: a fork would copy this process's threads in an unknown state
    with ProcessPoolExecutor(count, mp_context=get_context("spawn")) as pool:

        def apply(batches: Iterable[Batch]) -> Iterator[tuple[Batch, Prepared]]:
            waiting = deque[tuple[Batch, Future[Prepared]]]()
            for batch in batches:
                waiting.append((batch, pool.submit(prepare_batch, batch)))
                if len(waiting) > 2 * count:  # so that reading does not run ahead into memory
                    ready, future = waiting.popleft()
                    yield ready, future.result()
            for ready, future in waiting:
                yield ready, future.result()

        yield apply


def _readable(value: Any) -> Any:
    if isinstance(value, UnreadableError):
        raise value
    return value


def _keep(reading: Reading, batch: Batch, line: int, rows: Mapping[str, Rows], counts: Counts) -> None:
    counts.notes += reading.notes
    set_aside, dropped = len(reading.set_aside), reading.dropped.total()
    counts.read += len(reading.records) + set_aside + dropped
    counts.kept += len(reading.records)
    counts.dropped += reading.dropped
    trajectory = trajectory_id(reading.source, batch.digest, line)
    for bad in reading.set_aside:
        identity = record_id(trajectory, bad.position, bad.completion)
        rows["quarantine"].append((batch.folder, batch.file, line, identity, bad.reason, bad.detail))
        counts.quarantined[bad.reason] += 1
    if not reading.records:
        counts.notes["lines_without_records"] += 1
        return
    problem, source = problem_id(reading.problem), reading.source
    rows["trajectories"].append((trajectory, source, batch.file, line, problem, reading.problem, reading.trunk))
    rows["steps"].extend(
        (record_id(trajectory, position, completion), trajectory, source, step_index, completion, text, rating)
        for position, completion, step_index, text, rating in reading.records
    )
    counts.notes["null_ratings"] += sum(record.rating is None for record in reading.records)


def _check(folder: str, counts: Counts, limit: float) -> None:
    quarantined = counts.quarantined.total()
    too_many = counts.lines_quarantined > limit * counts.lines or quarantined > limit * counts.read
    if not counts.lines or too_many:
        raise DataError(
            f"{RAW / folder}: {counts.lines_quarantined} of {counts.lines} lines and {quarantined} of {counts.read} "
            f"records cannot be read ({dict(counts.quarantined)}), more than prepare.max_quarantined_share = {limit}; "
            "look at the files, or raise the share"
        )


@stage
def main() -> None:
    """Run the stage."""
    every = load_params()
    params = every.prepare
    catalogue = {source.name for source in every.download.sources}
    repeats = Repeats()
    with ExitStack() as stack:
        tables = {
            name: stack.enter_context(table_writer(STEPS_FOLDER / f"{name}.parquet", schema))
            for name, schema in SCHEMAS.items()
        }
        books: defaultdict[str, Counts] = defaultdict(Counts)
        for folder in READERS:
            if folder in catalogue:
                read = prepare_folder(folder, params.preset, params.max_quarantined_share, tables, repeats)
                for source, counts in read.items():
                    books[source] += counts
        trajectories = tables["trajectories"].rows
    total = sum(books.values(), Counts())
    figures = total.figures() | repeats.figures() | {"trajectories": trajectories, "preset": params.preset}
    write_json(METRICS, figures | {"sources": {source: counts.figures() for source, counts in books.items()}})


if __name__ == "__main__":
    main()
