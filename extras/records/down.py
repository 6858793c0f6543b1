"""The fates of some records, the mixes, runs and models that used them, and the figures of the models.

A record that no run used has changed no model. Held-out records change no model either; they are behind the held-out
losses and accuracies in metrics/train.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from evidence.audit.pointers import origins_of
from extras.records.selection import Selection, one_of, select, totals
from ground.io import read_json
from ground.show import counted, table
from pathfinder.reporting.index import schema

TABLES = Path("reports/tables.json")
_LISTED = 12
_KEPT = "kept"


def down(text: str, root: Path) -> dict[str, Any]:
    """Everything that depends on the records of a selector, a JSON value; raises ``DataError`` as ``select`` does."""
    return depending_on(select(text, root), root)


def depending_on(selection: Selection, root: Path) -> dict[str, Any]:
    """Everything that depends on the selected records, a JSON value."""
    every = totals(root, "all", "")
    counts = _counts(selection) if selection.steps is not None else _stored_counts(selection, root)
    runs = _runs(selection.steps, sorted(every.get("run", {})), root) if selection.steps is not None else counts["runs"]
    used = [
        {"run": run, "model": f"models/{run}", "records": records, "steps": steps, "of_steps": of["steps"]}
        for run, of in sorted(every.get("run", {}).items())
        for records, steps in [runs.get(run, (0, 0))]
        if records
    ]
    found = {"selector": selection.text, "kind": selection.kind}
    found |= {key: counts[key] for key in ("lines", "records", "fates", "held_out")}
    mixes = [{"mix": name, "records": records} for name, records in sorted(counts["mixes"].items())]
    return found | {"mixes": mixes, "runs": used, "figures": figures_of([row["run"] for row in used], root)}


def _counts(selection: Selection) -> dict[str, Any]:
    """The counts of selected rows of the index."""
    steps, lines = selection.steps, selection.lines
    if steps is None or lines is None:
        raise ValueError(f"{selection.text}: selected without rows")
    fates = dict(steps.group_by(schema.fate().alias("fate")).len().sort("fate").iter_rows())
    unread = Counter(f"prepare: {reason}" for reason in lines.filter(records=0)["reason"] if reason != "no_records")
    return {
        "lines": len(lines),
        "records": len(steps),
        "fates": fates | unread,
        "held_out": len(steps.filter(side="test")),
        "mixes": dict(Counter(steps["mixes"].explode().drop_nulls())),
    }


def _stored_counts(selection: Selection, root: Path) -> dict[str, Any]:
    """The counts of a licence, a rater or a source."""
    found = totals(root, selection.kind, selection.value)
    fates = {name: row["records"] for name, row in found.get("fate", {}).items()}
    return {
        "lines": found["lines"]["lines"]["records"],
        "records": sum(fates.values()),
        "fates": fates,
        "held_out": found.get("side", {}).get("test", {"records": 0})["records"],
        "mixes": {name: row["records"] for name, row in found.get("mix", {}).items()},
        "runs": {name: (row["records"], row["steps"]) for name, row in found.get("run", {}).items()},
    }


def _runs(steps: pl.DataFrame, runs: Sequence[str], root: Path) -> dict[str, tuple[int, int]]:
    """Per run, how many of the records it used, and in how many different optimiser steps.

    The table of the run decides: a run that was not repeated after a new build still depends on what it used.
    """
    files = [root / schema.INDEX / schema.run_file(run) for run in runs]
    if steps.is_empty() or not files:
        return {}
    uses = pl.scan_parquet(files, include_file_paths="path").filter(
        one_of("line", steps["line"].unique()), one_of("id", steps["id"]), pl.col("tokens").is_null()
    )
    counts = uses.group_by("path").agg(pl.len(), pl.col("steps").explode().drop_nulls().n_unique())
    return {Path(path).stem: (records, number) for path, records, number in counts.collect().iter_rows()}


def figures_of(runs: Sequence[str], root: Path) -> list[dict[str, Any]]:
    """The figures of the report with a file that one of the runs made: pointer and runs, in the report's order.

    A run's files have its name, so the origins of a figure tell which runs it depends on. Empty without a report.
    """
    if not (root / TABLES).exists() or not runs:
        return []
    wanted = dict.fromkeys(runs)
    found = []
    for pointer, origin in origins_of(read_json(root / TABLES)).items():
        files = {place.partition("#")[0] for place in (*origin["of"], *origin.get("interval", ()))}
        own = {run for file in files if (run := _run_of(file)) in wanted}
        if own:
            found.append({"figure": f"{TABLES}#{pointer}", "runs": [run for run in wanted if run in own]})
    return found


def _run_of(file: str) -> str:
    """The run whose name a file or its folder has."""
    path = Path(file)
    return path.parts[1] if path.parts[:1] == ("models",) and len(path.parts) > 1 else path.stem.removesuffix("_log")


def as_lines(found: Mapping[str, Any]) -> Iterator[str]:
    """The result as text."""
    yield f"{found['selector']}: {counted(found['records'], 'record')} of {counted(found['lines'], 'upstream line')}"
    yield ""
    yield from table([{"fate": name, "records": count} for name, count in found["fates"].items()])
    if found["held_out"]:
        yield f"{counted(found['held_out'], 'record')} of these held out, without influence on a model"
    if not found["runs"]:
        yield from ("", "no model depends on them")
        return
    yield ""
    yield from table(found["mixes"])
    yield ""
    yield from table(found["runs"])
    yield ""
    yield from _figure_lines(found["figures"])


def _figure_lines(figures: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """The figures by part of the report; ``--json`` lists each."""
    parts = Counter("/".join(str(row["figure"]).split("/")[:5]) for row in figures)
    if not parts:
        yield f"{TABLES}: no figure names these runs"
        return
    yield from table([{"part of the report": part, "figures": count} for part, count in parts.most_common(_LISTED)])
    if len(parts) > _LISTED:
        yield f"… and {len(parts) - _LISTED} more parts; --json lists all {len(figures)} figures"
