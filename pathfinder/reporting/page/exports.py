"""The report's figures for machines: ``reports/tables.json``, ``reports/plots/`` and ``metrics/summary.json``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from statistics import fmean
from typing import Any

from pathfinder.pages.origins import origin_of
from pathfinder.pages.page import Block, Fold, Page, Table
from pathfinder.reporting.calibration import bins, drawn, roc, thinned
from pathfinder.reporting.cells import printed, scale_points, seeds
from pathfinder.reporting.claims import adjusted_findings
from pathfinder.reporting.evidence import Evidence
from pathfinder.reporting.names import BENCHMARKS, COLUMNS
from pathfinder.reporting.page.account import curves_of, truth_lines
from pathfinder.reporting.page.faults import false_alarms
from pathfinder.reporting.results import Line, Score
from pathfinder.reporting.tables import bars_of


def tables_of(evidence: Evidence, page: Page, profile: str, digests: Mapping[str, tuple[str, int]]) -> dict[str, Any]:
    """Unrounded results, comparisons and record counts, and every table of the page as printed.

    The key ``origins`` of an object has its shape, and an origin (``Origin.as_json``) for every figure in it. ``files``
    has sha256 and bytes (``digests``) of every file that origins name.
    """
    results, compared = evidence.results, evidence.compared
    accounting = {
        name: {"read": found.read, "kept": found.kept, "dropped": found.dropped, "quarantined": found.quarantined}
        if found
        else None
        for name, found in results.stages.items()
    }
    return {
        "profile": profile,
        "toy": evidence.is_toy,
        "runs": [run.name for run in results.runs],
        "results": [_line(line) for line in evidence.lines],
        "truth": (truth := truth_lines(results.truth)),
        "comparisons": [
            asdict(comparison)
            | {"said": str(comparison), "p_adjusted": finding.p if comparison.difference else None}
            | {"origins": dict.fromkeys(("difference", "said", "p_adjusted"), origins_in(finding.cell()))}
            for comparison, finding in zip(compared, adjusted_findings(compared), strict=True)
        ],
        "accounting": accounting,
        "tables": {
            section.title: [
                {"caption": table.caption, "headers": table.headers, "rows": table.rows}
                | {"origins": {"rows": origins_in(table.rows)}}
                for table in _tables(section.blocks)
            ]
            for section in page.sections
        },
        "origins": {"accounting": origins_in(accounting), "truth": origins_in(truth)},
        "files": {path: {"sha256": sha256, "bytes": size} for path, (sha256, size) in sorted(digests.items())},
    }


def summary_of(evidence: Evidence) -> dict[str, Any]:
    """The figures that ``dvc metrics`` and ``dvc exp show`` print: of the first system, the data and the judge.

    Scores and shares are in percent. Figures of stages that the profile does not run are left out.
    """
    results = evidence.results
    stages = {"prepared": results.prepare, "agreeing": results.filtered, "for_training": results.build}
    found: dict[str, dict[str, Any]] = {"training": {}}
    found["records"] = {name: stage.kept for name, stage in stages.items() if stage}
    if results.truth:
        rates = ("error_precision", "error_recall", "labels_right_kept")
        found["judge"] = {name: getattr(results.truth.all, name).value for name in rates}
    if results.systems:
        trained = seeds(results.systems[0], results.train)
        if trained:
            found["training"]["final_loss"] = fmean(run.final_loss for run in trained)
        if held_out := [labels.accuracy for run in trained if (labels := run.test_labels.get("correctness"))]:
            found["training"]["held_out_accuracy"] = 100 * fmean(held_out)
        cells = zip(BENCHMARKS, evidence.lines[0].cells, strict=False)  # our systems are the first lines
        alarms = false_alarms(evidence).get(results.systems[0][0].name, {})
        found["false_alarms_on_not_optimal"] = {reading: each.share for reading, each in alarms.items()}
        found["benchmarks"] = {bench.key: cell.value for bench, cell in cells if isinstance(cell, Score)}
    if results.sample:
        found["search_without_prm"] = dict(results.sample.average)
    return {name: figures for name, figures in found.items() if figures}


def origins_in(value: Any) -> Any:
    """The origins of the figures in a value, in its shape; ``None`` for a value without one."""
    if isinstance(value, Mapping):
        return {key: origins_in(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [origins_in(inner) for inner in value]
    return origin.as_json() if (origin := origin_of(value)) else None


def plots_of(evidence: Evidence) -> Mapping[str, list[dict[str, Any]]]:
    """Rows for ``dvc plots`` by the name of their file."""
    results = evidence.results
    found = {name: [asdict(bar) for bar in bars] for name, bars in bars_of(evidence.lines).items()}
    found["loss"] = [
        {"system": run, "step": row.step, "loss": row.loss} for run, log in results.logs.items() for row in log
    ]
    found["held_out"] = [
        {"system": f"{row['system']}: {row['label']}"} | {key: row[key] for key in ("step", "loss", "accuracy")}
        for row in curves_of(results)
    ]
    for benchmark, systems in evidence.rewards.items():
        found[f"roc_{benchmark.lower()}"] = [
            {"system": name, "wrong": wrong, "sound": correct}
            for name, rewards in systems.items()
            for wrong, correct in thinned(roc(rewards))
        ]
        found[f"calibration_{benchmark.lower()}"] = [
            {"system": name, "reward": part.reward, "sound": part.correct, "steps": part.count}
            for name, rewards in systems.items()
            for part in drawn(bins(rewards))
        ]
    found["data"] = [
        {"system": bench.title, "records": records, "score": value}
        for _, records, _, values in scale_points(results)
        for bench, value in zip(BENCHMARKS, values, strict=True)
        if value is not None
    ]
    return found


def _line(line: Line) -> dict[str, Any]:
    cells = dict(zip(COLUMNS, line.cells, strict=True))
    scores = {key: asdict(cell) if isinstance(cell, Score) else cell for key, cell in cells.items()}
    origins = {key: origins_in(printed(cell)) for key, cell in cells.items()}
    return {"system": line.label, "is_baseline": line.is_baseline} | scores | {"origins": origins}


def _tables(blocks: Sequence[Block]) -> Iterator[Table]:
    """Every table, including those in folds."""
    for block in blocks:
        if isinstance(block, Table):
            yield block
        elif isinstance(block, Fold):
            yield from _tables(block.blocks)
