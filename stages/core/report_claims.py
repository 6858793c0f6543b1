"""The paper's claims as questions to our measurements, answered whichever way they fall."""

from __future__ import annotations

from collections.abc import Mapping

from stages.core.bootstrap import adjusted
from stages.core.comparisons import Comparison, said_seeds
from stages.core.evidence import BEST_OF_N, MAJORITY, RANDOM, Evidence
from stages.core.page import Block, Table, Text
from stages.core.results import MISSING, NOT_APPLICABLE, spoken
from stages.core.runs import MAIN_MIX

_HEADERS = ("claim", "ProcessBench mean F1", "PRMScore", "search accuracy")
_LEVEL = 0.05
_HYPOTHESIS = "no_subtasks"  # the variant without what the hypothesis is about (section 3.2)
_VARIANTS = {
    "no_subtasks": "separate subtasks help",
    "no_error_categories": "separate error categories help",
    "autoregressive": "two passes beat autoregressive labels",
}


def claims(evidence: Evidence) -> list[Block]:
    """A table: each claim, and on each benchmark whether it holds, by how much, and with which p."""
    by_pair = {(bench, one.left, one.right): one for bench, found in evidence.comparisons.items() for one in found}
    if not by_pair:
        return [Text(f"{MISSING}: no two systems have predictions yet.")]
    keys = list(by_pair)
    p_of = dict(zip(keys, adjusted([by_pair[key].difference.p for key in keys]), strict=True))
    rows, verdict = [], []
    for text, left, right, is_turned in _questions(evidence):
        cells = [
            _answer(by_pair[key], p_of[key], is_turned) if (key := (bench, left, right)) in by_pair else NOT_APPLICABLE
            for bench in ("processbench", "prmbench", "search")
        ]
        if any(cell != NOT_APPLICABLE for cell in cells):
            rows.append((text, *cells))
        if text == _VARIANTS[_HYPOTHESIS]:
            verdict = _verdict(dict(zip(_HEADERS[1:], cells, strict=True)))
    seeds = sorted({said_seeds(one.seeds) for one in by_pair.values()})
    lead = (
        f"Differences in points of percent with 95 % intervals; {', '.join(seeds)}. p: two-sided, adjusted by "
        "Holm's method for all comparisons of this page. “Yes” and “no” stand where p is under 0.05, “perhaps” where "
        "only the interval leaves zero out, “open” elsewhere."
    )
    note = (
        "With one seed the interval is about new problems for this one training. Another seed would move the figures "
        "by an amount that it does not show: the profile seeds measures that."
    )
    is_single = any(set(one.seeds) == {1} for one in by_pair.values())
    table = Table(lead, _HEADERS, rows, origin="reports/tables.json")
    return [*map(Text, verdict), table, *([Text(note)] if is_single else [])]


def _verdict(cells: Mapping[str, str]) -> list[str]:
    """The answer to the paper's hypothesis in one sentence, whichever way it falls."""
    answers = {name: cell.partition(":")[0] for name, cell in cells.items() if cell != NOT_APPLICABLE}
    words = {"yes": "holds on", "no": "fails on", "perhaps": "may hold on", "perhaps not": "may fail on"}
    said = [
        f"{word} {' and '.join(names)}"
        for answer, word in words.items()
        if (names := [name for name, found in answers.items() if found == answer])
    ]
    if open_ones := [name for name, found in answers.items() if found == "open"]:
        said.append(f"is left open by {' and '.join(open_ones)}")
    claim = (
        "The paper's hypothesis, that detecting typed errors first makes better rewards than computing them directly,"
    )
    return [f"{claim} {'; it '.join(said)}."] if said else []


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
            text = (
                "some weak data helps (400k over PRM800K)" if is_less else f"more weak data helps ({run.mix} over 400k)"
            )
            found.append((text, full, spoken(run), not is_less))
    if "full" in evidence.systems:
        full = spoken(evidence.systems["full"][0])
        found += [("guided search beats a random pick", full, RANDOM, False)]
        found += [("guided search beats majority voting", full, MAJORITY, False)]
        found += [(f"guided search beats best of n by {rule}", full, name, False) for rule, name in BEST_OF_N.items()]
    return found


def _answer(found: Comparison, p: float, is_turned: bool) -> str:
    sign = -1 if is_turned else 1
    value = sign * found.difference.value + 0.0  # no "-0.0"
    ends = sorted((sign * found.difference.low + 0.0, sign * found.difference.high + 0.0))
    verdict = "yes" if value > 0 else "no"
    if not found.difference.is_clear:
        verdict = "open"
    elif p >= _LEVEL:
        verdict = "perhaps" if value > 0 else "perhaps not"
    return f"{verdict}: {value:+.1f} [{ends[0]:.1f}, {ends[1]:.1f}], p {'< 0.001' if p < 0.001 else f'{p:.3f}'}"
