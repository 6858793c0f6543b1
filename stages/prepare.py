"""Read the upstream files into trajectories and rated steps.

Reads   artifacts/raw/{prm800k,mistral,math_shepherd}, as far as the catalogue names them; params: prepare, download
Writes  artifacts/steps/{trajectories,steps,quarantine}.parquet, metrics/prepare.json
Run     python -m stages.prepare

Counts are records: one rated step or alternative. A line that cannot be read stands for one record, quarantined.
What the two presets do differently: docs/data.md.
"""

from __future__ import annotations

import hashlib
from array import array
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl

from stages.core.io import DataError, sha256_file, write_json
from stages.core.params import load_params
from stages.core.progress import Progress
from stages.core.records import QUARANTINE, STEPS, TRAJECTORIES, problem_id, record_id, trajectory_id
from stages.core.tables import TableWriter, table_writer
from stages.core.upstream import Preset, Reading, UnreadableError, data_files, read_records
from stages.core.upstream_monte_carlo import RLHFLOW, SHEPHERD, read_monte_carlo
from stages.core.upstream_prm800k import SOURCE as PRM800K
from stages.core.upstream_prm800k import read_prm800k
from stages.lineage.record import recorded

RAW = Path("artifacts/raw")
STEPS_FOLDER = Path("artifacts/steps")
METRICS = Path("metrics/prepare.json")
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
    """Exact repeats of (problem, prefix, step) and those with different ratings; eight bytes a record."""

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

    def figures(self) -> dict[str, int]:
        """Records that repeat an earlier one, and keys whose ratings conflict (null is no rating)."""
        frame = pl.DataFrame({"key": pl.Series(self._keys, dtype=pl.UInt64), "rating": pl.Series(self._ratings)})
        rated = frame.filter(pl.col("rating") != 9)
        conflicts = rated.group_by("key").agg(pl.col("rating").n_unique()).filter(pl.col("rating") > 1)
        return {"exact_repeats": len(frame) - frame["key"].n_unique(), "conflicting_ratings": len(conflicts)}


@dataclass(frozen=True, slots=True)
class Tables:
    """The three outs, open for writing."""

    trajectories: TableWriter
    steps: TableWriter
    quarantine: TableWriter


def prepare_folder(folder: str, preset: Preset, limit: float, tables: Tables, repeats: Repeats) -> dict[str, Counts]:
    """Read every file of one folder; returns counts by source, or raises ``DataError`` beyond ``limit`` of its lines
    or records."""
    books: defaultdict[str, Counts] = defaultdict(Counts)
    reader, usual = READERS[folder]
    files = data_files(RAW / folder)
    if not files:
        raise DataError(
            f"{RAW / folder}: no file with records (.jsonl, .json, .parquet, also .gz); see params: download"
        )
    with Progress(f"prepare {folder}", sum(file.stat().st_size for file in files), "B") as progress:
        for file in files:
            digest = sha256_file(file)
            for line, value in read_records(file):
                try:
                    reading = reader(_readable(value), preset)
                    books[reading.source].lines += 1
                    _keep(reading, file.relative_to(RAW).as_posix(), digest, line, tables, books[reading.source])
                    repeats.add(reading)
                except UnreadableError as error:
                    counts = books[usual]
                    counts.lines += 1
                    counts.lines_quarantined += 1
                    counts.read += 1
                    counts.quarantined[error.reason] += 1
                    name = file.relative_to(RAW).as_posix()
                    tables.quarantine.add(folder, name, line, None, error.reason, error.detail)
            progress.advance(file.stat().st_size)
    _check(folder, sum(books.values(), Counts()), limit)
    return dict(books)


def _readable(value: Any) -> Any:
    if isinstance(value, UnreadableError):
        raise value
    return value


def _keep(reading: Reading, file: str, digest: str, line: int, tables: Tables, counts: Counts) -> None:
    counts.notes += reading.notes
    set_aside, dropped = len(reading.set_aside), reading.dropped.total()
    counts.read += len(reading.records) + set_aside + dropped
    counts.kept += len(reading.records)
    counts.dropped += reading.dropped
    trajectory = trajectory_id(reading.source, digest, line)
    for bad in reading.set_aside:
        identity = record_id(trajectory, bad.position, bad.completion)
        tables.quarantine.add(file.partition("/")[0], file, line, identity, bad.reason, bad.detail)
        counts.quarantined[bad.reason] += 1
    if not reading.records:
        counts.notes["lines_without_records"] += 1
        return
    problem = problem_id(reading.problem)
    tables.trajectories.add(trajectory, reading.source, file, line, problem, reading.problem, reading.trunk)
    add, source = tables.steps.add, reading.source
    for position, completion, step_index, text, rating in reading.records:
        add(record_id(trajectory, position, completion), trajectory, source, step_index, completion, text, rating)
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


def main(argv: Sequence[str] | None = None) -> None:
    """Run the stage."""
    every = load_params()
    params = every.prepare
    catalogue = {source.name for source in every.download.sources}
    with recorded("prepare"):
        repeats = Repeats()
        with ExitStack() as stack:
            tables = Tables(
                stack.enter_context(table_writer(STEPS_FOLDER / "trajectories.parquet", TRAJECTORIES)),
                stack.enter_context(table_writer(STEPS_FOLDER / "steps.parquet", STEPS)),
                stack.enter_context(table_writer(STEPS_FOLDER / "quarantine.parquet", QUARANTINE)),
            )
            books: defaultdict[str, Counts] = defaultdict(Counts)
            for folder in READERS:
                if folder in catalogue:
                    read = prepare_folder(folder, params.preset, params.max_quarantined_share, tables, repeats)
                    for source, counts in read.items():
                        books[source] += counts
            trajectories = tables.trajectories.rows
        total = sum(books.values(), Counts())
        figures = total.figures() | repeats.figures() | {"trajectories": trajectories, "preset": params.preset}
        write_json(METRICS, figures | {"sources": {source: counts.figures() for source, counts in books.items()}})


if __name__ == "__main__":
    main()
