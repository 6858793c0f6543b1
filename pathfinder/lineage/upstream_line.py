"""The upstream line that an id names: found again in the raw file and read again, whole or for one record."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from pathfinder.core.io import DataError, open_bytes, read_json, sha256_file
from pathfinder.core.labels import HUMAN
from pathfinder.core.records import problem_id, trajectory_id
from pathfinder.data.monte_carlo import read_monte_carlo
from pathfinder.data.prm800k import read_prm800k
from pathfinder.data.upstream import Rated, Reading, UnreadableError, data_files, read_records

NOT_YET = "not yet"
ARTIFACTS = Path("artifacts")
_ID = re.compile(r"([A-Za-z0-9_]+)-([0-9a-f]{8})-(\d{1,18})(?:-(\d{1,9})-(\d{1,9}))?")


@dataclass(frozen=True, slots=True)
class Identity:
    """An id taken apart; ``position`` and ``completion`` are ``None`` in a trajectory's."""

    text: str
    dataset: str
    sha: str
    line: int
    position: int | None
    completion: int | None

    @property
    def trajectory(self) -> str:
        """The id of the upstream line."""
        return trajectory_id(self.dataset, self.sha, self.line)


def parse_identity(text: str) -> Identity:
    """Take an id apart; raises ``DataError`` with the form that is expected."""
    match = _ID.fullmatch(text)
    if match is None:
        raise DataError(
            f"{text[:80]!r} is no id; expected <dataset>-<8 hexadecimal digits>-<line>-<step>-<completion>, or that "
            f"without step and completion, as in the column id of {ARTIFACTS}/steps/steps.parquet"
        )
    dataset, sha, line, position, completion = match.groups()
    numbers = (None, None) if position is None else (int(position), int(completion))
    return Identity(text, dataset, sha, int(line), *numbers)


def rows_of(table: str, column: str, value: Any) -> Any:
    """The rows of ``artifacts/<table>.parquet`` with ``column == value``; ``None`` where there is no such file."""
    path = ARTIFACTS / f"{table}.parquet"
    if not path.exists():
        return None
    return pl.scan_parquet(path).filter(pl.col(column) == value).collect().to_dicts()


def one_of(table: str, column: str, value: str) -> dict[str, Any] | None:
    """The first of those rows."""
    rows = rows_of(table, column, value)
    return rows[0] if rows else None


def metrics_of(stage: str) -> dict[str, Any]:
    """A stage's metrics; empty where it has not run."""
    path = Path(f"metrics/{stage}.json")
    return dict(read_json(path)) if path.exists() else {}


def upstream_line(identity: Identity, trajectory: dict[str, Any] | None) -> tuple[Any, Reading | None]:
    """What is known of the line, as a JSON value, and the line read again; ``None`` where it cannot be read."""
    path = _raw_file(identity, trajectory)
    if path is None:
        return f"{NOT_YET}: no file below {ARTIFACTS}/raw has a sha256 that begins with {identity.sha}", None
    found = next((value for line, value in _near_line(path, identity.line) if line == identity.line), None)
    named = {"file": path.as_posix(), "sha256": sha256_file(path), "line": identity.line}
    if found is None:
        return named | {"raw": "the file has no such line"}, None
    if isinstance(found, UnreadableError):
        return named | {"raw": f"the line cannot be read: {found}"}, None
    return named | {"raw": _part(found, identity)}, _read_again(found, identity)


def _raw_file(identity: Identity, trajectory: dict[str, Any] | None) -> Path | None:
    """The raw file that the id names: the one that the tables name if its bytes agree, else any that begins so."""
    raw = ARTIFACTS / "raw"
    if trajectory is not None:
        path = raw / str(trajectory["file"])
        if path.is_file() and sha256_file(path).startswith(identity.sha):
            return path
    manifest = raw / "manifest.json"
    if manifest.exists():
        for source, entry in read_json(manifest).items():
            for name, about in entry["files"].items():
                if about["sha256"].startswith(identity.sha) and (raw / source / name).is_file():
                    return raw / str(source) / str(name)
        return None
    return next((path for path in data_files(raw) if sha256_file(path).startswith(identity.sha)), None)


def _near_line(path: Path, line: int) -> Iterator[tuple[int, Any]]:
    """The line alone where lines are records, without parsing those before it; else the file's records up to it."""
    if not path.name.endswith((".jsonl", ".jsonl.gz")):
        yield from itertools.islice(read_records(path), line)
        return
    with open_bytes(path) as handle:
        for raw in itertools.islice(handle, line - 1, line):
            try:
                yield line, json.loads(raw)
            except (ValueError, RecursionError) as error:
                yield line, UnreadableError("not_json", str(error))


def _part(value: Any, identity: Identity) -> Any:
    """What of the line speaks about the record."""
    at, completion = identity.position, identity.completion
    if at is None or completion is None:
        return value
    try:
        if isinstance(value, dict) and "label" in value and "question" in value:
            step = value["label"]["steps"][at]
            flags = {key: step.get(key) for key in ("chosen_completion", "human_completion")}
            return {
                "at": f"label.steps[{at}].completions[{completion}]",
                "completion": step["completions"][completion],
            } | flags
        turns = value["conversations"] if isinstance(value, dict) and "conversations" in value else value
        if isinstance(turns, list):
            return {"at": f"turns {2 * at} and {2 * at + 1}", "turns": turns[2 * at : 2 * at + 2]}
    except (LookupError, TypeError, AttributeError):
        return "the line has no such step"
    return value


def _read_again(value: Any, identity: Identity) -> Reading | None:
    read = read_prm800k if identity.dataset == HUMAN else read_monte_carlo
    preset = "official" if metrics_of("prepare").get("preset") == "official" else "repaired"
    try:
        return read(value, preset)  # type: ignore[arg-type]
    except UnreadableError:
        return None


def _rated(identity: Identity, reading: Reading | None) -> Rated | None:
    records = reading.records if reading else []
    place = (identity.position, identity.completion)
    return next((r for r in records if (r.position, r.completion) == place), None)


def compared(identity: Identity, reading: Reading | None, trajectory: dict[str, Any], step: dict[str, Any]) -> str:
    """Whether the tables say what the line says when it is read again."""
    again = _rated(identity, reading)
    if reading is None or again is None:
        return "differs: the raw line holds no such record"
    differ = [
        name
        for name, old, new in (
            ("problem", trajectory["problem"], reading.problem),
            ("problem id", trajectory["problem_id"], problem_id(reading.problem)),
            ("prefix", trajectory["steps"][: step["step_index"]], reading.trunk[: again.step_index]),
            ("step", step["step"], again.text),
            ("rating", step["rating"], again.rating),
        )
        if old != new
    ]
    return f"differs in {', '.join(differ)}: re-run prepare" if differ else "the same"


def never_a_record(identity: Identity, reading: Reading | None) -> str | None:
    """Why a place of a line is no record, or ``None`` where nothing is known of it."""
    for row in [*(rows_of("steps/quarantine", "id", identity.text) or []), *quarantined_line(identity, reading)]:
        return f"quarantined: {row['reason']} ({row['detail']})"
    if reading is None:
        return None
    again = _rated(identity, reading)
    if again is not None:
        known = (ARTIFACTS / "steps/steps.parquet").exists()
        return "the line holds it, the tables do not: re-run prepare" if known else f"{NOT_YET} prepared"
    for bad in reading.set_aside:
        if (bad.position, bad.completion) == (identity.position, identity.completion):
            return f"quarantined: {bad.reason} ({bad.detail})"
    last = max((r.position for r in reading.records), default=-1)
    if reading.dropped and identity.position is not None and identity.position > last:
        return f"dropped by prepare: {', '.join(reading.dropped)}"
    return None


def quarantined_line(identity: Identity, reading: Reading | None) -> list[dict[str, Any]]:
    """The row of a line that was set aside as a whole."""
    if reading is not None:
        return []
    rows = rows_of("steps/quarantine", "line", identity.line) or []
    return [row for row in rows if row["id"] is None and _is_file(row["file"], identity.sha)]


def _is_file(name: str, sha: str) -> bool:
    path = ARTIFACTS / "raw" / name
    return path.is_file() and sha256_file(path).startswith(sha)
