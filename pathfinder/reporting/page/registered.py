"""Predictions about published systems, which were written down before any of these systems was measured here.

They follow from one assumption: the reward of the authors' checkpoint means "without an error and useful", the labels
of its first pass only "without an error". Each holds or fails by the bound that it states. A prediction about a system
without prediction files is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from ground.io import DataError
from pathfinder.benchmarks import prmbench, processbench
from pathfinder.core.prompts import FIRST_LABELS
from pathfinder.pages.origins import Sourced
from pathfinder.pages.page import Block, Table
from pathfinder.reporting.evidence import Evidence
from pathfinder.reporting.origins import from_files

AUTHORS, QWEN = "pathfinder-prm-7b", "qwen-prm800k"
LEAST_GAP, LEAST_SIMPLICITY, PUBLISHED_SCORE, NEAR_CHANCE = 3.0, 62.0, 67.7, 5.0
"""Points of F1 and of PRMBench; the third is the checkpoint's published PRMScore."""
_THRESHOLDS = tuple(percent / 100 for percent in range(5, 100, 5))
Steps = Sequence[Mapping[str, float | None]]
Found = tuple[str, bool] | None
"""What was found in words, and whether the prediction holds; ``None`` without the files."""


class Prediction(NamedTuple):
    """A prediction: its text, the file of a system's predictions, and its test."""

    says: str
    file: str
    test: Callable[[Evidence, Mapping[Any, Steps]], Found]


def registered(evidence: Evidence) -> list[Block]:
    """A table of the predictions whose systems were measured; empty if there are none."""
    rows: list[tuple[str, ...]] = []
    for prediction in PREDICTIONS:
        steps = {row.get("idx") or (row["subset"], row["id"]): row["steps"] for row in evidence.rows(prediction.file)}
        if any(steps.values()) and (found := prediction.test(evidence, steps)):
            origin = from_files("figures", evidence.files(prediction.file)).origin
            says, (text, holds) = prediction.says, found
            rows.append((says, Sourced(text, origin), Sourced("holds" if holds else "fails", origin)))
    caption = "Predictions that were written down before these systems were measured here."
    return [Table(caption, ("prediction", "found", "verdict"), rows)] if rows else []


def probability(step: Mapping[str, float | None], reading: Literal["soundness", "quality"]) -> float:
    """The smallest probability of an error label of a predicted step, or its reward.

    Raises ``DataError`` if the step has no reward.
    """
    errors = [p for name in FIRST_LABELS if (p := step.get(name)) is not None]
    found = min(errors) if reading == "soundness" else step["reward"]
    if found is None:
        raise DataError("a step has no reward; evaluate the run with its reward and not in mode pass1")
    return found


def _gap(evidence: Evidence, steps: Mapping[Any, Steps]) -> Found:
    by_labels, by_reward = (
        processbench.evaluate(
            evidence.processbench_items,
            {
                key: processbench.first_error([probability(step, reading) >= 0.5 for step in found]) if found else None
                for key, found in steps.items()
            },
        )["mean_f1"]
        for reading in ("soundness", "quality")
    )
    return f"{by_labels:.1f} by the labels, {by_reward:.1f} by the reward", by_labels - by_reward >= LEAST_GAP


def _correct_steps(evidence: Evidence, steps: Mapping[Any, Steps]) -> Iterator[Mapping[str, float | None]]:
    for item in evidence.processbench_items:
        yield from steps.get(item.key, ())[: item.label if item.label >= 0 else None]


def _alarms(evidence: Evidence, steps: Mapping[Any, Steps]) -> Found:
    flagged = [step for step in _correct_steps(evidence, steps) if probability(step, "quality") < 0.5]
    sound = sum(probability(step, "soundness") >= 0.5 for step in flagged)
    return (f"{sound:,} of {len(flagged):,} flagged correct steps", 2 * sound > len(flagged)) if flagged else None


def _categories(evidence: Evidence, labels: Mapping[str, Sequence[bool]]) -> dict[str, float]:
    figures = prmbench.evaluate(evidence.prmbench_items, labels)
    return {"PRMScore": figures["overall"], **figures["categories"]}


def _by_definition(evidence: Evidence, steps: Mapping[Any, Steps]) -> Found:
    labels = {
        item.idx: [
            probability(step, "quality" if item.classification in prmbench.REDUNDANCY else "soundness") >= 0.5
            for step in steps.get(item.idx, ())
        ]
        for item in evidence.prmbench_items
    }
    found = _categories(evidence, labels)
    holds = found.get("simplicity", 0.0) >= LEAST_SIMPLICITY and found["PRMScore"] > PUBLISHED_SCORE
    return ", ".join(f"{name} {value:.1f}" for name, value in found.items()), holds


def _at_chance(evidence: Evidence, steps: Mapping[Any, Steps]) -> Found:
    found = {
        threshold: _categories(
            evidence,
            {key: [probability(step, "quality") >= threshold for step in found] for key, found in steps.items()},
        ).get("simplicity", 0.0)
        for threshold in _THRESHOLDS
    }
    best = max(found, key=lambda threshold: found[threshold])
    trivial = prmbench.trivial_predictors(evidence.prmbench_items, evidence.report).values()
    chance = max(figures["categories"].get("simplicity", 0.0) for figures in trivial)
    text = f"simplicity {found[best]:.1f} at threshold {best:g}, {chance:.1f} without a model"
    return text, found[best] <= chance + NEAR_CHANCE


PREDICTIONS = (
    Prediction(
        f"P1. On ProcessBench, the F1 of the reward is at least {LEAST_GAP:g} points below the F1 of the error labels.",
        f"processbench/{AUTHORS}.jsonl",
        _gap,
    ),
    Prediction(
        "P2. Most correct steps that the reward flags have <+> at every error label.",
        f"processbench/{AUTHORS}.jsonl",
        _alarms,
    ),
    Prediction(
        "P3. On PRMBench, with the reward as the label of redundancy and the error labels elsewhere, simplicity is at "
        f"least {LEAST_SIMPLICITY:g} and PRMScore above the published {PUBLISHED_SCORE:g}.",
        f"prmbench/{AUTHORS}.jsonl",
        _by_definition,
    ),
    Prediction(
        "P4. Qwen2.5-Math-7B-PRM800K, trained with 0 as a positive rating, has at every threshold a simplicity of at "
        f"most {NEAR_CHANCE:g} points above the best predictor without a model.",
        f"prmbench/{QWEN}.jsonl",
        _at_chance,
    ),
)
