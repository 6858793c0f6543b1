"""Best of n and weighted votes: the PRM's step scores choose one of the whole solutions that the policy sampled.

``choosing`` has the rules. A problem without any answer is incorrect.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pathfinder.benchmarks.accuracy import metrics
from pathfinder.core.layouts import steps_of
from pathfinder.core.params import Report
from pathfinder.core.steps import PRM, Solution
from pathfinder.policy.choosing import RULES, choose
from pathfinder.policy.metrics import BestOfN, Choices
from pathfinder.policy.samples import figures


def score_samples(scorer: PRM, samples: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Per row of the sample stage ``{"set", "id", "rewards"}``: the rewards of every step of every solution.

    A PRM that reads soundness adds ``soundness``, in the same form. Solutions with equal steps are scored once. A
    solution without steps, or longer than the model's context, has no rewards.
    """
    wanted: dict[tuple[str, tuple[str, ...]], Solution] = {}
    for row in samples:
        for number, text in enumerate(row["solutions"]):
            name, key = f"{row['set']}/{row['id']}, sample {number}", (row["question"], steps_of(text))
            wanted.setdefault(key, Solution(name, *key))
    scored = scorer.score(list(wanted.values()))
    values = {"rewards": [[step.reward for step in steps] for steps in scored]}
    sound = [[p for step in steps if (p := step.soundness) is not None] for steps in scored]
    values |= {"soundness": sound} if any(sound) else {}
    by_solution = {name: dict(zip(wanted, each, strict=True)) for name, each in values.items()}
    return [
        {"set": row["set"], "id": row["id"]}
        | {
            name: [each[row["question"], steps_of(text)] for text in row["solutions"]]
            for name, each in by_solution.items()
        }
        for row in samples
    ]


def best_of_n(
    samples: Sequence[dict[str, Any]], scored: Sequence[dict[str, Any]], report: Report
) -> tuple[list[dict[str, Any]], BestOfN]:
    """Rows with each rule's choice, and the figures of every rule next to pass@1, maj@n and pass@n, in percent.

    ``right_by_soundness`` and the figures ``soundness`` are about the choice by soundness.
    """
    rows = []
    for row, found in zip(samples, scored, strict=True):
        chosen = choose(found["rewards"], row["votes"])
        rows.append(found | {"chosen": chosen, "right": _right(row, chosen)})
        if "soundness" in found:
            rows[-1]["right_by_soundness"] = _right(row, choose(found["soundness"], row["votes"]))
    n = min((len(row["right"]) for row in samples), default=0)
    values = figures(samples, n) | {rule: [float(row["right"][rule]) for row in rows] for rule in RULES}
    too_long = sum(
        not rewards and bool(steps_of(solution))
        for row, found in zip(samples, scored, strict=True)
        for solution, rewards in zip(row["solutions"], found["rewards"], strict=True)
    )
    sets = [row["set"] for row in samples]
    others: dict[str, Any] = {}
    if rows and all("right_by_soundness" in row for row in rows):
        by_soundness: dict[str, Sequence[float]] = {
            rule: [float(row["right_by_soundness"][rule]) for row in rows] for rule in RULES
        }
        others["soundness"] = Choices(**metrics(sets, by_soundness, report))
    return rows, BestOfN(n=n, too_long=too_long, **metrics(sets, values, report), **others)


def _right(row: Mapping[str, Any], chosen: Mapping[str, int | None]) -> dict[str, bool]:
    return {rule: index is not None and row["right"][index] for rule, index in chosen.items()}
