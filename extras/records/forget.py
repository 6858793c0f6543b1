"""Forget records: add them to the list of exclusions, and list the stages that will run again, with last durations."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from evidence.dvc import history
from evidence.record.reading import read_records
from evidence.verbs.ways import readers
from extras.records.down import depending_on
from extras.records.selection import Selection, index_table, select
from ground.io import write_text
from ground.show import counted, table
from pathfinder.data.exclusions import EXCLUSIONS, Exclusion, read_exclusions

BUILD, TRAIN = "build", "artifacts/train"
_WHOLE = ("licence", "rater", "source")
"""The selectors that exclude whole lines, including lines that are added later."""
_TREES = ("artifacts/steps/trajectories.parquet", "artifacts/steps/steps.parquet")


def forget(selectors: Sequence[str], root: Path, reason: str = "", dry_run: bool = False) -> dict[str, Any]:
    """Add the selected records to the list of exclusions; returns everything that depends on them, as a JSON value.

    Raises ``DataError``, and writes nothing, if a selector names nothing.
    """
    listed = read_exclusions(root / EXCLUSIONS)
    selected = [select(text, root) for text in selectors]
    wanted = {new.key: new for one in selected for new in _exclusions(one, root, reason)}
    new = {key: entry for key, entry in wanted.items() if key not in {old.key for old in listed}}
    found = [depending_on(one, root) for one in selected]
    runs = sorted({row["run"] for part in found for row in part["runs"]})
    in_trees = bool(runs) or any(part["held_out"] for part in found)
    stages = _stages_again(root, in_trees)
    if new and not dry_run:
        text = (root / EXCLUSIONS).read_text(encoding="utf-8")
        end = "" if not text or text.endswith("\n") else "\n"
        lines = [json.dumps(_row(entry), ensure_ascii=False) + "\n" for entry in new.values()]
        write_text(root / EXCLUSIONS, "".join([text, end, *lines]))
    return {
        "excluded": [_row(entry) for entry in new.values()],
        "already_excluded": sorted(wanted.keys() - new.keys()),
        "written": bool(new) and not dry_run,
        "selected": [{key: part[key] for key in ("selector", "lines", "records", "held_out")} for part in found],
        "retrain": [f"models/{run}" for run in runs],
        "figures": sorted({row["figure"] for part in found for row in part["figures"]}),
        "run_again": stages,
        "seconds": round(sum(row["seconds"] or 0.0 for row in stages), 1),
        "unknown_times": [row["stage"] for row in stages if row["seconds"] is None],
        "still_in_prefixes": sum(_in_prefixes(one, root) for one in selected),
    }


def _exclusions(selection: Selection, root: Path, reason: str) -> Iterator[Exclusion]:
    """The exclusions of a selection; content ids stay valid when lines are appended to the file."""
    name = selection.text if selection.kind in ("record", "line") else ""
    if selection.kind == "licence":
        folders = index_table(root, "lines").filter(licence=selection.value).select("folder").unique().collect()
        for folder in sorted(folders["folder"]):
            yield Exclusion(source=folder, reason=reason, id=name)
    elif selection.kind in _WHOLE:
        yield Exclusion.model_validate({selection.kind: selection.value, "reason": reason, "id": name})
    elif selection.lines is not None and selection.steps is not None:
        contents = dict(selection.lines.select("id", "content").iter_rows())
        if selection.text in {*contents, *contents.values()}:  # a line
            for content in dict.fromkeys(contents.values()):
                yield Exclusion(content=content, reason=reason, id=name)
            return
        for row in selection.steps.iter_rows(named=True):
            step, completion = row["position"], row["completion"]
            name = "" if selection.kind == "content" else row["id"]
            yield Exclusion(content=contents[row["line_id"]], step=step, completion=completion, reason=reason, id=name)


def _row(entry: Exclusion) -> dict[str, Any]:
    return {key: value for key, value in entry.model_dump().items() if value not in (None, "")}


def _stages_again(root: Path, in_trees: bool) -> list[dict[str, Any]]:
    """The stages that run again, each with the seconds of its latest recorded run (``None`` without a record).

    If no record is in a tree, the training set stays the same: only the build and the stages that read its other outs
    run again.
    """
    stages = history.read_lock(root)
    if BUILD not in stages:
        return []
    rows = readers(stages, [out for out in stages[BUILD].outs if in_trees or out != TRAIN])
    again = {BUILD, *(name for name, row in rows.items() if in_trees or not row["stages between"])}
    return [{"stage": name, "seconds": _seconds(root, name)} for name in stages if name in again]


def _seconds(root: Path, stage: str) -> float | None:
    record = next((record for record in read_records(root, stage) if record.is_intact), None)
    return None if record is None else float(record.content["times"]["seconds"])


def _in_prefixes(selection: Selection, root: Path) -> int:
    """The number of other records whose prefix contains a selected step; 0 if whole lines are selected."""
    lines, steps, tables = selection.lines, selection.steps, [root / name for name in _TREES]
    if lines is None or steps is None or selection.kind in _WHOLE or not all(path.exists() for path in tables):
        return 0
    if selection.text in {*lines["id"], *lines["content"]}:
        return 0
    trunks, rows = (pl.scan_parquet(p).filter(pl.col("trajectory_id").is_in(lines["id"].implode())) for p in tables)
    all_rows = rows.join(trunks.select("trajectory_id", "steps"), on="trajectory_id").collect()
    is_selected = pl.col("id").is_in(steps["id"].implode())
    is_followed = pl.col("steps").list.get(pl.col("step_index"), null_on_oob=True) == pl.col("step")
    first = all_rows.filter(is_selected & is_followed).group_by("trajectory_id").agg(first=pl.col("step_index").min())
    others = all_rows.filter(~is_selected).join(first, on="trajectory_id")
    return others.filter(pl.col("step_index") > pl.col("first")).height


def as_lines(found: Mapping[str, Any]) -> Iterator[str]:
    """The result as text."""
    verb = "added to" if found["written"] else "would be added to" if found["excluded"] else "nothing new for"
    yield from table(found["selected"])
    yield from ("", f"{verb} {EXCLUSIONS}")
    yield from (f"  {json.dumps(entry, ensure_ascii=False)}" for entry in found["excluded"])
    yield from (f"  {key} is already in the list" for key in found["already_excluded"])
    if found["still_in_prefixes"]:
        yield (
            f"the text of the step remains in the prefix of {counted(found['still_in_prefixes'], 'later record')}; "
            "forget the whole line to remove it"
        )
    yield ""
    if found["retrain"]:
        yield f"models to retrain: {', '.join(found['retrain'])}"
        yield f"{counted(len(found['figures']), 'figure')} of the report will change"
    else:
        yield "no model was trained on them"
    yield ""
    yield from table(found["run_again"])
    unknown = f"; no recorded time for {', '.join(found['unknown_times'])}" if found["unknown_times"] else ""
    stages = counted(len(found["run_again"]), "stage")
    yield f"{stages} to run again, {found['seconds']:,.1f} s by the latest records{unknown}"
    yield "The models and data of earlier runs remain in git, the cache and the remotes until they are deleted there."
