"""The paper's questions, each answered in a sentence, and a table of where guided search helps."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pathfinder.benchmarks import paper
from pathfinder.pages.page import Block, Listing, Table
from pathfinder.reporting.cells import figures
from pathfinder.reporting.claims import (
    MORE_DATA,
    SEARCH_BEATS,
    SOME_DATA,
    VARIANT_CLAIMS,
    Finding,
    Findings,
    adjusted_findings,
    by_verdict,
    cell_of,
    listed,
)
from pathfinder.reporting.evidence import BEST_OF_N, MAJORITY, ONE_SAMPLE, Evidence
from pathfinder.reporting.origins import said

_SETS = dict(zip(paper.SEARCH.columns, paper.SEARCH.headings, strict=True))
_QUESTIONS = {
    "no_subtasks": "Does separating the subtasks help?",
    "no_error_categories": "Does separating the error categories help?",
    "autoregressive": "Do two passes beat autoregressive labels?",
}
_RIVALS = {ONE_SAMPLE: "pass@1", MAJORITY: "majority voting", BEST_OF_N["min"]: "best of n by min"}
_DATA_EFFECTS = {
    (1, 1): "it helps, and more of it helps further",
    (1, 0): "it helps, and more of it makes no clear difference",
    (1, -1): "some helps, more of it hurts",
    (0, 1): "the first share makes no clear difference, and more of it helps",
    (0, 0): "neither share makes a clear difference",
    (0, -1): "the first share makes no clear difference, and more of it hurts",
    (-1, 1): "some hurts, and more of it helps again",
    (-1, 0): "it hurts, and more of it makes no clear difference",
    (-1, -1): "it hurts, and more of it hurts further",
}  # of the first share of the weak data and of the rest; no clear difference is no proof of equality


def answers(evidence: Evidence, found: Findings) -> list[Block]:
    """One sentence per question that was tested, then guided search set by set; empty without comparisons."""
    by_claim = [(question, found.get(VARIANT_CLAIMS[variant])) for variant, question in _QUESTIONS.items()]
    sentences = [_said(f"{question} {_verdicts(tests, 'on')}", tests.values()) for question, tests in by_claim if tests]
    sentences += _data(found)
    searches = {claim.removeprefix(SEARCH_BEATS): tests for claim, tests in found.items() if SEARCH_BEATS in claim}
    if rivals := {rival: next(iter(tests.values())) for rival, tests in searches.items()}:
        question = "Does guided search beat the alternatives without it?"
        sentences.append(_said(f"{question} {_verdicts(rivals, 'against')}", rivals.values()))
    by_set = _by_set(evidence)
    sentences += _where(evidence, by_set)
    return [*([Listing(sentences)] if sentences else []), *_table(evidence, by_set)]


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
    question, tests = "Does more weak data keep helping?", (found.get(SOME_DATA, {}), more_data)
    used = [test for given in tests for test in given.values()]
    return [_said(f"{question} {_sentence('; '.join(parts))}", used)] if parts else []


def course(some: Finding, more: Finding) -> str:
    """The effect of the first share of the weak data and of the rest; only ``yes`` and ``no`` count as effects."""
    directions = {"yes": 1, "no": -1}
    return _DATA_EFFECTS[directions.get(some.verdict, 0), directions.get(more.verdict, 0)]


def _by_set(evidence: Evidence) -> Findings:
    """Per search set, the finding against each rival; p-values are adjusted over all of them."""
    compared = [one for _, found in evidence.by_set.values() for one in found]
    tests: dict[str, dict[str, Finding]] = {}
    for one, test in zip(compared, adjusted_findings(compared), strict=True):
        tests.setdefault(one.benchmark, {})[one.right] = test
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
        ends = (extreme(found, key=lambda name: found[name].value) for extreme in (max, min))
        most, least = (
            f"{found[name].value:+.1f} on {_SETS.get(name, name)} (pass@1 {evidence.by_set[name][0].value:.1f})"
            for name in ends
        )
        parts.append(f"{title} on {where}, from {most} to {least}")
    used = [test for tests in by_set.values() for test in tests.values()]
    return [_said(f"On which sets? It beats {'; '.join(parts)}.", used)] if parts else []


def _table(evidence: Evidence, by_set: Findings) -> list[Block]:
    rivals = [rival for rival in _RIVALS if any(rival in tests for tests in by_set.values())]
    levels = {name: evidence.by_set[name][0].value for name in by_set}
    rows = [
        (_SETS.get(name, name), *figures([level]), *(cell_of(by_set[name].get(rival)) for rival in rivals))
        for name, level in sorted(levels.items(), key=lambda item: item[1])
    ]
    caption = (
        "Guided search by PathFinder-PRM compared with its rivals on each set, the policy's hardest set first. The p "
        "is adjusted over all cells of this table."
    )
    headers = ("set", "pass@1", *(f"lead over {_RIVALS[rival]}" for rival in rivals))
    return [Table(caption, headers, rows)] if rows else []


def _said(text: str, tests: Iterable[Finding]) -> str:
    return said(text, [figure for test in tests for figure in (test.value, test.low, test.high)])


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + "."
