"""The paper's claims as questions to our measurements, answered whichever way they fall."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pathfinder.benchmarks.bootstrap import adjusted
from pathfinder.core.runs import MAIN_MIX
from pathfinder.pages.page import Block, Table, Text
from pathfinder.reporting.comparisons import Comparison, said_seeds
from pathfinder.reporting.evidence import BEST_OF_N, MAJORITY, ONE_SAMPLE, RANDOM, Evidence
from pathfinder.reporting.results import MISSING, NOT_APPLICABLE, spoken

SUBTASKS, CATEGORIES, TWO_PASSES = (
    "separate subtasks help",
    "separate error categories help",
    "two passes beat autoregressive labels",
)
SOME_DATA, MORE_DATA = "some weak data helps (400k over PRM800K)", "more weak data helps (550k over 400k)"
SEARCH = "guided search beats "
BENCHMARKS = {"processbench": "ProcessBench mean F1", "prmbench": "PRMScore", "search": "search accuracy"}
_LEVEL = 0.05
_VARIANTS = {"no_subtasks": SUBTASKS, "no_error_categories": CATEGORIES, "autoregressive": TWO_PASSES}


@dataclass(frozen=True, slots=True)
class Finding:
    """A claim on one benchmark: the difference in the claim's direction, its interval, and its adjusted p."""

    value: float
    low: float
    high: float
    p: float

    @property
    def verdict(self) -> str:
        """``yes`` and ``no`` need p under 0.05, ``perhaps`` and ``perhaps not`` an interval without zero."""
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


def finding(compared: Comparison, p: float, is_turned: bool = False) -> Finding:
    """What a comparison says of a claim that its left side (``is_turned``: its right) is ahead."""
    sign, found = -1 if is_turned else 1, compared.difference
    low, high = sorted((sign * found.low, sign * found.high))
    return Finding(sign * found.value, low, high, p)


def findings(evidence: Evidence) -> dict[str, dict[str, Finding]]:
    """For each claim that was tested what each benchmark, by its title, says of it."""
    by_pair = {(bench, one.left, one.right): one for bench, found in evidence.comparisons.items() for one in found}
    keys = list(by_pair)
    p_of = dict(zip(keys, adjusted([by_pair[key].difference.p for key in keys]), strict=True))
    said: dict[str, dict[str, Finding]] = {}
    for text, left, right, is_turned in _questions(evidence):
        for bench, title in BENCHMARKS.items():
            if (key := (bench, left, right)) in by_pair:
                said.setdefault(text, {})[title] = finding(by_pair[key], p_of[key], is_turned)
    return said


def claims(evidence: Evidence, found: Mapping[str, Mapping[str, Finding]]) -> list[Block]:
    """A table: each claim, and on each benchmark whether it holds, by how much, and with which p."""
    compared = [one for bench in evidence.comparisons.values() for one in bench]
    if not compared:
        return [Text(f"{MISSING}: no two systems have predictions yet.")]
    titles = list(BENCHMARKS.values())
    rows = [
        (text, *(str(cells[title]) if title in cells else NOT_APPLICABLE for title in titles))
        for text, cells in found.items()
    ]
    seeds = sorted({said_seeds(one.seeds) for one in compared})
    lead = (
        f"Differences in points of percent with 95 % intervals; {', '.join(seeds)}. p: two-sided, adjusted by "
        "Holm's method for all comparisons of this page. “Yes” and “no” stand where p is under 0.05, “perhaps” where "
        "only the interval leaves zero out, “open” elsewhere."
    )
    table = Table(lead, ("claim", *titles), rows, origin="reports/tables.json")
    return [*map(Text, _verdict(found.get(SUBTASKS, {}))), table, *map(Text, _about_seeds(compared))]


def _about_seeds(compared: Sequence[Comparison]) -> list[str]:
    """What the intervals of systems with one training stand on, where there are such."""
    counts = {count for one in compared for count in one.seeds}
    if counts == {1}:
        return [
            "With one seed the interval is about new problems for this one training. Another seed would move the "
            "figures by an amount that it does not show: the profile seeds measures that."
        ]
    if 1 in counts:
        return [
            "A system with one seed does not say what another seed would make of it: it is taken to vary as much as "
            "the systems with several, and its intervals are the wider for it."
        ]
    return []


def _verdict(cells: Mapping[str, Finding]) -> list[str]:
    """The answer to the paper's hypothesis (section 3.2) in one sentence, whichever way it falls."""
    words = {"yes": "holds on", "no": "fails on", "perhaps": "may hold on", "perhaps not": "may fail on"}
    said = [f"{words[verdict]} {names}" for verdict, names in grouped(cells).items() if verdict in words]
    if open_ones := grouped(cells).get("open"):
        said.append(f"is left open by {open_ones}")
    claim = (
        "The paper's hypothesis, that detecting typed errors first makes better rewards than computing them directly,"
    )
    return [f"{claim} {'; it '.join(said)}."] if said else []


def grouped(cells: Mapping[str, Finding]) -> dict[str, str]:
    """For each verdict, the clear ones first, what it stands on."""
    order = ("yes", "no", "perhaps", "perhaps not", "open")
    names = {verdict: [name for name, found in cells.items() if found.verdict == verdict] for verdict in order}
    return {verdict: " and ".join(found) for verdict, found in names.items() if found}


def _questions(evidence: Evidence) -> list[tuple[str, str, str, bool]]:
    """Claim, left and right system as compared, and whether the claim is about the right one being ahead."""
    found = []
    for members in evidence.systems.values():
        run = members[0]
        base = "full" if run.mix == MAIN_MIX else f"full-{run.mix}"
        if run.variant != "full" and base in evidence.systems:
            where = "" if run.mix == MAIN_MIX else f" ({run.mix} mix)"
            text = _VARIANTS.get(run.variant, f"full beats {run.variant}")
            found.append((text + where, spoken(evidence.systems[base][0]), spoken(run), False))
        elif run.variant == "full" and run.mix != MAIN_MIX and "full" in evidence.systems:
            full = spoken(evidence.systems["full"][0])
            is_less = run.mix == "prm800k"
            text = SOME_DATA if is_less else f"more weak data helps ({run.mix} over 400k)"
            found.append((text, full, spoken(run), not is_less))
    if "full" in evidence.systems:
        full = spoken(evidence.systems["full"][0])
        found += [(SEARCH + "pass@1", full, ONE_SAMPLE, False)]
        found += [(SEARCH + "a random pick", full, RANDOM, False)]
        found += [(SEARCH + "majority voting", full, MAJORITY, False)]
        found += [(f"{SEARCH}best of n by {rule}", full, name, False) for rule, name in BEST_OF_N.items()]
    return found
