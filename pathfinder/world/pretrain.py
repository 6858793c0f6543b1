"""Pretrain one of the small world's models from its recipe: the base model (also the policy), or the judge.

Reads   infra/pretraining/params.yaml; the judge also artifacts/pretraining/<level>/models/base
Writes  artifacts/pretraining/<level>/models/{base,judge} (safetensors, fp32)
Run     python -m pathfinder.world.pretrain base|judge LEVEL, or the whole pipeline with `make world`

Checkpoints every 500 steps in .pathfinder/pretrain: the same command after an interruption goes on where it stopped
and comes to the same weights. data/ ships what level `quickstart` makes.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Literal

import torch
from transformers import PreTrainedTokenizerFast, Qwen2ForCausalLM

from pathfinder.core.io import DataError, atomic_folder, digest_of, sha256_file
from pathfinder.provenance.identity import code_digest
from pathfinder.provenance.stage import stage
from pathfinder.world import judging, lessons, tiny
from pathfinder.world.lessons import Lesson, Scribe
from pathfinder.world.pretraining import Plan, fit
from pathfinder.world.recipes import Recipe, Steps, load_recipe
from pathfinder.world.story import Problem, split_of

PRETRAINING = Path("artifacts/pretraining")
CHECKPOINTS = Path(".pathfinder/pretrain")
PHASES = {"base": (0.0, False), "refined": (0.55, False), "words": (0.55, True)}
"""For each phase of the base model the share of scrambled candidates, and whether they lean to words."""


def _keep(problem: Problem) -> bool:
    return split_of(problem) == "train"


def base_lessons(scribe: Scribe, recipe: Recipe, phase: str) -> Callable[[int], Iterator[Lesson]]:
    """Endless lessons of a block for a phase of the base model."""

    def block(number: int) -> Iterator[Lesson]:
        rng = random.Random(f"{recipe.seed}/{phase}/{number}")
        while True:
            yield lessons.base_lesson(scribe, rng, _keep, *PHASES[phase], levels=recipe.levels)

    return block


def judge_lessons(scribe: Scribe, recipe: Recipe) -> Callable[[int], Iterator[Lesson]]:
    """Endless lessons of a block for the judge."""

    def block(number: int) -> Iterator[Lesson]:
        rng = random.Random(f"{recipe.seed}/judge/{number}")
        while True:
            problem = lessons.draw_problem(rng, _keep, recipe.levels)
            yield judging.judge_lesson(scribe, rng, problem)

    return block


def train_base(recipe: Recipe, tokenizer: PreTrainedTokenizerFast, target: Path) -> None:
    """Pretrain the base model and put it into ``target``."""
    model = tiny.build_model(tokenizer, **recipe.shape.model_dump(), seed=recipe.seed)
    model.to(recipe.device)  # type: ignore[arg-type]
    scribe = Scribe(tokenizer)
    for phase in PHASES:
        _fit(model, base_lessons(scribe, recipe, phase), getattr(recipe.plans, phase), recipe, phase)
    model.to("cpu")  # type: ignore[arg-type]
    tiny.seed_label_rows(model, tokenizer)
    with atomic_folder(target) as folder:
        tiny.save(model, tokenizer, folder)


def train_judge(recipe: Recipe, tokenizer: PreTrainedTokenizerFast, base: Path, target: Path) -> None:
    """Train the judge from the base model and put it into ``target``."""
    model = Qwen2ForCausalLM.from_pretrained(base, dtype=torch.float32)
    model.to(recipe.device)  # type: ignore[arg-type]
    start = sha256_file(base / "model.safetensors")
    _fit(model, judge_lessons(Scribe(tokenizer), recipe), recipe.plans.judge, recipe, "judge", start)
    model.to("cpu")  # type: ignore[arg-type]
    with atomic_folder(target) as folder:
        tiny.save(model, tokenizer, folder)


def _fit(
    model: Qwen2ForCausalLM,
    lessons: Callable[[int], Iterator[Lesson]],
    steps: Steps,
    recipe: Recipe,
    name: str,
    start: str = "",
) -> None:
    plan = Plan(**steps.model_dump())
    fit(model, lessons, plan, checkpoint_of(name, recipe, start), _reporter(name, plan.steps))


def checkpoint_of(name: str, recipe: Recipe, start: str = "") -> Path:
    """Where a run keeps its progress: named by everything that decides its result."""
    phases = list(PHASES)
    so_far = phases[: phases.index(name) + 1] if name in PHASES else [name]
    made_from = recipe.model_dump(include={"world", "device", "seed", "shape"})
    plans = recipe.plans.model_dump(include=set(so_far))
    code = code_digest("judge" if name == "judge" else "base")
    digest = digest_of({"name": name, "recipe": made_from, "plans": plans, "start": start, "code": code})
    return CHECKPOINTS / digest[:16] / f"{name}.safetensors"


def _reporter(name: str, steps: int) -> Callable[[int, float], None]:
    began, first = time.monotonic(), 0

    def report(step: int, loss: float) -> None:
        nonlocal began, first
        now = time.monotonic()
        left = f", {(now - began) / (step - first) * (steps - step) / 60:.0f} min left" if first else ""
        print(f"{name}: step {step} of {steps}, loss {loss:.4f}{left}", flush=True)
        if not first:  # a resumed run starts somewhere: speed is measured from its first report on
            began, first = now, step

    return report


@stage
def main(part: Literal["base", "judge"], level: Annotated[str, "a level of infra/pretraining/params.yaml"]) -> None:
    """Run the stage."""
    recipe, models = load_recipe(level), PRETRAINING / level / "models"
    if recipe.device == "cuda" and not torch.cuda.is_available():
        raise DataError(f"level {level} trains on a GPU and none is here; `make world LEVEL=replica-small`")
    torch.set_num_threads(1)  # one thread: the same sums in the same order on every machine of a kind
    tokenizer = tiny.build_tokenizer()
    if part == "base":
        train_base(recipe, tokenizer, models / "base")
    else:
        train_judge(recipe, tokenizer, models / "base", models / "judge")


if __name__ == "__main__":
    main()
