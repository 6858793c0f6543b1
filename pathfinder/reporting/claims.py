"""The paper's claims, each tested on our measurements, and everything that the report prints of them.

A claim has a cell in a table, a chip on the first screen, and a place in the sentences that answer the paper's
questions. ``VERDICTS`` has the words of all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf, nan

from pathfinder.benchmarks import paper
from pathfinder.benchmarks.bootstrap import Estimate, adjusted
from pathfinder.core.runs import MAIN_MIX
from pathfinder.pages.origins import Sourced, joined, origin_of
from pathfinder.pages.page import Block, Listing, Table, Text
from pathfinder.policy.choosing import RULES
from pathfinder.reporting.cells import figures, scale_points
from pathfinder.reporting.comparisons import Comparison
from pathfinder.reporting.evidence import BEST_OF_N, FULL, MAJORITY, ONE_SAMPLE, RANDOM, Evidence
from pathfinder.reporting.names import BENCHMARKS, CAPTIONS, MISSING, NOT_APPLICABLE, TEXTS, spoken
from pathfinder.reporting.origins import said, with_origin

_SETS = dict(zip(paper.SEARCH.columns, paper.SEARCH.headings, strict=True))
_RIVALS = {ONE_SAMPLE: "pass@1", MAJORITY: "majority voting", BEST_OF_N["min"]: "best of n by min"}
VARIANT_CLAIMS = {
    "no_subtasks": ("separate subtasks help", "Does separating the subtasks help?"),
    "no_error_categories": ("separate error categories help", "Does separating the error categories help?"),
    "autoregressive": ("two passes beat autoregressive labels", "Do two passes beat autoregressive labels?"),
    "plain_error": ("the method beats one label of errors", "Does the method beat one label of errors?"),
    "typed_three": ("two passes beat three labels in one", "Do two passes beat three labels in one pass?"),
}
"""The claim that the full variant beats another one, and its question."""
SOME_DATA, MORE_DATA = "some weak data helps (400k over PRM800K)", "more weak data helps (550k over 400k)"
SEARCH_BEATS = "guided search beats "


@dataclass(frozen=True, slots=True)
class Verdict:
    """The words for the outcome of a test: ``word`` in cells, chips and answers, and what it means for a hypothesis.

    ``colour`` is the kind of the chip. ``effect`` is the direction of a proven difference, 0 for an unproven one.
    """

    word: str
    colour: str
    hypothesis: str
    effect: int = 0


YES = Verdict("yes", "yes", "is supported", 1)
NO = Verdict("no", "no", "is contradicted", -1)
PERHAPS = Verdict("perhaps", "open", "is weakly supported")
PERHAPS_NOT = Verdict("perhaps not", "open", "is weakly contradicted")
OPEN = Verdict("open", "open", "remains open")
NOT_COMPARABLE = Verdict("not comparable", "open", "cannot be tested")
VERDICTS = (YES, NO, PERHAPS, PERHAPS_NOT, OPEN, NOT_COMPARABLE)
"""In the order of sentences."""


@dataclass(frozen=True)
class Finding(Estimate):
    """A claim on one benchmark: the difference in the claim's direction, its interval, and its adjusted p-value.

    If the two sides answer different questions, ``readings`` names these, and there are no figures.
    """

    readings: str = ""

    @property
    def verdict(self) -> Verdict:
        """``YES`` or ``NO`` if p < 0.05; ``PERHAPS`` or ``PERHAPS_NOT`` if only the interval excludes zero."""
        if self.readings:
            return NOT_COMPARABLE
        if not self.is_clear:
            return OPEN
        ahead, behind = (PERHAPS, PERHAPS_NOT) if self.p >= 0.05 else (YES, NO)
        return ahead if self.value > 0 else behind

    @property
    def figures(self) -> str:
        """Value and interval, or the two readings."""
        return self.readings or f"{self.value:+z.1f} [{self.low:z.1f}, {self.high:z.1f}]"  # z: no "-0.0"

    def __str__(self) -> str:
        p = "" if self.readings else f", p {'< 0.001' if self.p < 0.001 else f'= {self.p:.3f}'}"
        return f"{self.verdict.word}: {self.figures}{p}"

    def cell(self) -> Sourced:
        """The finding in words with the origin of its figures."""
        how = "paired difference, p adjusted for the number of comparisons,"
        return Sourced(str(self), joined(how, [self.value], [self.low, self.high]))

    def reversed(self) -> Finding:
        """The finding that the other side is ahead."""
        value, low, high = (with_origin(-each, origin_of(each)) for each in (self.value, self.high, self.low))
        return Finding(value, low, high, self.p, " against ".join(self.readings.split(" against ")[::-1]))


Findings = Mapping[str, Mapping[str, Finding]]
"""For each claim, a finding per benchmark title."""


def adjusted_findings(compared: Sequence[Comparison]) -> list[Finding]:
    """The finding of each comparison that its left side is ahead; p-values are adjusted over all differences."""
    ps = iter(adjusted([one.difference.p for one in compared if one.difference]))
    return [
        Finding(found.value, found.low, found.high, next(ps))
        if (found := one.difference)
        else Finding(nan, nan, nan, nan, one.reading)
        for one in compared
    ]


def findings(evidence: Evidence, compared: Sequence[Comparison]) -> Findings:
    """The findings of ``compared`` for every claim that they test; p-values are adjusted over all of them."""
    known = {}
    for one, test in zip(compared, adjusted_findings(compared), strict=True):
        known[one.benchmark, one.left, one.right] = test
        known[one.benchmark, one.right, one.left] = test.reversed()
    tested: dict[str, dict[str, Finding]] = {}
    for claim, ahead, behind in _claims(evidence):
        for bench in BENCHMARKS:
            if found := known.get((bench.title, ahead, behind)):
                tested.setdefault(claim, {})[bench.title] = found
    return tested


def claims(evidence: Evidence, found: Findings) -> list[Block]:
    """A table of claims with verdict, difference and p per benchmark."""
    if not evidence.compared:
        return [Text(f"{MISSING}: no two systems have predictions yet.")]
    readings = ", ".join(f"{evidence.results.asked(bench)} ({bench.title})" for bench in BENCHMARKS)
    caption = (
        "Differences in percentage points with 95 % intervals. The two-sided p is adjusted by Holm's method over all "
        f"comparisons that ProcessBench, PRMBench and Search list below. “{_sentence(YES.word)}” and “{NO.word}” mean "
        f"p < 0.05. “{_sentence(PERHAPS.word)}” and “{PERHAPS_NOT.word}” mean that the interval excludes zero but p is "
        f"larger. “{_sentence(OPEN.word)}” means neither: the data show no clear difference, which does not prove that "
        f"there is none. Systems are read by {readings}. “{_sentence(NOT_COMPARABLE.word)}” means that a variant "
        "does not have this reading, so the two sides answer different questions."
    )
    table = _claims_table(caption, found, [bench.title for bench in BENCHMARKS])
    counts = {count for one in evidence.compared for count in one.seeds}
    key = "single_seeds" if counts == {1} else "some_single_seeds" if 1 in counts else ""
    return [table, *([Text(CAPTIONS[key])] if key else [])]


def claims_as_published(evidence: Evidence) -> list[Block]:
    """The claims about variants and mixes again, under the published decision rules."""
    found = findings(evidence, evidence.compared_as_published)
    titles = [bench.title for bench in BENCHMARKS if any(bench.title in tests for tests in found.values())]
    return [_claims_table(CAPTIONS["claims_as_published"], found, titles)] if found else []


def _claims_table(caption: str, found: Findings, titles: Sequence[str]) -> Table:
    rows = [(claim, *(cell_of(tests.get(title)) for title in titles)) for claim, tests in found.items()]
    return Table(caption, ("claim", *titles), rows, measured=frozenset())


def cell_of(finding: Finding | None) -> str:
    """A finding as a cell of a table; a dash for ``None``."""
    return finding.cell() if finding else NOT_APPLICABLE


def hypothesis(found: Findings) -> list[str]:
    """The outcome for the paper's hypothesis (section 3.2) in one sentence; empty if it was not tested."""
    tests = found.get(VARIANT_CLAIMS["no_subtasks"][0], {})
    if not tests:
        return []
    reasons = {
        OPEN: ", where the interval of the difference includes zero",
        NOT_COMPARABLE: ", where the variant answers a different question",
    }
    parts = [
        f"{verdict.hypothesis} on {listed(list(names))}{reasons.get(verdict, '')}"
        for verdict, names in by_verdict(tests).items()
    ]
    claim = "The paper's hypothesis, that rewards improve if typed errors are detected first,"
    return [_said_of(f"{claim} {'; it '.join(parts)}.", tests.values())]


def by_verdict(tests: Mapping[str, Finding]) -> dict[Verdict, dict[str, Finding]]:
    """The findings of each verdict, the clear verdicts first."""
    found = {verdict: {name: test for name, test in tests.items() if test.verdict is verdict} for verdict in VERDICTS}
    return {verdict: of_verdict for verdict, of_verdict in found.items() if of_verdict}


def chips(found: Findings) -> list[tuple[str, str]]:
    """The text and the kind of one chip per claim and verdict."""
    items = []
    rivals: dict[Verdict, list[str]] = {}
    for claim, tests in found.items():
        if claim.startswith(SEARCH_BEATS):
            verdict = next(iter(tests.values())).verdict
            rivals.setdefault(verdict, []).append(claim.removeprefix(SEARCH_BEATS))
            continue
        for verdict, names in by_verdict(tests).items():
            where = "all benchmarks" if len(names) == len(BENCHMARKS) else listed(list(names))
            items.append((f"{claim}: {verdict.word} on {where}", verdict.colour))
    for verdict, beaten in rivals.items():
        what = f"all {len(beaten)} alternatives" if len(rivals) == 1 and len(beaten) > 1 else listed(beaten)
        items.append((f"{SEARCH_BEATS}{what}: {verdict.word}", verdict.colour))
    return items


def listed(names: Sequence[str]) -> str:
    """``a, b and c``."""
    return ", ".join(names[:-1]) + " and " + names[-1] if len(names) > 1 else names[0]


def _claims(evidence: Evidence) -> list[tuple[str, str, str]]:
    """Each claim, the system that it says is ahead, and the other system."""
    found = []
    sizes = {run.mix: records for run, records, *_ in scale_points(evidence.results)}
    for run, *_ in evidence.systems.values():
        main = replace(run, mix=MAIN_MIX)
        if run.variant != "full":
            claim, _ = VARIANT_CLAIMS.get(run.variant, (f"full beats {run.variant}", ""))
            where = "" if run.mix == MAIN_MIX else f" ({run.mix} mix)"
            found.append((claim + where, spoken(replace(run, variant="full")), spoken(run)))
        elif run.mix == "prm800k":
            found.append((SOME_DATA, FULL, spoken(run)))
        elif run.mix != MAIN_MIX:
            is_larger = sizes.get(run.mix, inf) >= sizes.get(MAIN_MIX, 0)
            more, less = (run, main) if is_larger else (main, run)
            found.append((f"more weak data helps ({more.mix} over {less.mix})", spoken(more), spoken(less)))
    rivals = {"pass@1": ONE_SAMPLE, "a random pick": RANDOM, "majority voting": MAJORITY}
    rivals |= {f"{way} n by {score}": BEST_OF_N[rule] for rule, (way, score) in RULES.items()}
    return found + [(SEARCH_BEATS + rival, FULL, name) for rival, name in rivals.items()]


def answers(evidence: Evidence, found: Findings) -> list[Block]:
    """One sentence per question that was tested, then guided search set by set; empty without comparisons."""
    sentences = [
        _said_of(f"{question} {_verdicts(tests, 'on')}", tests.values())
        for claim, question in VARIANT_CLAIMS.values()
        if (tests := found.get(claim))
    ]
    sentences += _data(found)
    searches = {claim.removeprefix(SEARCH_BEATS): tests for claim, tests in found.items() if SEARCH_BEATS in claim}
    if rivals := {rival: next(iter(tests.values())) for rival, tests in searches.items()}:
        question = "Does guided search beat the alternatives without it?"
        sentences.append(_said_of(f"{question} {_verdicts(rivals, 'against')}", rivals.values()))
    by_set = _by_set(evidence)
    sentences += _where(evidence, by_set)
    return [*([Listing(sentences)] if sentences else []), *_lead_table(evidence, by_set)]


def _verdicts(tests: Mapping[str, Finding], preposition: str) -> str:
    """``Yes on A (figures) and B (figures); open on C (figures).``"""
    parts = [
        f"{verdict.word} {preposition} {listed([f'{name} ({test.figures})' for name, test in found.items()])}"
        for verdict, found in by_verdict(tests).items()
    ]
    return _sentence("; ".join(parts)) + "."


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
    return [_said_of(f"{question} {_sentence('; '.join(parts))}.", used)] if parts else []


def course(some: Finding, more: Finding) -> str:
    """The effect of the first share of the weak data and of the rest; only ``YES`` and ``NO`` count as effects."""
    return TEXTS["data_effects"][f"{some.verdict.effect},{more.verdict.effect}"]


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
        if not (found := {name: tests[rival] for name, tests in by_set.items() if rival in tests}):
            continue
        ahead = [_SETS.get(name, name) for name, test in found.items() if test.verdict is YES]
        where = "every set" if len(ahead) == len(found) else listed(ahead) if ahead else "no set with certainty"
        most, least = (
            f"{found[name].value:+z.1f} on {_SETS.get(name, name)} (pass@1 {evidence.by_set[name][0].value:.1f})"
            for name in (extreme(found, key=lambda name: found[name].value) for extreme in (max, min))
        )
        parts.append(f"{title} on {where}, from {most} to {least}")
    used = [test for tests in by_set.values() for test in tests.values()]
    return [_said_of(f"On which sets? It beats {'; '.join(parts)}.", used)] if parts else []


def _lead_table(evidence: Evidence, by_set: Findings) -> list[Block]:
    rivals = [rival for rival in _RIVALS if any(rival in tests for tests in by_set.values())]
    levels = {name: evidence.by_set[name][0].value for name in by_set}
    rows = [
        (_SETS.get(name, name), *figures([level]), *(cell_of(by_set[name].get(rival)) for rival in rivals))
        for name, level in sorted(levels.items(), key=lambda item: item[1])
    ]
    headers = ("set", "pass@1", *(f"lead over {_RIVALS[rival]}" for rival in rivals))
    return [Table(CAPTIONS["search_leads"], headers, rows)] if rows else []


def _said_of(text: str, tests: Iterable[Finding]) -> str:
    known = [test for test in tests if test.verdict is not NOT_COMPARABLE]
    return said(text, [figure for test in known for figure in (test.value, test.low, test.high)])


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]
