"""Every malformation of every format, judged; the table of kinds."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from random import Random

from tests.campaigns.faults.inputs import benchmarks, given, outputs, records, settings, upstream
from tests.campaigns.faults.inputs.binaries import BINARIES, Binary, damaged, judge_binary
from tests.campaigns.faults.inputs.documents import Document
from tests.campaigns.faults.inputs.judgement import Verdict, judge
from tests.campaigns.faults.inputs.malform import Malformed, edited, malformed

DOCUMENTS: tuple[Document, ...] = (
    upstream.PRM800K,
    upstream.RLHFLOW,
    upstream.RLHFLOW_LIST,
    upstream.SHEPHERD,
    benchmarks.PROCESSBENCH,
    benchmarks.PROCESSBENCH_LINES,
    benchmarks.PRMBENCH,
    *benchmarks.SEARCH,
    given.SOLUTIONS,
    given.SOLUTIONS_LIST,
    given.PRMBENCH_SOLUTIONS,
    given.CANDIDATES,
    given.STEP_PREDICTIONS,
    given.LABEL_PREDICTIONS,
    given.SEARCH_PREDICTIONS,
    settings.PARAMS,
    settings.EXCLUSIONS,
    settings.HUB,
    settings.DESCRIPTION,
    settings.CONFIG,
    settings.ADAPTER,
    settings.RESOURCES,
    settings.PROFILE,
    records.RECORD,
    records.ENVELOPE,
    records.LEDGER_FILE,
    records.LISTING,
    records.LOG_ENTRY,
    records.NEWEST_ENTRY,
    records.RUN_MANIFEST,
    *outputs.METRICS,
    outputs.RESULTS,
    outputs.MANIFEST_FILE,
    outputs.CHECKPOINT,
)

FORMATS: tuple[Document | Binary, ...] = (*DOCUMENTS, *BINARIES)


@dataclass(slots=True)
class Tally:
    """The outcomes of the malformed documents of one format."""

    name: str
    kinds: set[str] = field(default_factory=set)
    outcomes: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)

    def add(self, one: Malformed, outcome: str, problem: str) -> None:
        """Count one."""
        self.kinds.add(one.kind)
        self.outcomes[outcome] += 1
        if problem:
            self.problems.append(f"{self.name}, {one.kind}{f' ({one.at})' if one.at else ''}: {problem}")


def run(formats: Sequence[Document | Binary], seed: int, share: float = 1.0, edits: int = 0) -> Iterator[Tally]:
    """The tally of each format: ``share`` of the malformed documents, chosen by the seed, and ``edits`` random ones."""
    for one_format in formats:
        random, tally = Random(f"{seed}/{one_format.name}"), Tally(one_format.name)
        chosen = (one for one in cases(one_format, random) if share == 1 or random.random() < share)
        by_chance = () if isinstance(one_format, Binary) else edited(one_format, random, edits)
        for one in chain(chosen, by_chance):
            with tempfile.TemporaryDirectory(prefix="malformed-") as folder:
                verdict = verdict_on(one_format, one, Path(folder))
            tally.add(one, verdict.outcome, verdict.problem)
        yield tally


def cases(one_format: Document | Binary, random: Random) -> Iterator[Malformed]:
    """The malformed documents of a format."""
    return damaged(one_format, random) if isinstance(one_format, Binary) else malformed(one_format, random)


def verdict_on(one_format: Document | Binary, one: Malformed, folder: Path) -> Verdict:
    """Read a malformed document below the empty folder ``folder``."""
    if isinstance(one_format, Binary):
        return judge_binary(one_format, one, folder)
    return judge(one_format, one, folder)


def table(tallies: Sequence[Tally]) -> str:
    """The table of tests/campaigns/reliability.md."""
    lines = [
        "| format | kinds | documents | refused in one line | read as they say | wrong |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for one in tallies:
        refused, read = one.outcomes["refused"], one.outcomes["read"]
        lines.append(
            f"| {one.name} | {len(one.kinds)} | {one.outcomes.total():,} | {refused:,} | {read:,} "
            f"| {len(one.problems)} |"
        )
    total = sum((one.outcomes for one in tallies), Counter[str]())
    kinds, wrong = len(set().union(*(one.kinds for one in tallies))), sum(len(one.problems) for one in tallies)
    refused, read = total["refused"], total["read"]
    return "\n".join([*lines, f"| all | {kinds} | {total.total():,} | {refused:,} | {read:,} | {wrong} |"]) + "\n"
