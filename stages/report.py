"""Write the report: our tables with baselines and intervals, the paper's beside them, and the data's whole story.

Reads   metrics/, artifacts/predictions, artifacts/raw/{processbench,prmbench}, reports/validation{,_train};
        params: profile, report
Writes  reports/report.{html,md}, reports/tables.json, reports/plots/
Run     python -m stages.report

A part whose metrics are not there yet is reported as missing. The page holds no time stamp: same input, same bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from stages.core import comparisons, record_flow, report_data, report_tables
from stages.core.benchmarks import ProcessBenchItem, read_prmbench, read_processbench
from stages.core.comparisons import Comparison, Measured, compare
from stages.core.figures import Bar, interval_chart
from stages.core.io import atomic_folder, read_json, read_jsonl, write_json, write_text
from stages.core.mistakes import worst_mistakes
from stages.core.page import Block, Figure, Page, Section, Table, Text, to_html, to_markdown
from stages.core.params import Report, load_params
from stages.core.results import NAMES, VARIANTS, Line, Results, Score, lines, load_results
from stages.lineage.record import recorded

METRICS = Path("metrics")
PREDICTIONS = Path("artifacts/predictions")
RAW = Path("artifacts/raw")
REPORTS = Path("reports")
RANDOM, MAJORITY = "the random pick", "the policy's majority vote"
SPOKEN = {"full": NAMES["full"]} | {variant: f"the variant {NAMES[variant]}" for variant in VARIANTS[1:]}
BENCHMARKS = ("ProcessBench mean F1", "PRMScore", "search accuracy")
GATES = ("validation", "validation_train")
NOTICES = {
    "quickstart": "Tiny models on a generated world: these figures show that the method learns and how its parts "
    "compare here; they are not comparable with the paper.",
    "sample": "Tiny models on real files: this shows that the pipeline stands real data; the accuracies mean nothing.",
}
PLACES = (
    ("reports/tables.json", "every figure of this page, for machines"),
    ("reports/plots/", "the same for `dvc plots show`"),
    ("reports/validation/index.html", "each gate of the data"),
    ("reports/validation_train/index.html", "each gate of the training set"),
    ("metrics/", "what each stage measured (`dvc metrics show`)"),
    ("artifacts/predictions/", "every step's scores, every search"),
    ("artifacts/overlap/overlap.parquet", "training problems that a benchmark holds too"),
    ("models/", "the trained PRMs"),
    ("pathfinder lineage up reports/report.html", "the way back from this page to the source files"),
)


def rows_of(name: str) -> list[dict[str, Any]]:
    """Prediction rows, or none where the file is not there."""
    path = PREDICTIONS / name
    return [row for _, row in read_jsonl(path)] if path.exists() else []


def compared(report: Report) -> list[Comparison]:
    """Full against each other variant on every benchmark, and the search against its control and the majority vote."""
    pairs = [(SPOKEN["full"], SPOKEN[variant]) for variant in VARIANTS[1:]]
    found: list[Comparison] = []
    for benchmark, measure in ((BENCHMARKS[0], _processbench), (BENCHMARKS[1], _prmbench)):
        found += compare(measure(), pairs, benchmark, report)
    search = {
        SPOKEN.get(name, RANDOM): comparisons.on_search(rows, "correct")
        for name in (*VARIANTS, "random")
        if (rows := rows_of(f"search/{name}.jsonl"))
    }
    if sample := rows_of("sample.jsonl"):
        search[MAJORITY] = comparisons.on_search(sample, "majority_right")
    pairs += [(SPOKEN["full"], RANDOM), (SPOKEN["full"], MAJORITY)]
    return found + compare(search, pairs, BENCHMARKS[2], report)


def _processbench() -> dict[str, Measured]:
    known = _processbench_items()
    found = {}
    for variant in VARIANTS:
        if rows := rows_of(f"processbench/{variant}.jsonl"):
            keys = {(row["subset"], row["id"]) for row in rows}
            items = [item for item in known if (item.subset, item.id) in keys]
            if items:
                found[SPOKEN[variant]] = comparisons.on_processbench(items, rows)
    return found


def _prmbench() -> dict[str, Measured]:
    folder = RAW / "prmbench"
    known = read_prmbench(folder).items if folder.exists() else []
    found = {}
    for variant in VARIANTS:
        if rows := rows_of(f"prmbench/{variant}.jsonl"):
            keys = {row["idx"] for row in rows}
            items = [item for item in known if item.idx in keys]
            if items:
                found[SPOKEN[variant]] = comparisons.on_prmbench(items, rows)
    return found


def _processbench_items() -> Sequence[ProcessBenchItem]:
    folder = RAW / "processbench"
    return read_processbench(folder).items if folder.exists() else []


def figures(table: Sequence[Line]) -> list[Block]:
    """One drawing a benchmark: every system with its interval."""
    drawn: list[Block] = []
    for name, bars in bars_of(table).items():
        said = "; ".join(f"{bar.name} {bar.value:.1f} [{bar.low:.1f}, {bar.high:.1f}]" for bar in bars)
        if bars:
            drawn.append(Figure(interval_chart(bars, "percent"), f"{name}: {said}.", f"{name}; hollow: baselines."))
    return drawn


def bars_of(table: Sequence[Line]) -> dict[str, list[Bar]]:
    """Each benchmark's systems that were measured."""
    return {
        name: [
            Bar(line.name, cell.value, cell.low, cell.high, line.is_baseline)
            for line in table
            if isinstance(cell := line.cells[place], Score)
        ]
        for place, name in enumerate(BENCHMARKS)
    }


def page_of(results: Results, found: Sequence[Comparison], profile: str) -> Page:
    """The whole page."""
    table = lines(results)
    notice = NOTICES.get(profile.split("-")[0])
    lead: list[Block] = [Text(f"Profile: {profile}.")]
    lead += [Text(notice, is_notice=True)] if notice else []
    said: list[Block] = [Text(str(one)) for one in found]
    gates = {name: REPORTS / name / "validation.json" for name in GATES}
    sections = [
        Section("Results", [report_tables.headline(table), *figures(table)]),
        Section("What can be told apart", said or [Text("missing: no two systems have predictions yet.")]),
        Section("ProcessBench", report_tables.processbench(results)),
        Section("PRMBench", report_tables.prmbench(results)),
        Section("Search", report_tables.search(results)),
    ]
    if notice is None:
        sections.append(Section("The paper's tables beside ours", report_tables.beside_paper(results, profile)))
    sections += [
        Section("Where every record went", record_flow.accounting(results)),
        Section("Gates", report_data.validation({n: read_json(p) if p.exists() else None for n, p in gates.items()})),
        Section("Overlap with the benchmarks", report_data.overlap(results.stages["build"])),
        Section("Training", report_data.training(results)),
        Section("Worst mistakes", worst_mistakes(_processbench_items(), rows_of("processbench/full.jsonl"))),
        Section("Where everything is", [Table("Files and commands.", ("place", "what"), PLACES)]),
    ]
    return Page("Error typing for smarter rewards: the reproduction's report", lead, sections)


def tables_of(results: Results, found: Sequence[Comparison], page: Page, profile: str) -> dict[str, Any]:
    """The page's figures for machines: unrounded results, comparisons, accounting; every table as printed."""
    cells = ("processbench", "prmbench", "search")
    return {
        "profile": profile,
        "results": [
            {"system": line.name, "is_baseline": line.is_baseline}
            | {n: asdict(c) if isinstance(c, Score) else c for n, c in zip(cells, line.cells, strict=True)}
            for line in lines(results)
        ],
        "comparisons": [asdict(one) | {"said": str(one)} for one in found],
        "accounting": {
            name: None if metrics is None else {k: metrics[k] for k in ("read", "kept", "dropped", "quarantined")}
            for name, metrics in results.stages.items()
        },
        "tables": {
            section.title: [
                {"caption": block.caption, "headers": list(block.headers), "rows": [list(row) for row in block.rows]}
                for block in section.blocks
                if isinstance(block, Table)
            ]
            for section in page.sections
        },
    }


def main(argv: Sequence[str] | None = None) -> None:
    """Run the stage."""
    params = load_params()
    with recorded("report"):
        results = load_results(METRICS)
        found = compared(params.report)
        page = page_of(results, found, params.profile)
        write_text(REPORTS / "report.html", to_html(page))
        write_text(REPORTS / "report.md", to_markdown(page))
        write_json(REPORTS / "tables.json", tables_of(results, found, page, params.profile))
        with atomic_folder(REPORTS / "plots") as folder:
            for name, bars in zip(
                ("processbench", "prmbench", "search"), bars_of(lines(results)).values(), strict=True
            ):
                write_json(folder / f"{name}.json", [asdict(bar) for bar in bars])


if __name__ == "__main__":
    main()
