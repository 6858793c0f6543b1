"""The parts of scoring that need no model, in process and behind a server.

Solutions become chunks and queries, log-probabilities become step scores, and step scores become verdicts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from ground.io import DataError
from pathfinder.core.labels import CORRECTNESS, OPTIMALITY
from pathfinder.core.params import BenchmarkPreset
from pathfinder.core.readings import Reading
from pathfinder.core.steps import Candidates, Solution, StepScore
from pathfinder.models.folders import OpenedModel
from pathfinder.tree.packing import split
from pathfinder.tree.passes import PRESETS, Mode, Place, Prompter, Query, expected_reward, passes_for

WAVE = 2
"""Steps of a solution's first wave when scoring stops early; each wave is twice as long as the one before."""
OPEN = 64
"""The number of solutions whose trunks are kept at once when scoring stops early."""
_CHUNK = 256
"""The number of solutions whose prompts are held at once."""

Stop = Callable[[int, StepScore], bool]
"""Receives a solution's number and the score of its next step; True ends the scoring of that solution."""


def preset_of(benchmark: str, preset: BenchmarkPreset) -> str:
    """The name in ``PRESETS`` of the prompt of ``processbench``, ``prmbench`` or ``search`` under ``preset``."""
    return f"official-{benchmark}" if preset == "official" else "default"


def open_prompter(model: OpenedModel, preset: str) -> Prompter:
    """The prompter of a PRM, whose ``pathfinder.json`` names the variant.

    Raises ``DataError`` if the preset or the variant is unknown, or a label token is not in the tokenizer or the model.
    """
    if preset not in PRESETS:
        raise DataError(f"unknown preset {preset!r}; expected one of {', '.join(PRESETS)}")
    return Prompter(model.tokenizer, model.variant, PRESETS[preset], model.labels)


def chunks(solutions: Sequence[Solution], stops: bool = False) -> list[list[int]]:
    """The indices of each separately scored chunk; chunks are smaller if scoring ``stops`` early.

    A chunk has all solutions of a problem, and problems of similar length. The solutions of one chunk form one chunk
    again.
    """
    by_problem: dict[str, list[int]] = {}
    for index, solution in enumerate(solutions):
        by_problem.setdefault(solution.problem, []).append(index)
    length = [len(solution.problem) + sum(map(len, solution.steps)) for solution in solutions]
    groups = sorted(by_problem.values(), key=lambda group: (max(length[i] for i in group), group[0]))
    parts = split({place: len(group) for place, group in enumerate(groups)}, OPEN if stops else _CHUNK)
    return [[index for place in part for index in groups[place]] for part in parts]


def queries_of(solution: Solution) -> list[Query]:
    """One query per step, with the steps before it as its prefix."""
    steps = solution.steps
    return [Query(f"{solution.id}, step {t}", solution.problem, steps[:t], step) for t, step in enumerate(steps)]


def candidate_queries(rounds: Mapping[str, Candidates]) -> dict[str, list[Query]]:
    """One query per candidate of each problem."""
    return {
        key: [Query(f"{key}, candidate {i}", c.problem, c.prefix, step) for i, step in enumerate(c.steps)]
        for key, c in rounds.items()
    }


def step_score(
    prompter: Prompter, number: int, found: Mapping[Place, Iterable[float]], mode: Mode = Mode.BOTH
) -> StepScore:
    """The score of query ``number`` from the log-probabilities of ``<+>``, ``<->`` and the likeliest token.

    ``found`` maps the places of the queries to these three values. The reward of a variant without Correctness is the
    product of its labels.
    """
    preset, labels = prompter.preset, prompter.labels

    def positive(given: tuple[bool, ...], mark: int) -> float:
        good, bad, _ = map(float, found[Place(number, given, mark)])
        return float(np.exp(good)) if preset.full_softmax else 1 / (1 + float(np.exp(bad - good)))

    other = ""
    predicted: list[bool] = []
    probabilities: dict[str, float] = {}
    for step in passes_for(mode, prompter.passes):
        given = tuple(mode is Mode.POSITIVE or label for label in predicted[: len(step.given)])
        for mark in step.asked:
            good, bad, top = map(float, found[Place(number, given, mark)])
            if not step.given and top > max(good, bad):
                other = other or labels[mark]
            predicted.append(good >= bad)
            probabilities[labels[mark]] = positive(given, mark)
    reward = probabilities.pop(CORRECTNESS, math.nan)
    if CORRECTNESS not in labels:
        means: Reading = "quality" if OPTIMALITY in labels else "soundness"
        return StepScore(probabilities, math.prod(probabilities.values()), other, means=means)
    if mode is Mode.ALL:
        reward = expected_reward(prompter.passes, positive)
    return StepScore(probabilities, reward, other)


def refuse_other_tokens(
    prompter: Prompter, solutions: Sequence[Solution], scores: Sequence[Sequence[StepScore]]
) -> None:
    """With a strict preset, raise where the published ProcessBench runner does.

    That runner reads the steps of a solution up to the first step with an error label. Raises ``DataError`` naming the
    first of these steps whose likeliest token at a label is neither ``<+>`` nor ``<->``.
    """
    if not prompter.preset.strict:
        return
    for solution, steps in zip(solutions, scores, strict=True):
        for number, step in enumerate(steps):
            if step.other:
                raise DataError(
                    f"{solution.id}, step {number}: the most likely token at {step.other} is neither <+> nor <->; "
                    "use preset default"
                )
            if step.has_error:
                break
