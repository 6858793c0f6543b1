"""Write the report: our tables with baselines and intervals, the paper's beside them, and the data's whole story.

Reads   metrics/, artifacts/predictions, artifacts/raw/{processbench,prmbench}, reports/validation{,_train};
        params: profile, runs, baselines, critics, report
Writes  reports/report.{html,md}, reports/tables.json, reports/plots/; beside the outs .pathfinder/stages.html (times)
Run     python -m stages.report

A part whose metrics are not there yet is reported as missing. The page holds no time stamp: same input, same bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pathfinder.benchmarks.bootstrap import adjusted
from pathfinder.core.io import atomic_folder, read_json, write_json, write_text
from pathfinder.core.params import load_params
from pathfinder.core.runs import parse_runs
from pathfinder.pages.page import ROOT, Block, Page, Section, Table, Text, to_html, to_markdown
from pathfinder.provenance.stage import stage
from pathfinder.reporting import account, details, plots, record_flow, tables
from pathfinder.reporting.answers import answers
from pathfinder.reporting.calibration import Rewards, prmbench_rewards, processbench_rewards
from pathfinder.reporting.claims import claims, findings
from pathfinder.reporting.evidence import Evidence
from pathfinder.reporting.mistakes import worst_mistakes
from pathfinder.reporting.results import Results, Score, lines, load_results, name_of, truth_lines

METRICS = Path("metrics")
PREDICTIONS = Path("artifacts/predictions")
RAW = Path("artifacts/raw")
REPORTS = Path("reports")
GATES = ("validation", "validation_train")
NOTICES = {
    "quickstart": "Tiny models on a generated world: these figures show that the method learns and how its parts "
    "compare here; they are not comparable with the paper.",
    "seeds": "Tiny models on a generated world: these figures say how the method's parts compare here, over several "
    "seeds; they are not comparable with the paper.",
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
    (".pathfinder/stages.html", "every stage as it last ran here: time, memory, what it read and wrote"),
    ("pathfinder lineage up reports/report.html", "the way back from this page to the source files"),
)
_LINKS = {place: ROOT + place for place, _ in PLACES if " " not in place}


def page_of(results: Results, evidence: Evidence, profile: str) -> Page:
    """The whole page."""
    table = lines(results, evidence.levels, evidence.best_of_n)
    family = profile.split("-")[0]
    notice, is_comparable = NOTICES.get(family), family == "paper"
    lead: list[Block] = [Text(f"Profile: {profile}."), *([Text(notice, is_notice=True)] if notice else [])]
    gates = {name: REPORTS / name / "validation.json" for name in GATES}
    rewards = rewards_of(evidence, results)
    paper: list[Block] = [] if is_comparable else [Text("Another world and other models: differences say little.")]
    paper += tables.beside_paper(results, is_comparable)
    paper.append(plots.paper_performance(table, is_comparable))
    paper.append(plots.paper_scale(results, is_comparable))
    first = {name_of(members[0]): members[0].name for members in evidence.systems.values()}
    found = findings(evidence)
    sections = [
        Section(
            "Results",
            [tables.headline(table), *plots.performance(table), *tables.each_run(results)],
        ),
        Section("The paper's claims, tested here", [*claims(evidence, found), *answers(evidence, found)]),
        Section(
            "ProcessBench",
            [
                *tables.processbench(results),
                *_said(evidence, "processbench"),
                *details.processbench(results),
            ],
        ),
        Section(
            "PRMBench",
            [*tables.prmbench(results), *_said(evidence, "prmbench"), *details.prmbench(results)],
        ),
        Section(
            "Search",
            [*tables.search(results), *_said(evidence, "search"), *details.search(results)],
        ),
        Section("Score against data", plots.our_scale(results, table) or [Text("One data mix was trained on.")]),
        Section(
            "How good the rewards are",
            [*_stopped(results), *(b for n, f in rewards.items() for b in plots.reward_quality(n, f))],
        ),
        Section("The paper's tables beside ours", paper),
        Section("Where every record went", record_flow.accounting(results)),
        Section("The judge against the truth", account.truth(results.truth)),
        Section("Gates", account.validation({n: read_json(p) if p.exists() else None for n, p in gates.items()})),
        Section("Overlap with the benchmarks", account.overlap(results.stages["build"])),
        Section("Training", account.training(results)),
        Section("Costs", account.costs(results)),
        Section(
            "Worst mistakes",
            worst_mistakes(
                evidence.processbench_items,
                {name: evidence.rows(f"processbench/{run}.jsonl") for name, run in first.items()},
            ),
        ),
        Section("Where everything is", [Table("Files and commands.", ("place", "what"), PLACES, links=_LINKS)]),
    ]
    return Page("Error typing for smarter rewards: the reproduction's report", lead, sections)


def rewards_of(evidence: Evidence, results: Results) -> dict[str, dict[str, Rewards]]:
    """The rewards of each system's first seed on the labelled steps of both benchmarks, where all are scored."""
    first = {name_of(members[0]): f"{members[0].name}.jsonl" for members in evidence.systems.values()}
    return {
        "ProcessBench": {
            name: processbench_rewards(evidence.processbench_items, rows)
            for name, file in first.items()
            if file.removesuffix(".jsonl") not in details.stopped_early(results)
            and (rows := evidence.rows(f"processbench/{file}"))
        },
        "PRMBench": {
            name: prmbench_rewards(evidence.prmbench_items, rows)
            for name, file in first.items()
            if (rows := evidence.rows(f"prmbench/{file}"))
        },
    }


def _stopped(results: Results) -> list[Block]:
    """Names the runs whose rewards on ProcessBench are not drawn."""
    names = details.stopped_early(results)
    return (
        [Text(f"{details.STOPPED.format(', '.join(names))} its curves are not drawn for ProcessBench.")]
        if names
        else []
    )


def _said(evidence: Evidence, benchmark: str) -> list[Block]:
    """One plain sentence for each comparison on a benchmark."""
    return [Text(str(one)) for one in evidence.comparisons[benchmark]]


def tables_of(results: Results, evidence: Evidence, page: Page, profile: str) -> dict[str, Any]:
    """The page's figures for machines: unrounded results, comparisons, accounting; every table as printed."""
    cells = ("processbench", "prmbench", "search")
    found = [one for bench in evidence.comparisons.values() for one in bench]
    corrected = adjusted([one.difference.p for one in found])
    return {
        "profile": profile,
        "runs": [run.name for run in results.runs],
        "results": [
            {"system": line.label, "is_baseline": line.is_baseline}
            | {n: asdict(c) if isinstance(c, Score) else c for n, c in zip(cells, line.cells, strict=True)}
            for line in lines(results, evidence.levels, evidence.best_of_n)
        ],
        "truth": truth_lines(results.truth),
        "comparisons": [
            asdict(one) | {"said": str(one), "p_adjusted": p} for one, p in zip(found, corrected, strict=True)
        ],
        "accounting": {
            name: None if metrics is None else {k: metrics[k] for k in ("read", "kept", "dropped", "quarantined")}
            for name, metrics in results.stages.items()
        },
        "tables": {section.title: [_printed(table) for table in _tables(section.blocks)] for section in page.sections},
    }


def _tables(blocks: Sequence[Block]) -> list[Table]:
    """Every table of a section, in folds too."""
    found: list[Table] = []
    for block in blocks:
        inner = getattr(block, "blocks", getattr(block, "entries", ()))
        found += [block] if isinstance(block, Table) else _tables(inner)
    return found


def _printed(table: Table) -> dict[str, Any]:
    return {"caption": table.caption, "headers": list(table.headers), "rows": [list(row) for row in table.rows]}


def plots_of(results: Results, evidence: Evidence) -> Mapping[str, list[dict[str, Any]]]:
    """Rows for ``dvc plots``, one file each."""
    bars = plots.bars_of(lines(results, evidence.levels, evidence.best_of_n)).values()
    found = {
        name: [asdict(bar) for bar in values]
        for name, values in zip(("processbench", "prmbench", "search"), bars, strict=True)
    }
    found["loss"] = [
        {"system": run.name, "step": row["step"], "loss": row["loss"]}
        for run in results.runs
        for row in results.logs.get(run.name, ())
    ]
    found["held_out"] = [
        {"system": f"{row['system']}: {row['label']}"} | {key: row[key] for key in ("step", "loss", "accuracy")}
        for row in account.curves_of(results)
    ]
    for name, rewards in rewards_of(evidence, results).items():
        found |= {f"{curve}_{name.lower()}": rows for curve, rows in plots.curves_of(rewards).items()}
    found["data"] = [
        {"system": name, "records": records, "score": value}
        for _, records, _, values in tables.scale_points(results)
        for name, value in zip(plots.BENCHMARKS, values, strict=True)
        if value is not None
    ]
    return found


@stage
def main() -> None:
    """Run the stage."""
    params = load_params()
    runs = parse_runs(params.runs)
    results = load_results(METRICS, runs, [*params.baselines, *params.critics])
    others = {name: results.titles(name)[0] for part in results.others.values() for name in part}
    evidence = Evidence(runs, PREDICTIONS, RAW, params.report, others)
    page = page_of(results, evidence, params.profile)
    write_text(REPORTS / "report.html", to_html(page))
    write_text(REPORTS / "report.md", to_markdown(page))
    write_json(REPORTS / "tables.json", tables_of(results, evidence, page, params.profile))
    with atomic_folder(REPORTS / "plots") as folder:
        for name, rows in plots_of(results, evidence).items():
            write_json(folder / f"{name}.json", rows)


if __name__ == "__main__":
    main()
