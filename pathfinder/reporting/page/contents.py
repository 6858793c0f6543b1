"""The report's page: its sections in reading order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ground.io import digest_of
from pathfinder.pages.page import Block, Browser, Figure, Fold, Listing, Page, Section, Table, Text, files_of
from pathfinder.reporting import paper_tables, tables
from pathfinder.reporting.calibration import reward_quality
from pathfinder.reporting.claims import answers, claims, claims_as_published, findings
from pathfinder.reporting.evidence import Evidence
from pathfinder.reporting.names import CAPTIONS, MISSING, PRMBENCH, PROCESSBENCH, SEARCH, TABLES, TEXTS, Benchmark
from pathfinder.reporting.origins import said
from pathfinder.reporting.page import account, record_flow
from pathfinder.reporting.page.decided import decided
from pathfinder.reporting.page.faults import caught, false_alarm_table
from pathfinder.reporting.page.mistakes import worst_mistakes
from pathfinder.reporting.page.opening import opening
from pathfinder.reporting.page.registered import registered

TOY = "toy: "
TITLE = "Error typing for smarter rewards: reproduction report"
CAUGHT = "What the flags catch"
CLAIMS = "The paper's claims, tested here"
PAPER = "The paper's tables and ours"
DECIDED = "Typed errors in the experiment"
REGISTERED = "Predictions registered before"
ORIGINS = "Where the figures come from"
_SYSTEMS = ("Results", CAUGHT, "ProcessBench", "PRMBench", "Search", REGISTERED, PAPER)
"""The sections that say something if nothing was trained."""


def page_of(evidence: Evidence, profile: str, gates: Mapping[str, Mapping[str, Any] | None]) -> Page:
    """The whole page; ``gates`` are the contents of validation.json by folder.

    Sections without any content are left out, and the last section names those whose stages have not run.
    """
    results, lines = evidence.results, evidence.lines
    family = profile.split("-")[0]
    # the paper's models or the authors' checkpoint on the real benchmarks
    comparable = results.whole if family in {"paper", "evaluate"} and not evidence.is_toy else []
    tested = findings(evidence, evidence.compared)
    notice = [Text(TEXTS["profiles"][family], is_notice=True)] if family in TEXTS["profiles"] else []
    lead = [*opening(evidence, tested, gates), *notice]
    predictions = {name: evidence.rows(f"processbench/{run}.jsonl") for name, run in evidence.first_runs.items()}
    files = {name: evidence.files(f"processbench/{run}.jsonl") for name, run in evidence.first_runs.items()}
    paper: list[Block] = [*map(Text, TEXTS["paper" if comparable else "paper_elsewhere"].values())]
    paper += paper_tables.paper_tables(results, comparable)
    paper += [paper_tables.performance(results, comparable), paper_tables.scale(results, comparable)]
    flags = [*caught(evidence), *false_alarm_table(evidence)]
    measured: dict[str, list[Block]] = {
        "Results": [tables.headline(results, lines), *tables.performance(lines), *tables.each_run(results)],
        CAUGHT: [*flags, *(tables.stopped_early(results, "later steps do not count") if flags else [])],
        "Worst mistakes": worst_mistakes(evidence.processbench_items, predictions, files),
        CLAIMS: [*claims(evidence, tested), *claims_as_published(evidence), *answers(evidence, tested)],
        DECIDED: decided() if evidence.is_toy else [],
        "ProcessBench": _on(evidence, PROCESSBENCH),
        "PRMBench": _on(evidence, PRMBENCH),
        "Search": _on(evidence, SEARCH),
        "Score against data": tables.our_scale(results, lines),
        "How good the rewards are": [
            *tables.stopped_early(results, "no reward curves on ProcessBench"),
            *(block for name, found in evidence.rewards.items() for block in reward_quality(name, found)),
        ],
        REGISTERED: registered(evidence),
        PAPER: paper,
    }
    data: dict[str, list[Block]] = {
        "Where every record went": record_flow.accounting(results),
        "The judge against the truth": account.truth(results.truth),
        "Gates": [block for folder, outcome in gates.items() for block in account.validation(folder, outcome)],
        "Overlap with the benchmarks": account.overlap(results.build),
        "Training": account.training(results),
        "Costs": account.costs(results),
    }
    sections = _sections(measured)
    if evidence.is_toy:
        sections = [replace(section, blocks=[*map(_marked, section.blocks)]) for section in sections]
    sections += _sections(data)
    absent = [title for title, blocks in (measured | data).items() if blocks and _is_missing(blocks)]
    return Page(TITLE, lead, [*sections, Section("Where everything is", _places(absent))])


def _sections(found: Mapping[str, list[Block]]) -> list[Section]:
    return [Section(title, blocks) for title, blocks in found.items() if not _is_missing(blocks)]


def _is_missing(blocks: Sequence[Block]) -> bool:
    """True if every block only says that something is missing."""
    return all(isinstance(block, Text) and block.text.startswith(f"{MISSING}: ") for block in blocks)


def _places(absent: Sequence[str]) -> list[Block]:
    table = Table("Files and commands.", ("place", "contents"), list(TEXTS["places"].items()))
    missing = f"Left out, because their stages have not run ({MISSING}): {', '.join(absent)}."
    return [table, *([Text(missing)] if absent else [])]


def with_files(page: Page, digests: Mapping[str, tuple[str, int]], tables: str, profile: str) -> Page:
    """The page with its provenance: a line at the top, and a last section with bytes and sha256 of every file.

    ``tables`` is the file with the page's figures for machines. The line has no commit, date or device, so equal
    inputs give equal bytes. It has the digest of the list of files, which names the data.
    """
    paths = files_of(page)
    known = [(f"S{number}", path, *digests[path]) for number, path in enumerate(paths, start=1) if path in digests]
    rows = [(number, path, f"{size:,}", sha256) for number, path, sha256, size in known]
    table = Table(
        "Files behind the figures, when the report was made.",
        ("number", "file", "bytes", "sha256"),
        rows,
        is_anchored=True,
    )
    source = Text(
        f"Profile {profile}, {len(rows)} files, sha256 of their list {digest_of([row[1:] for row in known])[:16]}. "
        f"The command pathfinder lineage up {tables} shows the commit, time and device of every stage behind them."
    )
    return replace(
        page,
        blocks=[*page.blocks, source],
        sections=[*page.sections, Section(ORIGINS, [Text(CAPTIONS["files"].format(tables=tables)), table])],
    )


def systems_only(page: Page) -> Page:
    """The page of a profile without runs: the sections about systems that others trained."""
    return Page(page.title, page.blocks, [section for section in page.sections if section.title in _SYSTEMS])


def _on(evidence: Evidence, benchmark: Benchmark) -> list[Block]:
    """Scores, comparisons and details of a benchmark."""
    results = evidence.results
    return [*tables.scores(results, benchmark), *_compared(evidence, benchmark), *tables.details(results, benchmark)]


def _compared(evidence: Evidence, benchmark: Benchmark) -> list[Block]:
    """One sentence per comparison on a benchmark, below a note on their intervals; empty without comparisons."""
    found = [one for one in evidence.compared if one.benchmark == benchmark.title]
    figures = [[of.value, of.low, of.high] if (of := one.difference) else [] for one in found]
    sentences = [said(str(one), used) for one, used in zip(found, figures, strict=True)]
    return [Text(CAPTIONS["comparisons"].format(claims=CLAIMS, tables=TABLES)), Listing(sentences)] if sentences else []


def _marked(block: Block) -> Block:
    """A block with ``TOY`` before each row and entry of what was measured here, and a mark before captions."""
    match block:
        case Table():
            measured = range(len(block.rows)) if block.measured is None else block.measured
            rows = [(f"{TOY}{row[0]}", *row[1:]) if place in measured else row for place, row in enumerate(block.rows)]
            return replace(block, rows=rows)
        case Figure() if block.is_measured:
            return replace(block, caption=f"Toy sets: {block.caption}")
        case Browser():
            return Browser([replace(entry, summary=f"{TOY}{entry.summary}") for entry in block.entries])
        case Fold():
            return replace(block, blocks=[*map(_marked, block.blocks)])  # type: ignore[list-item]
        case _:
            return block
