"""A page for the documentation of a model: the parts that the records know, and a mark at each part that they do not.

The headings are the points of Annex IV of Regulation (EU) 2024/1689 (AI Act), "Technical documentation".
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from evidence.dvc.history import overlap
from evidence.formats.artefacts import LICENCE, TITLE
from evidence.formats.descriptions import cell
from evidence.formats.lineage import Lineage, read_lineage, text_of
from evidence.settings import SETTINGS
from ground.show import counted

MISSING = "**To be written.** The evidence does not say: "
_PAGE = Path(__file__).parent / "templates/documentation.md"


def documentation(lineage: Lineage) -> str:
    """The page as Markdown; equal records give equal bytes."""
    runs = lineage.runs
    last = max(runs, key=lambda run: run.end)
    commits = list(dict.fromkeys(str(run.content["git"]["commit"]) for run in runs))
    signed = [run for run in runs if run.statement]
    keys = sorted({key for run in signed for key in run.key_ids})
    return _PAGE.read_text(encoding="utf-8").format(
        missing=MISSING,
        settings=SETTINGS,
        lineage=lineage,
        title=lineage.target or TITLE,
        project=TITLE,
        licence=LICENCE,
        runs=counted(len(runs), "run"),
        commit=commits[-1],
        commits=counted(len(commits), "commit"),
        commit_list=", ".join(commits),
        python=last.content["environment"].get("python"),
        packages=counted(len(last.packages), "package"),
        machines="; ".join(dict.fromkeys(_machine(run.content) for run in runs)),
        stages=_table(
            ("stage", "command", "ended", "seconds", "record"),
            ((r.name, r.stage.cmd, r.end, r.content["times"]["seconds"], r.record.digest[:16]) for r in runs),
        ),
        resources=_resources(lineage),
        data=_data(lineage),
        figures=_files(lineage),
        signed=len(signed),
        records=counted(len(runs), "record"),
        keys=", ".join(f"key {key[:16]}" for key in keys) or "no key",
    )


def _machine(record: dict[str, Any]) -> str:
    where = record["environment"]
    gpus = ", ".join(map(str, (where.get("cuda") or {}).get("devices", [])))
    return f"{where.get('cpu') or 'unknown processor'}, {where.get('cpus_usable', '?')} CPUs, {gpus or 'no GPU'}"


def _resources(lineage: Lineage) -> str:
    times = [run.content["times"] for run in lineage.runs]
    makers = lineage.makers(lineage.target.partition("#")[0]) if lineage.target else []
    params = [(f"{run.name}: {key}", text_of(value)) for run in makers for key, value in sorted(run.params.items())]
    total = f"{sum(time['seconds'] for time in times):,.0f} s of all runs"
    peak = f"at most {max(time['peak_rss_bytes'] for time in times) / 2**20:,.0f} MiB of memory in one process"
    return f"{total}, {peak}." + ("\n\n" + _table(("parameter", "value"), params) if params else "")


def _data(lineage: Lineage) -> str:
    """The sources, with sources of benchmarks; without a manifest of sources, the files that no run made."""
    rows = [
        (name, source["location"], source.get("revision"), source["licence"], file, entry["bytes"], entry["sha256"])
        for name, source in lineage.sources.items()
        for file, entry in sorted(source["files"].items())
    ]
    if rows:
        return _table(("source", "origin", "revision", "licence", "file", "bytes", "sha256"), rows)
    files = [file for each in lineage.external.values() for file in each.leaves()]
    return _table(("file", "bytes", "sha256"), ((file.path, file.size, file.sha256) for file in files))


def _files(lineage: Lineage) -> str:
    """The files with figures of the runs behind the target and of the runs that read it."""
    target, whole = lineage.target, read_lineage(lineage.root) if lineage.target else lineage
    users = [
        run for run in whole.runs if target and any(overlap(path, target.partition("#")[0]) for path in run.inputs)
    ]
    runs = {run.name: run for run in [*lineage.runs, *users]}.values()
    made = [file for run in runs for out in run.outputs.values() for file in out.leaves()]
    figures = [file for file in made if file.path.endswith(".json") and file.path.startswith(SETTINGS.metrics)]
    return _table(("file", "sha256"), ((file.path, file.sha256) for file in figures))


def _table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    cells = [[cell(str("–" if value is None else value)) for value in row] for row in rows]
    return "\n".join(f"| {' | '.join(row)} |" for row in [list(head), ["---"] * len(head), *cells])
