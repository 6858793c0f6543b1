"""Every stage as it last ran here: how long, how much memory, what it read and what it wrote, as a page of links.

Times differ from run to run, so they stay out of DVC's outs and of the report, whose tables lead here.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pathfinder.core.io import write_text
from pathfinder.lineage.history import read_records
from pathfinder.pages.page import Block, Page, Section, Table, Text, anchor_of, to_html
from pathfinder.provenance.pipeline import read_pipeline
from pathfinder.provenance.record import RECORDS

PAGE = Path(".pathfinder/stages.html")
_HEADERS = ("stage", "seconds", "peak memory, MiB", "started", "machine")
_READ = {"inputs": "data and models", "rooms": "code and locked packages"}


def write_stage_times(root: Path = Path(".")) -> None:
    """Write ``.pathfinder/stages.html`` from the latest record of each stage of dvc.yaml."""
    found = {name: _last(root, name) for name in read_pipeline(root)}
    ran = {name: record for name, record in found.items() if record is not None}
    made = {path for record in ran.values() for path in record["outputs"]}
    rows = [(name, *_times(record), _machine(record)) for name, record in ran.items()]
    told = Text(
        f"{len(rows)} stages have run here, {sum(r['times']['seconds'] for r in ran.values()):,.0f} s of work in all. "
        f"Stages that run side by side count each. Every figure is in a record below {RECORDS}, which "
        "pathfinder lineage check holds against dvc.lock and the files; this page repeats the records."
    )
    table = Table("Each stage, as it last ran.", _HEADERS, rows, links={name: f"#{anchor_of(name)}" for name in ran})
    sections = [Section("All stages", [table]), *(Section(name, _story(r, made)) for name, r in ran.items())]
    write_text(root / PAGE, to_html(Page("What every stage took, read and wrote", [told], sections)))


def _last(root: Path, name: str) -> dict[str, Any] | None:
    return next((stored.content for stored in read_records(root, name) if stored.is_intact), None)


def _times(record: Mapping[str, Any]) -> tuple[str, str, str]:
    times = record["times"]
    return f"{times['seconds']:,.1f}", f"{int(times['peak_rss_bytes']) / 2**20:,.0f}", str(times["start"])


def _story(record: Mapping[str, Any], made: set[str]) -> list[Block]:
    """What one run wrote, and what it read; a file that a stage wrote leads to that stage."""
    git = record["git"]
    changed = " with uncommitted changes" if git.get("dirty") else ""
    read = [(path, kind, entry) for part, kind in _READ.items() for path, entry in record.get(part, {}).items()]
    headers = ("file", "kind", "bytes", "sha256")
    wrote = [(path, "output", *_weight(entry)) for path, entry in record["outputs"].items()]
    links = {path: f"#{anchor_of(out)}" for path, _, _ in read if (out := _out_of(path, made)) is not None}
    return [
        Text(f"{record['cmd']}, at commit {git.get('commit')}{changed}."),
        Table("Wrote.", headers, wrote, is_anchored=True),
        Table("Read.", headers, [(path, kind, *_weight(entry)) for path, kind, entry in read], links=links),
    ]


def _out_of(path: str, made: set[str]) -> str | None:
    """The output that the file is, or that it lies in."""
    return next((str(out) for out in (Path(path), *Path(path).parents) if str(out) in made), None)


def _weight(entry: Mapping[str, Any]) -> tuple[str, str]:
    return f"{entry['size']:,}", str(entry["sha256"])


def _machine(record: dict[str, Any]) -> str:
    environment = record.get("environment", {})
    devices = (environment.get("cuda") or {}).get("devices") or []
    return ", ".join(map(str, devices)) or str(environment.get("cpu") or "unknown")
