"""The report's page: its sections in reading order."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pathfinder.pages.page import ROOT, Block, Page, Section, Table, Text
from pathfinder.reporting import account, details, plots, record_flow, tables
from pathfinder.reporting.answers import answers
from pathfinder.reporting.claims import claims, findings
from pathfinder.reporting.evidence import Evidence
from pathfinder.reporting.mistakes import worst_mistakes
from pathfinder.reporting.names import PRMBENCH, PROCESSBENCH, SEARCH, Benchmark

CLAIMS = "The paper's claims, tested here"
_NOTICES = {
    "quickstart": "Tiny models on a generated world: the figures show that the method learns and how its parts "
    "compare here. They are not comparable with the paper.",
    "seeds": "Tiny models on a generated world: the figures show how the method's parts compare here over several "
    "seeds. They are not comparable with the paper.",
    "sample": "Tiny models on real files: this run shows that the pipeline handles real data. The accuracies are "
    "meaningless.",
}
_PLACES = (
    ("reports/tables.json", "every figure of this page, for machines"),
    ("reports/plots/", "the same for `dvc plots show`"),
    ("reports/validation/index.html", "each gate of the data"),
    ("reports/validation_train/index.html", "each gate of the training set"),
    ("metrics/", "the metrics of each stage (`dvc metrics show`)"),
    ("artifacts/predictions/", "every step's scores and every search"),
    ("artifacts/overlap/overlap.parquet", "training problems that also occur in a benchmark"),
    ("models/", "the trained PRMs"),
    (".pathfinder/stages.html", "the latest execution of every stage here: time, memory, inputs and outputs"),
    ("pathfinder lineage up reports/report.html", "the lineage of this page back to the source files"),
)
_LINKS = {place: ROOT + place for place, _ in _PLACES if " " not in place}


def page_of(evidence: Evidence, profile: str, gates: Mapping[str, Mapping[str, Any] | None]) -> Page:
    """The whole page; ``gates`` are the contents of validation.json by folder."""
    results, lines = evidence.results, evidence.lines
    family = profile.split("-")[0]
    is_comparable = family == "paper"
    lead: list[Block] = [Text(f"Profile: {profile}.")]
    lead += [Text(_NOTICES[family], is_notice=True)] if family in _NOTICES else []
    tested = findings(evidence)
    predictions = {name: evidence.rows(f"processbench/{run}.jsonl") for name, run in evidence.first_runs.items()}
    paper: list[Block] = [] if is_comparable else [Text("The data and models differ, so differences mean little.")]
    paper += tables.paper_tables(results, is_comparable)
    paper += [plots.paper_performance(lines, is_comparable), plots.paper_scale(results, is_comparable)]
    sections: dict[str, list[Block]] = {
        "Results": [tables.headline(lines), *plots.performance(lines), *tables.each_run(results)],
        CLAIMS: [*claims(evidence, tested), *answers(evidence, tested)],
        "ProcessBench": [
            *tables.by_part(results, PROCESSBENCH),
            *_compared(evidence, PROCESSBENCH),
            *details.processbench(results),
        ],
        "PRMBench": [*tables.by_part(results, PRMBENCH), *_compared(evidence, PRMBENCH), *details.prmbench(results)],
        "Search": [*tables.search(results), *_compared(evidence, SEARCH), *details.search(results)],
        "Score against data": plots.our_scale(results, lines) or [Text("Only one data mix was trained on.")],
        "How good the rewards are": [
            *details.stopped_early(results, "no reward curves on ProcessBench"),
            *(block for name, found in evidence.rewards.items() for block in plots.reward_quality(name, found)),
        ],
        "The paper's tables and ours": paper,
        "Where every record went": record_flow.accounting(results),
        "The judge against the truth": account.truth(results.truth),
        "Gates": [block for folder, outcome in gates.items() for block in account.validation(folder, outcome)],
        "Overlap with the benchmarks": account.overlap(results.stages["build"]),
        "Training": account.training(results),
        "Costs": account.costs(results),
        "Worst mistakes": worst_mistakes(evidence.processbench_items, predictions),
        "Where everything is": [Table("Files and commands.", ("place", "contents"), _PLACES, links=_LINKS)],
    }
    title = "Error typing for smarter rewards: the reproduction's report"
    return Page(title, lead, [Section(title, blocks) for title, blocks in sections.items()])


def _compared(evidence: Evidence, benchmark: Benchmark) -> list[Block]:
    """One sentence per comparison on a benchmark."""
    return [Text(str(one)) for one in evidence.comparisons if one.benchmark == benchmark.title]
