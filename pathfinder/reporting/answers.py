"""The paper's questions, each answered in a sentence, and a table of where guided search helps."""

from __future__ import annotations

from collections.abc import Mapping

from pathfinder.benchmarks import paper
from pathfinder.benchmarks.bootstrap import adjusted
from pathfinder.pages.page import Block, Listing, Table
from pathfinder.reporting.claims import (
    CATEGORIES,
    MORE_DATA,
    SEARCH_BEATS,
    SOME_DATA,
    SUBTASKS,
    TWO_PASSES,
    Finding,
    Findings,
    by_verdict,
    finding,
    listed,
)
from pathfinder.reporting.evidence import BEST_OF_N, MAJORITY, ONE_SAMPLE, Evidence
from pathfinder.reporting.results import NOT_APPLICABLE

_SETS = dict(zip(paper.SEARCH.columns, paper.SEARCH.headings, strict=True))
_QUESTIONS = {
    "Does separating the subtasks help?": SUBTASKS,
    "Does separating the error categories help?": CATEGORIES,
    "Do two passes beat autoregressive labels?": TWO_PASSES,
}
_RIVALS = {ONE_SAMPLE: "pass@1", MAJORITY: "majority voting", BEST_OF_N["min"]: "best of n by min"}


def answers(evidence: Evidence, found: Findings) -> list[Block]:
    """One sentence per question that was tested, then guided search set by set; empty without comparisons."""
    said = [f"{question} {_verdicts(found[claim], 'on')}" for question, claim in _QUESTIONS.items() if claim in found]
    said += _data(found)
    rivals = {
        claim.removeprefix(SEARCH_BEATS): next(iter(tests.values()))
        for claim, tests in found.items()
        if claim.startswith(SEARCH_BEATS)
    }
    said += [f"Does guided search beat the alternatives without it? {_verdicts(rivals, 'against')}"] if rivals else []
    by_set = _by_set(evidence)
    said += _where(evidence, by_set)
    return [*([Listing(said)] if said else []), *_table(evidence, by_set)]


def _verdicts(tests: Mapping[str, Finding], preposition: str) -> str:
    """``Yes on A (figures) and B (figures); open on C (figures).``"""
    parts = [
        f"{verdict} {preposition} {listed([f'{name} ({test.figures})' for name, test in found.items()])}"
        for verdict, found in by_verdict(tests).items()
    ]
    return _sentence("; ".join(parts))


def _data(found: Findings) -> list[str]:
    """Scores with none, one share and four shares of the weak data."""
    more_data = found.get(MORE_DATA, {})
    parts = [
        f"{name}: {course(some, more)} (none to 1x {some.figures}, 1x to 4x {more.figures})"
        for name, some in found.get(SOME_DATA, {}).items()
        if (more := more_data.get(name)) is not None
    ]
    return [f"Does more weak data keep helping, or does it saturate? {_sentence('; '.join(parts))}"] if parts else []


def course(some: Finding, more: Finding) -> str:
    """The effect of the first share of the weak data and of the rest; only ``yes`` and ``no`` count as effects."""
    directions = [{"yes": 1, "no": -1}.get(found.verdict, 0) for found in (some, more)]
    match directions:
        case 1, 1:
            return "it helps, and more of it helps further"
        case 1, 0:
            return "it helps and then saturates"
        case 1, -1:
            return "some helps, more of it hurts"
        case 0, 1:
            return "only the larger share helps"
        case 0, 0:
            return "no share makes a clear difference in these runs"
        case -1, 0 | -1:
            return "it hurts"
        case -1, 1:
            return "some hurts, and more of it makes up for that"
    return "more of it hurts"


def _by_set(evidence: Evidence) -> Findings:
    """Per search set, the finding against each rival; p-values are adjusted over all of them."""
    compared = {(name, one.right): one for name, (_, found) in evidence.by_set.items() for one in found}
    ps = adjusted([one.difference.p for one in compared.values()])
    tests: dict[str, dict[str, Finding]] = {}
    for ((name, rival), one), p in zip(compared.items(), ps, strict=True):
        tests.setdefault(name, {})[rival] = finding(one, p)
    return tests


def _where(evidence: Evidence, by_set: Findings) -> list[str]:
    """The sets on which guided search is clearly ahead, and its largest and smallest lead."""
    parts = []
    for rival, title in _RIVALS.items():
        found = {name: tests[rival] for name, tests in by_set.items() if rival in tests}
        if not found:
            continue
        ahead = [_SETS.get(name, name) for name, test in found.items() if test.verdict == "yes"]
        where = "every set" if len(ahead) == len(found) else listed(ahead) if ahead else "no set with certainty"
        ends = (max(found, key=lambda name: found[name].value), min(found, key=lambda name: found[name].value))
        most, least = (
            f"{found[name].value:+.1f} on {_SETS.get(name, name)} (pass@1 {evidence.by_set[name][0].value:.1f})"
            for name in ends
        )
        parts.append(f"{title} on {where}, from {most} to {least}")
    return [f"On which sets? It beats {'; '.join(parts)}."] if parts else []


def _table(evidence: Evidence, by_set: Findings) -> list[Block]:
    rivals = [rival for rival in _RIVALS if any(rival in tests for tests in by_set.values())]
    levels = {name: evidence.by_set[name][0].value for name in by_set}
    rows = [
        (_SETS.get(name, name), f"{levels[name]:.1f}", *(str(by_set[name].get(r, NOT_APPLICABLE)) for r in rivals))
        for name in sorted(by_set, key=lambda name: levels[name])
    ]
    caption = (
        "Guided search by PathFinder-PRM compared with its rivals on each set, the policy's hardest set first. The p "
        "is adjusted over all cells of this table."
    )
    headers = ("set", "pass@1", *(f"over {_RIVALS[rival]}" for rival in rivals))
    return [Table(caption, headers, rows, origin="artifacts/predictions/search/full.jsonl")] if rows else []


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + "."
