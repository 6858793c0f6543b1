"""The paper's claims, each tested on our measurements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pathfinder.benchmarks.bootstrap import adjusted
from pathfinder.core.runs import MAIN_MIX
from pathfinder.pages.page import Block, Table, Text
from pathfinder.reporting.comparisons import Comparison, seeds_of
from pathfinder.reporting.evidence import BEST_OF_N, MAJORITY, ONE_SAMPLE, RANDOM, Evidence
from pathfinder.reporting.results import BENCHMARKS, MISSING, NOT_APPLICABLE, TABLES, spoken

SUBTASKS, CATEGORIES, TWO_PASSES = (
    "separate subtasks help",
    "separate error categories help",
    "two passes beat autoregressive labels",
)
SOME_DATA, MORE_DATA = "some weak data helps (400k over PRM800K)", "more weak data helps (550k over 400k)"
SEARCH_BEATS = "guided search beats "
_LEVEL = 0.05
_VARIANTS = {"no_subtasks": SUBTASKS, "no_error_categories": CATEGORIES, "autoregressive": TWO_PASSES}


@dataclass(frozen=True, slots=True)
class Finding:
    """A claim on one benchmark: the difference in the claim's direction, its interval, and its adjusted p-value."""

    value: float
    low: float
    high: float
    p: float

    @property
    def verdict(self) -> str:
        """``yes`` or ``no`` if p < 0.05; ``perhaps`` or ``perhaps not`` if only the interval excludes zero."""
        if self.low <= 0 <= self.high:
            return "open"
        if self.p >= _LEVEL:
            return "perhaps" if self.value > 0 else "perhaps not"
        return "yes" if self.value > 0 else "no"

    @property
    def figures(self) -> str:
        """Value and interval."""
        return f"{self.value:+z.1f} [{self.low:z.1f}, {self.high:z.1f}]"  # z: no "-0.0"

    def __str__(self) -> str:
        return f"{self.verdict}: {self.figures}, p {'< 0.001' if self.p < 0.001 else f'{self.p:.3f}'}"


Findings = Mapping[str, Mapping[str, Finding]]
"""For each claim, a finding per benchmark title."""


def finding(compared: Comparison, p: float, is_reversed: bool = False) -> Finding:
    """The finding for the claim that the left side is ahead, or the right side if ``is_reversed``."""
    sign, found = -1 if is_reversed else 1, compared.difference
    low, high = sorted((sign * found.low, sign * found.high))
    return Finding(sign * found.value, low, high, p)


def findings(evidence: Evidence) -> Findings:
    """The findings for every claim that was tested; p-values are adjusted over all comparisons."""
    by_pair = {(bench, one.left, one.right): one for bench, found in evidence.comparisons.items() for one in found}
    p_of = dict(zip(by_pair, adjusted([one.difference.p for one in by_pair.values()]), strict=True))
    tested: dict[str, dict[str, Finding]] = {}
    for claim, left, right, is_reversed in _claims(evidence):
        for bench in BENCHMARKS:
            if (key := (bench, left, right)) in by_pair:
                tested.setdefault(claim, {})[bench.title] = finding(by_pair[key], p_of[key], is_reversed)
    return tested


def claims(evidence: Evidence, found: Findings) -> list[Block]:
    """The paper's hypothesis in a sentence, then a table of claims with verdict, difference and p per benchmark."""
    compared = [one for bench in evidence.comparisons.values() for one in bench]
    if not compared:
        return [Text(f"{MISSING}: no two systems have predictions yet.")]
    titles = [bench.title for bench in BENCHMARKS]
    rows = [(claim, *(str(tests.get(title, NOT_APPLICABLE)) for title in titles)) for claim, tests in found.items()]
    seeds = sorted({seeds_of(one.seeds) for one in compared})
    caption = (
        f"Differences in percentage points with 95 % intervals ({' or '.join(seeds)}). The two-sided p is adjusted by "
        "Holm's method over all comparisons of this page. “Yes” and “no” mean p < 0.05, “perhaps” and “perhaps not” "
        "that only the interval excludes zero, and “open” neither."
    )
    table = Table(caption, ("claim", *titles), rows, origin=str(TABLES))
    return [*map(Text, _hypothesis(found.get(SUBTASKS, {}))), table, *map(Text, _about_seeds(compared))]


def _about_seeds(compared: Sequence[Comparison]) -> list[str]:
    """A sentence on the intervals of systems with a single seed."""
    counts = {count for one in compared for count in one.seeds}
    if counts == {1}:
        return [
            "With one seed, the intervals cover new problems for this one training. Another seed would move the "
            "figures by an unknown amount; the profile seeds measures it."
        ]
    if 1 in counts:
        return [
            "With a single seed, seed-to-seed variance cannot be measured. For such systems we assume the pooled "
            "variance of the systems with several seeds, which widens their intervals."
        ]
    return []


def _hypothesis(tests: Mapping[str, Finding]) -> list[str]:
    """The outcome for the paper's hypothesis (section 3.2) in one sentence."""
    words = {"yes": "holds", "no": "fails", "perhaps": "may hold", "perhaps not": "may fail", "open": "remains open"}
    parts = [f"{words[verdict]} on {listed(list(names))}" for verdict, names in by_verdict(tests).items()]
    claim = "The paper's hypothesis, that rewards improve if typed errors are detected first,"
    return [f"{claim} {'; it '.join(parts)}."] if parts else []


def by_verdict(tests: Mapping[str, Finding]) -> dict[str, dict[str, Finding]]:
    """The findings of each verdict, the clear verdicts first."""
    order = ("yes", "no", "perhaps", "perhaps not", "open")
    names = {verdict: {name: test for name, test in tests.items() if test.verdict == verdict} for verdict in order}
    return {verdict: found for verdict, found in names.items() if found}


def listed(names: Sequence[str]) -> str:
    """``a, b and c``."""
    return ", ".join(names[:-1]) + " and " + names[-1] if len(names) > 1 else names[0]


def _claims(evidence: Evidence) -> list[tuple[str, str, str, bool]]:
    """Each claim, the left and right systems of its comparison, and whether it favours the right one."""
    found = []
    for members in evidence.systems.values():
        run = members[0]
        base = "full" if run.mix == MAIN_MIX else f"full-{run.mix}"
        if run.variant != "full" and base in evidence.systems:
            where = "" if run.mix == MAIN_MIX else f" ({run.mix} mix)"
            claim = _VARIANTS.get(run.variant, f"full beats {run.variant}")
            found.append((claim + where, spoken(evidence.systems[base][0]), spoken(run), False))
        elif run.variant == "full" and run.mix != MAIN_MIX and "full" in evidence.systems:
            full = spoken(evidence.systems["full"][0])
            is_less = run.mix == "prm800k"
            claim = SOME_DATA if is_less else f"more weak data helps ({run.mix} over 400k)"
            found.append((claim, full, spoken(run), not is_less))
    if "full" in evidence.systems:
        rivals = {"pass@1": ONE_SAMPLE, "a random pick": RANDOM, "majority voting": MAJORITY}
        rivals |= {f"best of n by {rule}": name for rule, name in BEST_OF_N.items()}
        full = spoken(evidence.systems["full"][0])
        found += [(SEARCH_BEATS + rival, full, name, False) for rival, name in rivals.items()]
    return found
