"""Pretrain one of the world's models from its recipe: the base model, which is also the policy, or the judge.

Reads   infra/pretraining/params.yaml; for the judge also artifacts/pretraining/<level>/models/base
Writes  artifacts/pretraining/<level>/models/{base,judge} (safetensors, fp32)
Run     python -m world.pretrain base|judge LEVEL, or the whole pipeline with `make world`

An interrupted run resumes from its checkpoint in .pathfinder/pretrain (every 500 steps) and produces the same weights.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import torch
from transformers import PreTrainedTokenizerFast, Qwen2ForCausalLM

from evidence.record.stage import stage
from ground.io import DataError, digest_of, sha256_file
from ground.recording import code_digest
from world import tiny
from world.judge_lessons import judge_lesson
from world.lessons import Encoder, Lesson, base_lesson
from world.recipes import PRETRAINING, Recipe, load_recipe
from world.training_loop import fit

CHECKPOINTS = Path(".pathfinder/pretrain")
PHASES = {"base": (0.0, False), "refined": (0.55, False), "words": (0.55, True)}
"""For each phase of the base model, the share of scrambled candidates, and True if they favour words."""


def lessons_of(encoder: Encoder, recipe: Recipe, phase: str, block: int) -> Iterator[Lesson]:
    """The endless lessons of a block of steps in a phase of the base model, or in the phase ``judge``."""
    rng = random.Random(f"{recipe.seed}/{phase}/{block}")
    while True:
        if phase == "judge":
            yield judge_lesson(encoder, rng, recipe.levels)
        else:
            yield base_lesson(encoder, rng, recipe.levels, *PHASES[phase])


def train(part: Literal["base", "judge"], recipe: Recipe, tokenizer: PreTrainedTokenizerFast, models: Path) -> None:
    """Train a model and save it in ``models``; the judge starts from the base model there."""
    base = models / "base"
    if part == "base":
        model = tiny.build_model(tokenizer, **recipe.shape.model_dump(), seed=recipe.seed)
    else:
        model = Qwen2ForCausalLM.from_pretrained(base, dtype=torch.float32)
    start = sha256_file(base / "model.safetensors") if part == "judge" else ""
    encoder = Encoder(tokenizer)
    model.to(recipe.device)  # type: ignore[arg-type]
    for phase in PHASES if part == "base" else ("judge",):
        plan, checkpoint = getattr(recipe.plans, phase), checkpoint_of(phase, recipe, start)
        fit(model, partial(lessons_of, encoder, recipe, phase), plan, checkpoint)
    model.to("cpu")  # type: ignore[arg-type]
    if part == "base":
        tiny.seed_label_rows(model, tokenizer)
    tiny.save(model, tokenizer, models / part)


def checkpoint_of(phase: str, recipe: Recipe, start: str = "") -> Path:
    """The checkpoint of a phase, named after everything that decides its content."""
    phases = list(PHASES)
    so_far = phases[: phases.index(phase) + 1] if phase in PHASES else [phase]
    made_from = recipe.model_dump(include={"world", "device", "seed", "shape"})
    plans = recipe.plans.model_dump(include=set(so_far))
    code = code_digest("judge" if phase == "judge" else "base")
    digest = digest_of({"name": phase, "recipe": made_from, "plans": plans, "start": start, "code": code})
    return CHECKPOINTS / digest[:16] / f"{phase}.safetensors"


@stage
def main(part: Literal["base", "judge"], level: Annotated[str, "a level of infra/pretraining/params.yaml"]) -> None:
    """Run the stage."""
    recipe = load_recipe(level)
    if recipe.device == "cuda" and not torch.cuda.is_available():
        raise DataError(f"level {level} needs a GPU and none was found; run `make world LEVEL=replica-small` instead")
    torch.set_num_threads(1)  # a single thread adds in the same order on all machines of a kind
    train(part, recipe, tiny.build_tokenizer(recipe.language), PRETRAINING / level / "models")


if __name__ == "__main__":
    main()
