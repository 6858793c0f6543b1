"""The first screen: the main result in a sentence, a verdict per claim, and one solution with its typed scores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pathfinder.core.steps import ScoredStep, StepScore, typed_step
from pathfinder.pages.page import Block, Chips, Text
from pathfinder.pages.picture import LEGEND, picture_of
from pathfinder.prm.results import ScoredSolution
from pathfinder.reporting.claims import Findings, chips, hypothesis, listed
from pathfinder.reporting.evidence import Evidence
from pathfinder.reporting.names import CAPTIONS, PRMBENCH, PROCESSBENCH, SEARCH
from pathfinder.reporting.origins import from_files, said
from pathfinder.reporting.results import Score

_RIVALS = {PROCESSBENCH: ("chance", "chance"), PRMBENCH: ("chance", "chance")}
_RIVALS |= {SEARCH: ("search with a random pick", "a random pick")}
_MOST_STEPS = 6
Gates = Mapping[str, Mapping[str, Any] | None]


def opening(evidence: Evidence, found: Findings, gates: Gates) -> list[Block]:
    """An introduction, the answer, the verdicts and the picture; each is left out if nothing was measured for it."""
    sentence = [*_scores(evidence), *hypothesis(found)]
    if sentence:
        sentence.insert(0, CAPTIONS["introduction"])
    return [*map(Text, sentence), *_chips(found, gates), *_picture(evidence)]


def _scores(evidence: Evidence) -> list[str]:
    """The first system's score on each benchmark, followed by the score without a PRM."""
    if not evidence.results.runs:
        return []
    ours, *others = evidence.lines
    scores = {line.name: line.cells for line in others}
    parts, used = [], []
    for place, (bench, (rival, spoken)) in enumerate(_RIVALS.items()):
        if not isinstance(cell := ours.cells[place], Score):
            continue
        used.append(cell.value)
        without = scores.get(rival, ("",) * len(_RIVALS))[place]
        rival_score = f" ({spoken}: {without.value:.1f})" if isinstance(without, Score) else ""
        used += [without.value] if isinstance(without, Score) else []
        article = "an" if bench.title[0] in "AEIOU" else "a"
        parts.append(f"{article} {bench.title} of {cell.value:.1f}{rival_score}")
    sets = "toy sets" if evidence.is_toy else "the benchmarks"
    return [said(f"{ours.name} reaches {listed(parts)} on {sets}.", used)] if parts else []


def _chips(found: Findings, gates: Gates) -> list[Block]:
    """One chip per claim and verdict, and one for the gates of the data."""
    items = chips(found)
    outcomes = [gate["passed"] for outcome in gates.values() if outcome for gate in outcome["gates"]]
    if outcomes:
        passed = f"{sum(outcomes):,} of {len(outcomes):,} gates passed"
        origin = from_files("count", [f"reports/{name}/validation.json" for name, outcome in gates.items() if outcome])
        items.append((said(passed, [origin]), "yes" if all(outcomes) else "no"))
    return [Chips(items)] if items else []


def _picture(evidence: Evidence) -> list[Block]:
    """A solution of ProcessBench whose first error was found, if possible one with errors of both kinds."""
    if not evidence.first_runs:
        return []
    system, run = next(iter(evidence.first_runs.items()))
    file = f"processbench/{run}.jsonl"
    rows = {(row["subset"], row["id"]): row for row in evidence.rows(file)}
    found = []
    for item in evidence.processbench_items:
        row = rows.get(item.key)
        if row is None or item.label < 0 or row["prediction"] != item.label or len(item.steps) > _MOST_STEPS:
            continue
        steps = typed(item.steps, row["steps"])
        if ScoredSolution(item.problem, tuple(steps)).first_error != item.label:
            continue  # the prediction reads soundness, and the picture also marks steps that are not useful
        kinds = len({kind for step in steps for kind in step.errors})
        found.append(((kinds, any(step.correct for step in steps), len(steps)), item, steps))
    if not found:
        return []
    _, item, steps = max(found, key=lambda one: one[0])  # the first of equals
    where = "A toy problem" if evidence.is_toy else "A problem"
    lead = f"{where} in the form of ProcessBench, scored by {system}. {LEGEND}"
    origin = from_files("one item", evidence.files(file))
    return [picture_of(item.problem, steps, origin=origin), Text(lead)]


def typed(texts: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> list[ScoredStep]:
    """The steps of a solution with the scores of its prediction row; steps without a row have none."""
    steps = [typed_step(text, StepScore.of_row(row)) for text, row in zip(texts, rows, strict=False)]
    return steps + [ScoredStep(text, {}, None) for text in texts[len(steps) :]]
