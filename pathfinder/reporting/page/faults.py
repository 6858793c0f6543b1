"""The true fault of each step of a generated world, compared with the labels that were predicted.

Real problems have no known faults.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from pathfinder.benchmarks.metrics import ProcessBench
from pathfinder.benchmarks.processbench import NO_ERROR
from pathfinder.benchmarks.readers import PRMBenchItem, ProcessBenchItem
from pathfinder.core.labels import PREDICTED
from pathfinder.core.metrics import Measured
from pathfinder.core.steps import StepScore
from pathfinder.pages.origins import Sourced
from pathfinder.pages.page import Block, Table, Text
from pathfinder.reporting.calibration import paired
from pathfinder.reporting.evidence import Evidence, Truth
from pathfinder.reporting.names import CAPTIONS, NOT_APPLICABLE, PROCESSBENCH, TEXTS
from pathfinder.reporting.origins import from_files

SOUND, NOT_OPTIMAL = "no fault", "not optimal"
FLAGS = {
    **{kind.name: f"{kind.name} flag only" for kind in PREDICTED},
    "both": "both flags" if len(PREDICTED) == 2 else "several flags",
    "none": "no flag",
}
"""The labels that were predicted, with the headings of their columns. A flag is a label below one half."""
_EXPECTED = {"mathematics": {"math", "both"}, "consistency": {"consistency", "both"}}


@dataclass(frozen=True, slots=True)
class Alarms:
    """Flagged steps: of the correct but not optimal ones, and of the correct and optimal ones."""

    idle: int
    of_idle: int
    clean: int
    of_clean: int

    @property
    def share(self) -> float | None:
        """The flagged share of the steps that are correct but not optimal, in percent; ``None`` without any."""
        return 100 * self.idle / self.of_idle if self.of_idle else None


def caught(evidence: Evidence) -> list[Block]:
    """A table of true faults by predicted labels, shaded by share; empty without known faults or both labels."""
    truth = evidence.truth
    if not evidence.first_runs or truth is None:
        return []
    system, run = next(iter(evidence.first_runs.items()))
    counts, objections = Counter[tuple[str, str]](), Counter[str]()
    for fault, step in _steps(evidence, truth, run):
        flags = [kind.name for kind in PREDICTED if (p := step.get(kind.name)) is not None and p < 0.5]
        counts[fault, "both" if len(flags) > 1 else flags[0] if flags else "none"] += 1
        objections[fault] += step["reward"] < 0.5
    if not counts:
        return []
    names = [name for bench in ("processbench", "prmbench") if evidence.rows(name := f"{bench}/{run}.jsonl")]
    source = from_files("count", [file for name in names for file in evidence.files(name)])
    rows: list[tuple[str, ...]] = []
    shades: dict[tuple[int, int], int] = {}
    for kind, faults in {**truth.kinds, "": (SOUND,)}.items():
        for fault in faults:
            if not (total := sum(counts[fault, flag] for flag in FLAGS)):
                continue
            shares = [100 * counts[fault, flag] / total for flag in FLAGS]
            shades |= {(len(rows), place): min(5, -int(-share // 20)) for place, share in enumerate(shares, start=2)}
            texts = [f"{total:,}", *(f"{share:.1f}" for share in (*shares, 100 * objections[fault] / total))]
            name = f"{fault} ({kind}): {TEXTS['faults'][fault]}" if fault in TEXTS["faults"] else fault
            rows.append((name, *(Sourced(text, source) for text in texts)))
    headers = ("true fault", "steps", *FLAGS.values(), "reward below one half")
    table = Table(CAPTIONS["caught"].format(system=system), headers, rows, shades=shades, measured=frozenset())
    return [Text(Sourced(_summary(counts, truth), source)), table]


@lru_cache(maxsize=1)
def false_alarms(evidence: Evidence) -> dict[str, dict[str, Alarms]]:
    """Per system and reading, the correct steps of ProcessBench that are flagged; empty without known faults.

    A system is named as its files are.
    """
    found: dict[str, dict[str, Alarms]] = {}
    if (truth := evidence.truth) is None:
        return found
    published = evidence.results.published[PROCESSBENCH]
    for system in (*(run.name for run in evidence.results.runs), *published):
        counts, own_rule = Counter[tuple[str, str, bool]](), _own_rule(published.get(system))
        for item, row in paired(evidence.processbench_items, evidence.rows(f"processbench/{system}.jsonl")):
            for kind, flags in _correct_steps(truth, item, _flags(row, item, own_rule)):
                counts.update((reading, kind, flag) for reading, flag in flags.items())
        for reading in dict.fromkeys(reading for reading, *_ in sorted(counts, reverse=True)):
            idle, passed, clean, rest = (
                counts[reading, k, flag] for k in (NOT_OPTIMAL, SOUND) for flag in (True, False)
            )
            found.setdefault(system, {})[reading] = Alarms(idle, idle + passed, clean, clean + rest)
    return found


def false_alarm_table(evidence: Evidence) -> list[Block]:
    """A table of ``false_alarms``; empty without any."""
    rows: list[tuple[str, ...]] = []
    for system, readings in false_alarms(evidence).items():
        source = from_files("count", evidence.files(f"processbench/{system}.jsonl"))
        name = evidence.results.titles(system)[0]
        for reading, found in readings.items():
            share = NOT_APPLICABLE if found.share is None else f"{found.share:.1f}"
            texts = (share, f"{found.idle:,} of {found.of_idle:,}", f"{found.clean:,} of {found.of_clean:,}")
            rows.append((f"{name}, {reading}", *(Sourced(text, source) for text in texts)))
    headers = ("system and reading", "not optimal, %", "correct but not optimal", "correct and optimal")
    return [Table(CAPTIONS["false_alarms"], headers, rows, measured=frozenset())] if rows else []


def _own_rule(metrics: Measured | None) -> tuple[str, float] | None:
    """The reading and the threshold of a published PRM's reward; ``None`` for one of ours and for an LLM judge."""
    if isinstance(metrics, ProcessBench) and (rule := metrics.decision.get("authors")):
        return metrics.reading, rule["threshold"]
    return None


def _flags(
    row: Mapping[str, Any], item: ProcessBenchItem, own_rule: tuple[str, float] | None
) -> Iterator[dict[str, bool]]:
    """Each step's flags by reading; the last steps are left out if the system has no verdict on them."""
    if "steps" not in row:  # an LLM judge, which names the first error
        first = row["prediction"]
        judged = 0 if first is None else len(item.steps) if first == NO_ERROR else first + 1
        yield from ({"soundness": place == first} for place in range(judged))
    for step in row.get("steps", ()):
        score = StepScore.of_row(step)
        if own_rule:
            score = replace(score, redundancy=step.get("redundancy"), means=None)
        read = {"soundness": score.soundness, "quality": score.quality}
        flags = {reading: p < 0.5 for reading, p in read.items() if p is not None}
        yield flags | ({own_rule[0]: score.reward <= own_rule[1]} if own_rule else {})


def _correct_steps(
    truth: Truth, item: ProcessBenchItem, flags: Iterable[dict[str, bool]]
) -> Iterator[tuple[str, dict[str, bool]]]:
    """The kind and the flags of each correct step up to the first error."""
    known = truth.faults(item.problem, item.steps) or ()
    for place, (faults, found) in enumerate(zip(known, flags, strict=False)):
        if place == item.label or faults is None:
            return
        if {*faults} <= {*truth.kinds[NOT_OPTIMAL]}:
            yield NOT_OPTIMAL if faults else SOUND, found


def _steps(evidence: Evidence, truth: Truth, run: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each true fault (``SOUND`` for a step without one) with the step's scores, on both benchmarks."""
    items: list[ProcessBenchItem | PRMBenchItem] = [*evidence.processbench_items, *evidence.prmbench_items]
    rows = (row for bench in ("processbench", "prmbench") for row in evidence.rows(f"{bench}/{run}.jsonl"))
    for item, row in paired(items, rows):
        known = truth.faults(item.problem, item.steps) or ()
        for faults, step in zip(known, row.get("steps", ()), strict=False):
            if faults is not None and step.get("math") is not None and step.get("consistency") is not None:
                yield from ((fault, step) for fault in faults or (SOUND,))


def _summary(counts: Counter[tuple[str, str]], truth: Truth) -> str:
    parts = []
    for kind, expected in _EXPECTED.items():
        total = sum(counts[fault, flag] for fault in truth.kinds[kind] for flag in FLAGS)
        hits = sum(counts[fault, flag] for fault in truth.kinds[kind] for flag in expected)
        if total:
            flag = next(iter(expected & {"math", "consistency"}))
            parts.append(f"{100 * hits / total:.1f} % of the {kind} faults get the {flag} flag")
    if sound := sum(counts[SOUND, flag] for flag in FLAGS):
        parts.append(f"{100 * counts[SOUND, 'none'] / sound:.1f} % of the steps without a fault get no flag")
    return f"{'; '.join(parts)}."
