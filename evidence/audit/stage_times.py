"""A page about the latest run of every stage on this machine: time, memory, and links between inputs and outputs.

Times differ from run to run, so the page is neither a DVC out nor part of the report, whose tables link to it.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from evidence.dvc.history import read_records
from evidence.dvc.pipeline import read_pipeline
from evidence.record.ledger import RECORDS
from ground.io import write_text
from pathfinder.pages.page import Block, Page, Section, Table, Text, anchor_of, to_html

PAGE = Path(".pathfinder/stages.html")
_HEADERS = ("stage", "seconds", "peak memory, MiB", "started (UTC)", "machine")
_KINDS = {"inputs": "data and models", "rooms": "code and locked packages"}


def write_stage_times(root: Path = Path(".")) -> None:
    """Write ``.pathfinder/stages.html`` from the latest intact record of each stage of dvc.yaml."""
    latest = {name: next((r for r in read_records(root, name) if r.is_intact), None) for name in read_pipeline(root)}
    runs = {name: record.content for name, record in latest.items() if record is not None}
    outs = {path for run in runs.values() for path in run["outputs"]}
    seconds = sum(run["times"]["seconds"] for run in runs.values())
    note = Text(
        f"{len(runs)} stages have run on this machine and took {seconds:,.0f} s in total, counting concurrent stages "
        f"separately. The figures are from the records in {RECORDS}; pathfinder lineage check compares those with "
        "dvc.lock and the files."
    )
    rows = [(name, *_row(run)) for name, run in runs.items()]
    table = Table("The latest run of each stage.", _HEADERS, rows, links={name: f"#{anchor_of(name)}" for name in runs})
    sections = [Section("All stages", [table]), *(Section(name, _details(run, outs)) for name, run in runs.items())]
    write_text(root / PAGE, to_html(Page("Time, inputs and outputs of every stage", [note], sections)))


def _row(run: Mapping[str, Any]) -> tuple[str, ...]:
    times, environment = run["times"], run.get("environment", {})
    devices = (environment.get("cuda") or {}).get("devices") or []
    machine = ", ".join(map(str, devices)) or str(environment.get("cpu") or "unknown")
    started = datetime.fromisoformat(times["start"]).astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")
    return f"{times['seconds']:,.1f}", f"{int(times['peak_rss_bytes']) / 2**20:,.0f}", started, machine


def _details(run: Mapping[str, Any], outs: set[str]) -> list[Block]:
    """The outputs and inputs of one run; an input that a stage wrote links to that stage."""
    git = run["git"]
    changed = " with uncommitted changes" if git.get("dirty") else ""
    read = {path: (kind, entry) for part, kind in _KINDS.items() for path, entry in run.get(part, {}).items()}
    links = {path: f"#{anchor_of(out)}" for path in read if (out := _out_of(path, outs)) is not None}
    headers = ("file", "kind", "bytes", "sha256")
    wrote_rows = [_file(path, "output", entry) for path, entry in run["outputs"].items()]
    read_rows = [_file(path, kind, entry) for path, (kind, entry) in read.items()]
    return [
        Text(f"{run['cmd']}, at commit {git.get('commit')}{changed}."),
        Table("Outputs.", headers, wrote_rows, is_anchored=True),
        Table("Inputs.", headers, read_rows, links=links),
    ]


def _out_of(path: str, outs: set[str]) -> str | None:
    """The output that is, or contains, the file."""
    return next((out for part in (Path(path), *Path(path).parents) if (out := part.as_posix()) in outs), None)


def _file(path: str, kind: str, entry: Mapping[str, Any]) -> tuple[str, ...]:
    return path, kind, f"{entry['size']:,}", str(entry["sha256"])
