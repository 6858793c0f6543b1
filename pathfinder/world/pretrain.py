"""Pretrain one of the world's models from its recipe: the base model, which is also the policy, or the judge.

Reads   infra/pretraining/params.yaml; for the judge also artifacts/pretraining/<level>/models/base
Writes  artifacts/pretraining/<level>/models/{base,judge} (safetensors, fp32)
Run     python -m pathfinder.world.pretrain base|judge LEVEL, or the whole pipeline with `make world`

Checkpoints are written to .pathfinder/pretrain every 500 steps. After an interruption, the same command resumes and
produces the same weights. Level `quickstart` produces the models that data/ ships.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Literal

import torch
from transformers import PreTrainedTokenizerFast, Qwen2ForCausalLM

from pathfinder.core.io import DataError, atomic_folder, digest_of, sha256_file
from pathfinder.provenance.identity import code_digest
from pathfinder.provenance.stage import stage
from pathfinder.world import tiny
from pathfinder.world.judge_lessons import judge_lesson
from pathfinder.world.lessons import Encoder, Lesson, base_lesson
from pathfinder.world.recipes import PRETRAINING, Recipe, load_recipe
from pathfinder.world.training_loop import fit

CHECKPOINTS = Path(".pathfinder/pretrain")
PHASES = {"base": (0.0, False), "refined": (0.55, False), "words": (0.55, True)}
"""For each phase of the base model, the share of scrambled candidates and whether they favour words."""


def lessons_of(encoder: Encoder, recipe: Recipe, phase: str) -> Callable[[int], Iterator[Lesson]]:
    """The endless lessons of each block of steps in a phase of the base model, or in the phase ``judge``."""

    def block(number: int) -> Iterator[Lesson]:
        rng = random.Random(f"{recipe.seed}/{phase}/{number}")
        while True:
            if phase == "judge":
                yield judge_lesson(encoder, rng, recipe.levels)
            else:
                yield base_lesson(encoder, rng, *PHASES[phase], levels=recipe.levels)

    return block


def train_base(recipe: Recipe, tokenizer: PreTrainedTokenizerFast, target: Path) -> None:
    """Pretrain the base model and save it in ``target``."""
    model = tiny.build_model(tokenizer, **recipe.shape.model_dump(), seed=recipe.seed)
    _fit(model, tokenizer, recipe, list(PHASES))
    tiny.seed_label_rows(model, tokenizer)
    _save(model, tokenizer, target)


def train_judge(recipe: Recipe, tokenizer: PreTrainedTokenizerFast, base: Path, target: Path) -> None:
    """Train the judge from the base model and save it in ``target``."""
    model = Qwen2ForCausalLM.from_pretrained(base, dtype=torch.float32)
    _fit(model, tokenizer, recipe, ["judge"], start=sha256_file(base / "model.safetensors"))
    _save(model, tokenizer, target)


def _fit(
    model: Qwen2ForCausalLM, tokenizer: PreTrainedTokenizerFast, recipe: Recipe, phases: list[str], start: str = ""
) -> None:
    model.to(recipe.device)  # type: ignore[arg-type]
    encoder = Encoder(tokenizer)
    for name in phases:
        fit(model, lessons_of(encoder, recipe, name), getattr(recipe.plans, name), checkpoint_of(name, recipe, start))
    model.to("cpu")  # type: ignore[arg-type]


def _save(model: Qwen2ForCausalLM, tokenizer: PreTrainedTokenizerFast, target: Path) -> None:
    with atomic_folder(target) as folder:
        tiny.save(model, tokenizer, folder)


def checkpoint_of(name: str, recipe: Recipe, start: str = "") -> Path:
    """The checkpoint of a phase, named after everything that decides its content."""
    phases = list(PHASES)
    so_far = phases[: phases.index(name) + 1] if name in PHASES else [name]
    made_from = recipe.model_dump(include={"world", "device", "seed", "shape"})
    plans = recipe.plans.model_dump(include=set(so_far))
    code = code_digest("judge" if name == "judge" else "base")
    digest = digest_of({"name": name, "recipe": made_from, "plans": plans, "start": start, "code": code})
    return CHECKPOINTS / digest[:16] / f"{name}.safetensors"


@stage
def main(part: Literal["base", "judge"], level: Annotated[str, "a level of infra/pretraining/params.yaml"]) -> None:
    """Run the stage."""
    recipe, models = load_recipe(level), PRETRAINING / level / "models"
    if recipe.device == "cuda" and not torch.cuda.is_available():
        raise DataError(f"level {level} needs a GPU and none was found; run `make world LEVEL=replica-small` instead")
    torch.set_num_threads(1)  # one thread adds in the same order on all machines of a kind
    tokenizer = tiny.build_tokenizer()
    if part == "base":
        train_base(recipe, tokenizer, models / "base")
    else:
        train_judge(recipe, tokenizer, models / "base", models / "judge")


if __name__ == "__main__":
    main()
