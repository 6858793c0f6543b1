"""The true fault of each step of a generated world, compared with the labels that were predicted.

Real problems have no known faults.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from pathfinder.core.labels import PREDICTED
from pathfinder.pages.origins import Sourced
from pathfinder.pages.page import Block, Table, Text
from pathfinder.reporting.evidence import Evidence, Truth
from pathfinder.reporting.names import TEXTS
from pathfinder.reporting.origins import from_files

SOUND = "no fault"
FLAGS = {
    **{kind.name: f"{kind.name} flag only" for kind in PREDICTED},
    "both": "both flags" if len(PREDICTED) == 2 else "several flags",
    "none": "no flag",
}
"""The labels that were predicted, with the headings of their columns. A flag is a label below one half."""
_EXPECTED = {"mathematics": {"math", "both"}, "consistency": {"consistency", "both"}}


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
    source = from_files(
        "count", [*evidence.files(f"processbench/{run}.jsonl"), *evidence.files(f"prmbench/{run}.jsonl")]
    )
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
            rows.append((name, *(Sourced(text, source.origin) for text in texts)))
    caption = (
        f"What {system} flags on the toy sets, by the true fault of a step, in percent of the steps with that fault. "
        "The kind of the fault, in parentheses, is the flag that it should get. A step that is not optimal has no "
        "error: it should get no flag, and a low reward. A step with several faults counts in each of their rows. "
        "Stronger colours mark larger shares."
    )
    headers = ("true fault", "steps", *FLAGS.values(), "reward below one half")
    table = Table(caption, headers, rows, shades=shades, measured=frozenset())
    return [Text(Sourced(_summary(counts, truth), source.origin)), table]


def _steps(evidence: Evidence, truth: Truth, run: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each true fault (``SOUND`` for a step without one) with the step's scores, on both benchmarks."""
    by_key: dict[Any, Any] = {item.key: item for item in evidence.processbench_items}
    by_key |= {item.idx: item for item in evidence.prmbench_items}
    for bench in ("processbench", "prmbench"):
        for row in evidence.rows(f"{bench}/{run}.jsonl"):
            item = by_key.get((row["subset"], row["id"]) if bench == "processbench" else row["idx"])
            if item is None:
                continue
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
