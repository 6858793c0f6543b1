"""The fates of some records, the mixes, runs and models that used them, and the figures that depend on them.

A figure depends on a record in one of two ways. It may contain the record: in a count of a stage that read it, or in
the loss of a run that used it. All other figures depend on it only through the training, as one of thousands of
records. A record that no run used has changed no model. Held-out records change no model either, but the held-out
losses and accuracies contain them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from evidence.audit.pointers import files_of, origins_of, places_of
from evidence.dvc.history import MAIN_LOCK
from evidence.verbs.targets import Files, at, link_outs
from extras.records.selection import OVERLAP, TRAJECTORIES, Selection, one_of, overlap_of, select, totals
from ground.io import DataError, read_json, text_digest
from ground.show import counted, table
from ground.text import normalise
from pathfinder.reporting.index import schema

TABLES = Path("reports/tables.json")
_LISTED = 12
_THROUGH = {
    "contents": "contain them, in a count or a loss",
    "training": "depend on them only through the training of these runs, as on every record that the runs used",
}
_COUNTS = {
    "prepare": ["metrics/prepare.json"],
    "label": [
        "metrics/label.json",
        "metrics/truth.json",
        "metrics/validate.json",
        "reports/validation/validation.json",
    ],
    "filter": ["metrics/filter.json"],
    "build": ["metrics/build.json", "metrics/validate_train.json", "reports/validation_train/validation.json"],
}
"""The files with counts of the records that reached a stage, in the order of the pipeline."""


def down(text: str, root: Path, with_ids: bool = False) -> dict[str, Any]:
    """Everything that depends on the records of a selector, a JSON value; raises ``DataError`` as ``select`` does.

    ``with_ids`` adds every record with its fate and the number of the judge's answers.
    """
    selection = select(text, root, with_ids)
    found = depending_on(selection, root)
    if selection.kind == "item":
        found["overlap"] = overlap_of(selection.value, root)
    if with_ids and selection.steps is not None:
        found["ids"] = selection.steps.select("id", fate=schema.fate(), answers=pl.col("answers").list.len()).to_dicts()
    return found


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
    held_out = every.get("run", {}) if found["held_out"] else {}
    figures = figures_of([row["run"] for row in used], root, _counted(selection, counts["fates"], root), held_out)
    return found | {"mixes": mixes, "runs": used, "figures": figures}


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
    """For each run, the number of these records that it used, and the number of optimiser steps that used them.

    The table of the run decides: a run that was not repeated after a new build still depends on its old records.
    """
    files = [root / schema.INDEX / schema.run_file(run) for run in runs]
    if steps.is_empty() or not files:
        return {}
    uses = pl.scan_parquet(files, include_file_paths="path").filter(
        one_of("line", steps["line"].unique()), one_of("id", steps["id"]), pl.col("tokens").is_null()
    )
    counts = uses.group_by("path").agg(pl.len(), pl.col("steps").explode().drop_nulls().n_unique())
    return {Path(path).stem: (records, number) for path, records, number in counts.collect().iter_rows()}


@dataclass(frozen=True, slots=True)
class Counted:
    """The ``files`` that count some records, and their ``parts``, by the names of the keys; ``None``: every part."""

    files: set[str]
    parts: dict[str, set[str] | None]

    def has(self, place: str) -> bool:
        """True if the figure at a place (``path#pointer``) may count one of the records."""
        file, _, pointer = place.partition("#")
        key, name = [*pointer.split("/")[1:3], "", ""][:2]
        names = self.parts.get(key)
        return file in self.files and (names is None or name.replace("~1", "/") in names)


def _counted(selection: Selection, fates: Iterable[str], root: Path) -> Counted:
    """The counts of the stages that records with these fates reached."""
    stages, reached = list(_COUNTS), [fate.partition(": ") for fate in fates]
    last = max((stages.index(stage) if stage in stages else len(stages) for stage, _, _ in reached), default=-1)
    sources = None if selection.lines is None else set(selection.lines["source"])
    parts = {
        "sources": sources,
        "dropped": {reason for _, _, reason in reached},
        "overlap": _benchmarks(selection, root),
    }
    return Counted({file for stage in stages[: last + 1] for file in _COUNTS[stage]}, parts)


def _benchmarks(selection: Selection, root: Path) -> set[str] | None:
    """The benchmarks that have a problem or a step of the records, or a similar one; ``None`` if unknown."""
    tables = [root / OVERLAP / f"{name}.parquet" for name in ("overlap", "steps")]
    texts = (root / TRAJECTORIES, root / TRAJECTORIES.with_name("steps.parquet"))
    if selection.lines is None or selection.steps is None or not all(path.exists() for path in (*tables, *texts)):
        return None
    problems = pl.scan_parquet(texts[0]).filter(pl.col("trajectory_id").is_in(selection.lines["id"].implode()))
    steps = (
        pl.scan_parquet(texts[1]).filter(pl.col("id").is_in(selection.steps["id"].implode())).select("step").unique()
    )
    keys = {
        "problem_id": problems.select("problem_id").collect()["problem_id"],
        "step_digest": pl.Series([text_digest(normalise(step)) for step in steps.collect()["step"]], dtype=pl.String),
    }
    found = [
        pl.scan_parquet(path).filter(pl.col(key).is_in(values.implode())).select("benchmark").unique().collect()
        for path, (key, values) in zip(tables, keys.items(), strict=True)
    ]
    return set(pl.concat(found)["benchmark"])


def figures_of(runs: Sequence[str], root: Path, counted: Counted, held_out: Iterable[str] = ()) -> list[dict[str, Any]]:
    """The figures of the report that depend on records which these runs used, in the report's order.

    Each has its pointer, the runs, and its way to depend on the records: "contents" for a count, for the loss of a run
    that used them, and for the held-out losses of these runs if the records are ``held_out``; "training" if it depends
    on them only through a model. A run's files have its name, so the origins of a figure show the runs that it depends
    on. Empty without a report.
    """
    if not (root / TABLES).exists():
        return []
    wanted = dict.fromkeys(runs)
    losses = {*wanted, *held_out}
    found = []
    for pointer, origin in origins_of(read_json(root / TABLES)).items():
        places, files = places_of([origin]), files_of([origin])
        own = {run for file in files if (run := _run_of(file)) in wanted}
        contains = any(file.startswith("metrics/train/") and _run_of(file) in losses for file in files)
        contains = contains or any(map(counted.has, places))
        if own or contains:
            used = [run for run in wanted if run in own]
            through = "contents" if contains else "training"
            found.append({"figure": f"{TABLES}#{pointer}", "runs": used, "through": through})
    return found


def _run_of(file: str) -> str:
    """The run that a file or its folder is named after."""
    path = Path(file)
    return path.parts[1] if path.parts[:1] == ("models",) and len(path.parts) > 1 else path.stem.removesuffix("_log")


def as_lines(found: Mapping[str, Any]) -> Iterator[str]:
    """The result as text."""
    yield f"{found['selector']}: {counted(found['records'], 'record')} of {counted(found['lines'], 'upstream line')}"
    yield ""
    yield from table([{"fate": name, "records": count} for name, count in found["fates"].items()])
    if found["held_out"]:
        yield f"{counted(found['held_out'], 'record')} of these held out, without influence on a model"
    for what, rows in found.get("overlap", {}).items():
        yield from ("", f"the item's {what} in the data: {'none, and nothing similar' if not rows else ''}")
        yield from table(rows)
    if "ids" in found:
        yield from ("", *table(found["ids"]))
    if found["runs"]:
        for rows in (found["mixes"], found["runs"]):
            yield from ("", *table(rows))
    else:
        yield from ("", "no model depends on them")
    for through, words in _THROUGH.items():  # the figures by part of the report; ``--json`` lists each
        parts = Counter("/".join(f["figure"].split("/")[:5]) for f in found["figures"] if f["through"] == through)
        is_told = parts or not found["figures"]
        yield from ("", f"{counted(parts.total(), 'figure')} of {TABLES} {words}") if is_told else ()
        yield from table([{"part of the report": part, "figures": count} for part, count in parts.most_common(_LISTED)])
        if len(parts) > _LISTED:
            yield f"… and {len(parts) - _LISTED} more parts; --json lists all figures"


@contextmanager
def at_revision(root: Path, rev: str | None) -> Iterator[Path]:
    """Yield a folder with the index and reports/tables.json of a revision; without one, ``root`` itself.

    Raises ``DataError`` if the lock of the revision has no index, or no store of this machine has its files.
    """
    with at(root, rev) as folder:
        if rev is not None:
            files, index = Files(root, rev), schema.INDEX.as_posix()
            if files.md5(index) is None:
                raise DataError(f"{rev}:{MAIN_LOCK}: has no {index}; name a later revision")
            link_outs(folder, files, (index, TABLES.as_posix()))
        yield folder
