"""The paper's claims, each tested on our measurements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from pathfinder.benchmarks.bootstrap import Estimate, adjusted
from pathfinder.core.runs import MAIN_MIX
from pathfinder.pages.origins import Sourced, joined, origin_of
from pathfinder.pages.page import Block, Table, Text
from pathfinder.policy.choosing import RULES
from pathfinder.reporting.comparisons import Comparison
from pathfinder.reporting.evidence import BEST_OF_N, FULL, MAJORITY, ONE_SAMPLE, RANDOM, Evidence
from pathfinder.reporting.names import BENCHMARKS, MISSING, NOT_APPLICABLE, spoken
from pathfinder.reporting.origins import said, with_origin

VARIANT_CLAIMS = {
    "no_subtasks": "separate subtasks help",
    "no_error_categories": "separate error categories help",
    "autoregressive": "two passes beat autoregressive labels",
}
SOME_DATA, MORE_DATA = "some weak data helps (400k over PRM800K)", "more weak data helps (550k over 400k)"
SEARCH_BEATS = "guided search beats "
_VERDICTS = ("yes", "no", "perhaps", "perhaps not", "open")


class Finding(Estimate):
    """A claim on one benchmark: the difference in the claim's direction, its interval, and its adjusted p-value."""

    @property
    def verdict(self) -> str:
        """``yes`` or ``no`` if p < 0.05; ``perhaps`` or ``perhaps not`` if only the interval excludes zero."""
        if not self.is_clear:
            return "open"
        if self.p >= 0.05:
            return "perhaps" if self.value > 0 else "perhaps not"
        return "yes" if self.value > 0 else "no"

    @property
    def figures(self) -> str:
        """Value and interval."""
        return f"{self.value:+z.1f} [{self.low:z.1f}, {self.high:z.1f}]"  # z: no "-0.0"

    def __str__(self) -> str:
        return f"{self.verdict}: {self.figures}, p {'< 0.001' if self.p < 0.001 else f'= {self.p:.3f}'}"

    def cell(self) -> Sourced:
        """The finding in words with the origin of its figures."""
        how = "paired difference, p adjusted for the number of comparisons,"
        return Sourced(str(self), joined(how, [self.value], [self.low, self.high]))

    def reversed(self) -> Finding:
        """The finding that the other side is ahead."""
        value, low, high = (with_origin(-each, origin_of(each)) for each in (self.value, self.high, self.low))
        return Finding(value, low, high, self.p)


Findings = Mapping[str, Mapping[str, Finding]]
"""For each claim, a finding per benchmark title."""


def adjusted_findings(compared: Sequence[Comparison]) -> list[Finding]:
    """The finding of each comparison that its left side is ahead; p-values are adjusted over all of them."""
    found = [one.difference for one in compared]
    ps = adjusted([one.p for one in found])
    return [Finding(one.value, one.low, one.high, p) for one, p in zip(found, ps, strict=True)]


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
    titles = [bench.title for bench in BENCHMARKS]
    rows = [(claim, *(cell_of(tests.get(title)) for title in titles)) for claim, tests in found.items()]
    caption = (
        "Differences in percentage points with 95 % intervals. The two-sided p is adjusted by Holm's method over all "
        "comparisons that ProcessBench, PRMBench and Search list below. “Yes” and “no” mean p < 0.05. “Perhaps” and "
        "“perhaps not” mean that the interval excludes zero but p is larger. “Open” means neither: the data show no "
        "clear difference, which does not prove that there is none."
    )
    table = Table(caption, ("claim", *titles), rows, measured=frozenset())
    return [table, *map(Text, _about_seeds(evidence.compared))]


def claims_as_published(evidence: Evidence) -> list[Block]:
    """The claims about variants and mixes again, under the published decision rules."""
    found = findings(evidence, evidence.compared_as_published)
    titles = [bench.title for bench in BENCHMARKS if any(bench.title in tests for tests in found.values())]
    rows = [(claim, *(cell_of(tests.get(title)) for title in titles)) for claim, tests in found.items()]
    caption = (
        "The same claims under the published decision rules, which the paper's figures follow (docs/fidelity.md). On "
        "PRMBench the published prompt differs from the training prompt, which a small model may not understand. The "
        "p-values are adjusted over the comparisons of this table."
    )
    return [Table(caption, ("claim", *titles), rows, measured=frozenset())] if rows else []


def cell_of(finding: Finding | None) -> str:
    """A finding as a cell of a table; a dash for ``None``."""
    return finding.cell() if finding else NOT_APPLICABLE


def _about_seeds(compared: Sequence[Comparison]) -> list[str]:
    """A sentence on the intervals of systems with a single seed."""
    counts = {count for one in compared for count in one.seeds}
    if counts == {1}:
        return [
            "Every system has a single seed, so the intervals cover the choice of problems but not the training. "
            "Another seed would move the figures by an unknown amount. The profile seeds measures it for tiny models."
        ]
    if 1 in counts:
        return [
            "Seed-to-seed variance cannot be measured on a system with a single seed. For such systems we assume the "
            "pooled variance of the systems with several seeds, which widens their intervals."
        ]
    return []


def hypothesis(found: Findings) -> list[str]:
    """The outcome for the paper's hypothesis (section 3.2) in one sentence; empty if it was not tested."""
    tests = found.get(VARIANT_CLAIMS["no_subtasks"], {})
    if not tests:
        return []
    words = {
        "yes": "is supported",
        "perhaps": "is weakly supported",
        "open": "remains open",
        "perhaps not": "is weakly contradicted",
        "no": "is contradicted",
    }
    parts = [f"{words[verdict]} on {listed(list(names))}" for verdict, names in by_verdict(tests).items()]
    claim = "The paper's hypothesis, that rewards improve if typed errors are detected first,"
    reason = ", where the interval of the difference includes zero" if "open" in by_verdict(tests) else ""
    figures = [figure for test in tests.values() for figure in (test.value, test.low, test.high)]
    return [said(f"{claim} {'; it '.join(parts)}{reason}.", figures)]


def by_verdict(tests: Mapping[str, Finding]) -> dict[str, dict[str, Finding]]:
    """The findings of each verdict, the clear verdicts first."""
    found: dict[str, dict[str, Finding]] = {}
    for name, test in sorted(tests.items(), key=lambda item: _VERDICTS.index(item[1].verdict)):
        found.setdefault(test.verdict, {})[name] = test
    return found


def listed(names: Sequence[str]) -> str:
    """``a, b and c``."""
    return ", ".join(names[:-1]) + " and " + names[-1] if len(names) > 1 else names[0]


def _claims(evidence: Evidence) -> list[tuple[str, str, str]]:
    """Each claim, the system that it says is ahead, and the other system."""
    found = []
    for run, *_ in evidence.systems.values():
        if run.variant != "full":
            claim = VARIANT_CLAIMS.get(run.variant, f"full beats {run.variant}")
            where = "" if run.mix == MAIN_MIX else f" ({run.mix} mix)"
            found.append((claim + where, spoken(replace(run, variant="full")), spoken(run)))
        elif run.mix == "prm800k":
            found.append((SOME_DATA, FULL, spoken(run)))
        elif run.mix != MAIN_MIX:
            found.append((f"more weak data helps ({run.mix} over 400k)", spoken(run), FULL))
    rivals = {"pass@1": ONE_SAMPLE, "a random pick": RANDOM, "majority voting": MAJORITY}
    rivals |= {f"{way} n by {score}": BEST_OF_N[rule] for rule, (way, score) in RULES.items()}
    return found + [(SEARCH_BEATS + rival, FULL, name) for rival, name in rivals.items()]
