"""The report's page: its sections in reading order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pathfinder.pages.page import Block, Listing, Page, Section, Table, Text, files_of
from pathfinder.reporting import account, details, plots, record_flow, tables
from pathfinder.reporting.answers import answers
from pathfinder.reporting.claims import claims, claims_as_published, findings
from pathfinder.reporting.evidence import Evidence
from pathfinder.reporting.mistakes import worst_mistakes
from pathfinder.reporting.names import PRMBENCH, PROCESSBENCH, SEARCH, TEXTS, Benchmark
from pathfinder.reporting.origins import said

CLAIMS = "The paper's claims, tested here"
ORIGINS = "Where the figures come from"
_SYSTEMS = ("Results", "ProcessBench", "PRMBench", "Search", "The paper's tables and ours")
"""The sections that say something if nothing was trained."""


def page_of(evidence: Evidence, profile: str, gates: Mapping[str, Mapping[str, Any] | None]) -> Page:
    """The whole page; ``gates`` are the contents of validation.json by folder."""
    results, lines = evidence.results, evidence.lines
    family = profile.split("-")[0]
    is_comparable = family in {
        "paper",
        "evaluate",
    }  # the paper's models or the authors' checkpoint on the real benchmarks
    lead: list[Block] = [Text(f"Profile: {profile}.")]
    lead += [Text(TEXTS["profiles"][family], is_notice=True)] if family in TEXTS["profiles"] else []
    places = TEXTS["places"]
    tested = findings(evidence, evidence.compared)
    predictions = {name: evidence.rows(f"processbench/{run}.jsonl") for name, run in evidence.first_runs.items()}
    files = {name: evidence.files(f"processbench/{run}.jsonl") for name, run in evidence.first_runs.items()}
    paper: list[Block] = [] if is_comparable else [Text("The data and models differ, so differences mean little.")]
    paper += map(Text, TEXTS["paper"].values())
    paper += tables.paper_tables(results, is_comparable)
    paper += [plots.paper_performance(results, is_comparable), plots.paper_scale(results, is_comparable)]
    sections: dict[str, list[Block]] = {
        "Results": [tables.headline(results, lines), *plots.performance(lines), *tables.each_run(results)],
        CLAIMS: [*claims(evidence, tested), *claims_as_published(evidence), *answers(evidence, tested)],
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
        "Worst mistakes": worst_mistakes(evidence.processbench_items, predictions, files),
        "Where everything is": [Table("Files and commands.", ("place", "contents"), list(places.items()))],
    }
    title = "Error typing for smarter rewards: reproduction report"
    return Page(title, lead, [Section(title, blocks) for title, blocks in sections.items()])


def with_files(page: Page, digests: Mapping[str, tuple[str, int]], tables: str) -> Page:
    """The page with a last section about the files behind its figures: sha256 and bytes by path.

    ``tables`` is the file with the page's figures for machines.
    """
    rows = [(path, f"{digests[path][1]:,}", digests[path][0]) for path in files_of(page) if path in digests]
    text = (
        "Every figure of this page was made from these files. The place in the file is shown when the pointer rests on "
        f"the figure, and {tables} has it for every figure. The command pathfinder lineage up "
        f"'{tables}#/results/0/processbench' shows it with the stages that wrote the files."
    )
    table = Table("Files behind the figures, as they were.", ("file", "bytes", "sha256"), rows, is_anchored=True)
    return replace(page, sections=[*page.sections, Section(ORIGINS, [Text(text), table])])


def systems_only(page: Page) -> Page:
    """The page of a profile without runs: the sections about systems that others trained."""
    return Page(page.title, page.blocks, [section for section in page.sections if section.title in _SYSTEMS])


def _compared(evidence: Evidence, benchmark: Benchmark) -> list[Block]:
    """A list with one sentence per comparison on a benchmark; empty without comparisons."""
    found = [one for one in evidence.compared if one.benchmark == benchmark.title]
    sentences = [said(str(one), [getattr(one.difference, key) for key in ("value", "low", "high")]) for one in found]
    return [Listing(sentences)] if sentences else []
