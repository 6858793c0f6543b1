"""Time and memory of every stage as it last ran here, as a page beside the records that hold them.

They differ from run to run, so they stay out of DVC's outs and of the report.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from stages.core.io import write_text
from stages.core.page import Page, Section, Table, Text, to_html
from stages.lineage.history import read_records
from stages.lineage.pipeline import read_pipeline
from stages.lineage.record import RECORDS

PAGE = Path(".pathfinder/stages.html")
_HEADERS = ("stage", "seconds", "peak memory, MiB", "started", "machine")


def write_stage_times(root: Path = Path(".")) -> None:
    """Write ``.pathfinder/stages.html`` from the latest record of each stage of dvc.yaml."""
    rows, whole = [], 0.0
    for name in read_pipeline(root):
        last = next((stored.content for stored in read_records(root, name) if stored.is_intact), None)
        if last is not None:
            times = last["times"]
            whole += float(times["seconds"])
            memory = int(times["peak_rss_bytes"]) / 2**20
            started = str(times["start"])
            rows.append((name, f"{times['seconds']:,.1f}", f"{memory:,.0f}", started, _machine(last)))
    told = Text(
        f"{len(rows)} stages have run here, {whole:,.0f} s of work in all. Stages that run side by side count each. "
        f"Every figure is in a record below {RECORDS}."
    )
    table = Table("Each stage, as it last ran.", _HEADERS, rows)
    write_text(root / PAGE, to_html(Page("Time and memory of each stage", [told], [Section("Stages", [table])])))


def _machine(record: dict[str, Any]) -> str:
    environment = record.get("environment", {})
    devices = (environment.get("cuda") or {}).get("devices") or []
    return ", ".join(map(str, devices)) or str(environment.get("cpu") or "unknown")
