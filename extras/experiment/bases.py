"""Base models that learnt some verification, but less than the shipped model, which is near its ceiling."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

import torch

from extras.experiment.plan import FOLDER, PLAN, Dose, Plan
from ground.io import DataError, digest_of
from world import tiny
from world.lessons import (
    Encoder,
    Lesson,
    arithmetic_drill,
    check_lesson,
    draw_problem,
    policy_lesson,
    recital_drill,
)
from world.recipes import Phase
from world.story import Level
from world.training_loop import fit

BASES = FOLDER / "bases"
"""Git has the base models of the main block."""
CHECKPOINTS = Path(".pathfinder/experiment")


def dosed_lessons(
    encoder: Encoder, levels: Mapping[str, Level], dose: Dose, world: str, block: int
) -> Iterator[Lesson]:
    """Endless lessons: ``dose.share`` verify steps; a tenth each of the rest are drills in sums and in events."""
    rng, scale = random.Random(f"{dose.seed}/{world}/{block}"), next(iter(levels.values())).scale
    while True:
        if rng.random() < dose.share:
            yield check_lesson(encoder, rng, draw_problem(rng, levels), scramble=0.5, by_words=False)
            continue
        draw = rng.random()
        if draw < 0.1:
            yield arithmetic_drill(encoder, rng, scale)
        else:
            lesson = recital_drill if draw < 0.2 else policy_lesson
            yield lesson(encoder, rng, draw_problem(rng, levels))


def train_base(name: str, plan: Plan, folder: Path = BASES) -> None:
    """Pretrain a base model of the plan and save it below ``folder``; an interrupted run resumes from its checkpoint.

    Raises ``DataError`` for an unknown name, and if the plan asks for a GPU and there is none.
    """
    if name not in plan.bases:
        raise DataError(f"{PLAN}: no base model {name!r}; the ladder has {', '.join(plan.bases)}")
    if plan.bases[name].device == "cuda" and not torch.cuda.is_available():
        raise DataError(
            f"{PLAN}: base model {name} is trained on a GPU and none was found; set bases.{name}.device to cpu"
        )
    dose, tokenizer = plan.bases[name], tiny.build_tokenizer(next(iter(plan.levels.values())).language)
    torch.set_num_threads(1)  # one thread adds in the same order on all machines of a kind
    model = tiny.build_model(tokenizer, **plan.shape.model_dump(), seed=dose.seed)
    identity = digest_of([dose.model_dump(), plan.shape.model_dump(), plan.world])[:16]
    model.to(dose.device)  # type: ignore[arg-type]
    phase = Phase(steps=dose.steps, tokens=dose.tokens, rate=dose.rate)
    lessons = partial(dosed_lessons, Encoder(tokenizer), plan.levels, dose, plan.world)
    checkpoint = CHECKPOINTS / f"{name}-{identity}.safetensors"
    fit(model, lessons, phase, checkpoint)
    model.to("cpu")  # type: ignore[arg-type]
    tiny.seed_label_rows(model, tokenizer)
    tiny.save(model, tokenizer, folder / name)
    checkpoint.unlink()  # its name does not have the code: a later run starts afresh
