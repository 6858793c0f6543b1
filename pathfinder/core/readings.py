"""The readings of a PRM: the questions that a step's score can answer.

PRM800K's rating 0 (correct, but without value) becomes the labels (1, 1, 0), so a label of Correctness means "without
an error *and* useful", while the error labels mean only "without an error". Each benchmark declares the reading that
its definition asks for. Figures of different readings are never subtracted from each other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from pathfinder.core.labels import CORRECTNESS, OPTIMALITY
from pathfinder.core.prompts import Variant

Reading = Literal["soundness", "quality", "optimality"]
DEFINITION, OWN = "definition", "own score"
"""No single reading: soundness or quality, depending on PRMBench's class; and a published PRM's only score."""
DECLARED = (DEFINITION, "soundness", "quality")
"""The readings of main figures. Our default rule takes the first that a system's metrics have."""
ASKS = {
    "soundness": "is the step free of errors",
    "quality": "is the step free of errors and useful",
    "optimality": "is a step without an error useful",
    DEFINITION: "quality where the class is about redundancy, else soundness",
    OWN: "the system's only score",
}
"""The question of each reading, for captions."""


def error_labels(first: Mapping[str, float]) -> dict[str, float]:
    """The probabilities of the first-pass labels that mean the absence of an error."""
    return {name: p for name, p in first.items() if name != OPTIMALITY}


def readings_of(variant: Variant) -> tuple[Reading, ...]:
    """The readings that a variant's labels allow."""
    labels = {mark.label for mark in (*variant.first, *variant.second)}
    has_quality = bool(labels & {CORRECTNESS, OPTIMALITY})
    if not labels - {CORRECTNESS, OPTIMALITY}:
        return ("quality",)
    return ("soundness", "quality", "optimality") if has_quality else ("soundness",)


def reading_for(asked: str, has: Sequence[str]) -> str:
    """The reading of a system on a benchmark: the ``asked`` one or, if the system lacks it, its first."""
    if asked == DEFINITION:
        return DEFINITION if {"soundness", "quality"} <= {*has} else has[0]
    return asked if asked in has else has[0]


def are_comparable(left: str, right: str) -> bool:
    """True if two systems answer the same question. ``OWN`` and "" (none) answer the benchmark's question."""
    return left == right or bool({left, right} & {OWN, ""})
