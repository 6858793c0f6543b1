"""The paper's questions answered in a sentence each, from the table of claims, and where guided search pays."""

from __future__ import annotations

from collections.abc import Mapping

from pathfinder.benchmarks import paper
from pathfinder.benchmarks.bootstrap import adjusted
from pathfinder.pages.page import Block, Listing, Table
from pathfinder.reporting.claims import CATEGORIES, MORE_DATA, SEARCH, SOME_DATA, SUBTASKS, TWO_PASSES, Finding, finding
from pathfinder.reporting.evidence import BEST_OF_N, MAJORITY, ONE_SAMPLE, Evidence
from pathfinder.reporting.results import NOT_APPLICABLE

_SETS = dict(zip(paper.SEARCH.columns, paper.SEARCH.headings, strict=True))
_AHEAD = {
    "Does separating the subtasks help?": SUBTASKS,
    "Does separating the error categories help?": CATEGORIES,
    "Do two passes beat labels written one after another?": TWO_PASSES,
}
_WORDS = {"yes": "yes", "no": "no, it is behind", "perhaps": "perhaps", "perhaps not": "perhaps not", "open": "open"}
_RIVALS = {ONE_SAMPLE: "pass@1", MAJORITY: "majority voting", BEST_OF_N["min"]: "best of n by min"}


def answers(evidence: Evidence, found: Mapping[str, Mapping[str, Finding]]) -> list[Block]:
    """One sentence a question that was tested, then guided search set by set; nothing where nothing was compared."""
    said = [f"{question} {_on_benchmarks(found[claim])}" for question, claim in _AHEAD.items() if claim in found]
    said += _data(found)
    said += _search(found)
    by_set = _by_set(evidence)
    said += _when(evidence, by_set)
    blocks: list[Block] = [Listing(said)] if said else []
    return blocks + _table(evidence, by_set)


def _on_benchmarks(cells: Mapping[str, Finding]) -> str:
    parts = []
    for verdict, word in _WORDS.items():
        here = [f"{name} ({one.figures})" for name, one in cells.items() if one.verdict == verdict]
        if here:
            parts.append(f"{word} on {_listed(here)}")
    return _sentence("; ".join(parts))


def _data(found: Mapping[str, Mapping[str, Finding]]) -> list[str]:
    """0, 1 and 4 times the weak data: what the first share brings, and whether the rest adds to it."""
    if SOME_DATA not in found or MORE_DATA not in found:
        return []
    parts = []
    for name, some in found[SOME_DATA].items():
        more = found[MORE_DATA].get(name)
        if more is not None:
            says = course(some, more)
            parts.append(f"{name}: {says} (none to 1x {some.figures}, 1x to 4x {more.figures})")
    return [f"Does more weak data help, or saturate? {_sentence('; '.join(parts))}"] if parts else []


def course(some: Finding, more: Finding) -> str:
    """What the first share of the weak data brings and then the rest; only what is sure after adjustment counts."""
    match _direction(some), _direction(more):
        case 1, 1:
            return "it helps, and more of it helps more"
        case 1, 0:
            return "it helps and then saturates"
        case 1, -1:
            return "some helps, more of it hurts"
        case 0, 1:
            return "only the larger share helps"
        case 0, 0:
            return "no share of it makes a difference that these runs show"
        case -1, 0 | -1:
            return "it hurts"
        case -1, 1:
            return "some hurts, and more of it makes up for that"
    return "more of it hurts"


def _direction(found: Finding) -> int:
    return {"yes": 1, "no": -1}.get(found.verdict, 0)


def _search(found: Mapping[str, Mapping[str, Finding]]) -> list[str]:
    rivals = {
        claim.removeprefix(SEARCH): next(iter(cells.values()))
        for claim, cells in found.items()
        if claim.startswith(SEARCH)
    }
    parts = []
    for verdict, word in _WORDS.items():
        here = [f"{name} ({one.figures})" for name, one in rivals.items() if one.verdict == verdict]
        if here:
            parts.append(f"{word} against {_listed(here)}")
    return [f"Does guided search beat what needs no search? {_sentence('; '.join(parts))}"] if parts else []


BySet = Mapping[str, Mapping[str, Finding]]


def _by_set(evidence: Evidence) -> BySet:
    """For each set what is found against each rival; p is adjusted for all of them together."""
    compared = {(name, one.right): one for name, (_, found) in evidence.by_set.items() for one in found}
    ps = adjusted([one.difference.p for one in compared.values()])
    said: dict[str, dict[str, Finding]] = {}
    for ((name, rival), one), p in zip(compared.items(), ps, strict=True):
        said.setdefault(name, {})[rival] = finding(one, p)
    return said


def _when(evidence: Evidence, by_set: BySet) -> list[str]:
    """On which sets guided search is ahead, and where by most."""
    parts = []
    for rival, title in _RIVALS.items():
        found = {name: cells[rival] for name, cells in by_set.items() if rival in cells}
        if not found:
            continue
        ahead = [_SETS.get(name, name) for name, one in found.items() if one.verdict == "yes"]
        where = (
            "on every set" if len(ahead) == len(found) else f"on {_listed(ahead)}" if ahead else "on no set for sure"
        )
        ends = (max(found, key=lambda name: found[name].value), min(found, key=lambda name: found[name].value))
        most, least = (
            f"{found[name].value:+.1f} on {_SETS.get(name, name)} (pass@1 {evidence.by_set[name][0].value:.1f})"
            for name in ends
        )
        parts.append(f"{title} {where}: from {most} to {least}")
    return [f"When does it? It beats {_sentence('; '.join(parts), capital=False)}"] if parts else []


def _table(evidence: Evidence, by_set: BySet) -> list[Block]:
    rivals = [rival for rival in _RIVALS if any(rival in cells for cells in by_set.values())]
    rows = [
        (
            _SETS.get(name, name),
            f"{evidence.by_set[name][0].value:.1f}",
            *(str(by_set[name].get(rival, NOT_APPLICABLE)) for rival in rivals),
        )
        for name in sorted(by_set, key=lambda name: evidence.by_set[name][0].value)
    ]
    caption = (
        "Guided search by PathFinder-PRM against its rivals, set by set, the policy's hardest set first; p is adjusted "
        "for all cells of this table."
    )
    headers = ("set", "pass@1", *(f"over {_RIVALS[rival]}" for rival in rivals))
    return [Table(caption, headers, rows, origin="artifacts/predictions/search/full.jsonl")] if rows else []


def _listed(names: list[str]) -> str:
    return ", ".join(names[:-1]) + " and " + names[-1] if len(names) > 1 else names[0]


def _sentence(text: str, capital: bool = True) -> str:
    return (text[:1].upper() if capital else text[:1]) + text[1:] + "."
