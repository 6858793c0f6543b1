"""The upstream line that an id names, found in the raw file and parsed again, as a whole or for one record."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from ground.io import DataError, read_json, sha256_file
from pathfinder.core.hub import downloaded_sources
from pathfinder.core.records import problem_id, trajectory_id
from pathfinder.data.conversion import READERS
from pathfinder.data.upstream import Rated, Reading, UnreadableError, data_files, decoded, read_lines

NOT_YET = "not yet"
ARTIFACTS = Path("artifacts")
_ID = re.compile(r"([A-Za-z0-9_]+)-([0-9a-f]{8})-(\d{1,18})(?:-(\d{1,9})-(\d{1,9}))?")


@dataclass(frozen=True, slots=True)
class Identity:
    """The parts of an id; ``position`` and ``completion`` are ``None`` for a trajectory."""

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
    """Split an id into its parts; raises ``DataError`` if it does not have the expected form."""
    match = _ID.fullmatch(text)
    if match is None:
        raise DataError(
            f"{text[:80]!r} is not an id; expected <dataset>-<8 hexadecimal digits>-<line>-<step>-<completion>, or the "
            f"same without step and completion; column id of {ARTIFACTS}/steps/steps.parquet lists them"
        )
    dataset, sha, line, position, completion = match.groups()
    numbers = (None, None) if position is None else (int(position), int(completion))
    return Identity(text, dataset, sha, int(line), *numbers)


def rows_of(table: str, column: str, value: Any) -> Any:
    """The rows of ``artifacts/<table>.parquet`` with a value or one of a list; ``None`` if the file does not exist."""
    path = ARTIFACTS / f"{table}.parquet"
    wanted = pl.col(column).is_in(value) if isinstance(value, list) else pl.col(column) == value
    return pl.scan_parquet(path).filter(wanted).collect().to_dicts() if path.exists() else None


def row_of(table: str, column: str, value: str) -> dict[str, Any] | None:
    """The first of these rows, or ``None``."""
    rows = rows_of(table, column, value)
    return rows[0] if rows else None


def metrics_of(stage: str) -> dict[str, Any]:
    """A stage's metrics; empty if it has not run."""
    path = Path(f"metrics/{stage}.json")
    return dict(read_json(path)) if path.exists() else {}


def upstream_line(identity: Identity, trajectory: dict[str, Any] | None) -> tuple[Any, Reading | None]:
    """The place and content of the line as a JSON value, and the parsed line (``None`` if it cannot be read)."""
    path = _raw_file(identity, trajectory)
    if path is None:
        return f"{NOT_YET}: no file below {ARTIFACTS}/raw has a sha256 that begins with {identity.sha}", None
    raw = next((value for number, value, _ in read_lines(path) if number == identity.line), None)
    place = {"file": path.as_posix(), "sha256": sha256_file(path), "line": identity.line}
    if raw is None:
        return place | {"raw": "the file has no such line"}, None
    try:
        line = decoded(raw)
    except UnreadableError as error:
        return place | {"raw": f"the line cannot be read: {error}"}, None
    read = next((read for name, (read, _) in READERS.items() if path.is_relative_to(ARTIFACTS / "raw" / name)), None)
    if read is None:
        return place | {"raw": _excerpt(line, identity)}, None
    try:
        reading = read(line, "official" if metrics_of("prepare").get("preset") == "official" else "repaired")
    except UnreadableError:
        reading = None
    return place | {"raw": _excerpt(line, identity)}, reading


def _raw_file(identity: Identity, trajectory: dict[str, Any] | None) -> Path | None:
    """The raw file with the digest in the id: the file that the tables name, if it matches, else any matching file."""
    raw = ARTIFACTS / "raw"
    named = [raw / trajectory["file"]] if trajectory else []
    if manifest := downloaded_sources():
        others = [
            raw / source / name
            for source, entry in manifest.items()
            for name, about in entry["files"].items()
            if about["sha256"].startswith(identity.sha)
        ]
    else:
        others = data_files(raw)
    return next((path for path in (*named, *others) if _has_sha(path, identity.sha)), None)


def _has_sha(path: Path, sha: str) -> bool:
    return path.is_file() and sha256_file(path).startswith(sha)


def _excerpt(value: Any, identity: Identity) -> Any:
    """The part of the line about the record."""
    at, completion = identity.position, identity.completion
    if at is None or completion is None:
        return value
    try:
        if isinstance(value, dict) and "label" in value and "question" in value:
            step = value["label"]["steps"][at]
            flags = {key: step.get(key) for key in ("chosen_completion", "human_completion")}
            place = f"label.steps[{at}].completions[{completion}]"
            return {"at": place, "completion": step["completions"][completion]} | flags
        turns = value["conversations"] if isinstance(value, dict) and "conversations" in value else value
        if isinstance(turns, list):
            return {"at": f"turns {2 * at} and {2 * at + 1}", "turns": turns[2 * at : 2 * at + 2]}
    except (LookupError, TypeError, AttributeError):
        return "the line has no such step"
    return value


def _rated(identity: Identity, reading: Reading | None) -> Rated | None:
    records = reading.records if reading else []
    place = (identity.position, identity.completion)
    return next((r for r in records if (r.position, r.completion) == place), None)


def compared(identity: Identity, reading: Reading | None, trajectory: dict[str, Any], step: dict[str, Any]) -> str:
    """Compare the tables with the newly parsed line; returns the differences as a text."""
    again = _rated(identity, reading)
    if reading is None or again is None:
        return "differs: the raw line has no such record"
    pairs = {
        "problem": (trajectory["problem"], reading.problem),
        "problem id": (trajectory["problem_id"], problem_id(reading.problem)),
        "prefix": (trajectory["steps"][: step["step_index"]], reading.trunk[: again.step_index]),
        "step": (step["step"], again.text),
        "rating": (step["rating"], again.rating),
    }
    differ = [name for name, (old, new) in pairs.items() if old != new]
    return f"differs in {', '.join(differ)}: re-run prepare" if differ else "the same"


def exclusion(identity: Identity, reading: Reading | None) -> str | None:
    """The reason why this place of a line is not in the tables; ``None`` if the line has no such place."""
    for row in [*(rows_of("steps/quarantine", "id", identity.text) or []), *quarantined_line(identity, reading)]:
        return f"quarantined: {row['reason']} ({row['detail']})"
    if reading is None:
        return None
    if _rated(identity, reading) is not None:
        known = (ARTIFACTS / "steps/steps.parquet").exists()
        return "in the raw line but not in the tables: re-run prepare" if known else f"{NOT_YET} prepared"
    for bad in reading.set_aside:
        if (bad.position, bad.completion) == (identity.position, identity.completion):
            return f"quarantined: {bad.reason} ({bad.detail})"
    for lost in reading.lost:
        if (lost.position, lost.completion) == (identity.position, identity.completion):
            return f"dropped by prepare: {lost.reason}"
    return None


def quarantined_line(identity: Identity, reading: Reading | None) -> list[dict[str, Any]]:
    """The quarantine row of a line that was completely quarantined."""
    rows = [] if reading is not None else rows_of("steps/quarantine", "line", identity.line) or []
    return [row for row in rows if row["id"] is None and _has_sha(ARTIFACTS / "raw" / row["file"], identity.sha)]
