"""Make the shipped tiny models: the base (also the policy) and the judge, from a seed and nothing else.

Reads nothing. Writes data/models/base and data/models/judge (safetensors, fp32). Checkpoints every 500 steps in
.pathfinder/pretrain: the same command after an interruption goes on where it stopped.

    python -m stages.pretrain            # both, about 50 minutes on one core
    python -m stages.pretrain judge      # one of them; the judge starts from data/models/base
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch
from transformers import PreTrainedTokenizerFast, Qwen2ForCausalLM

from stages.core import tiny, world_lessons
from stages.core.io import atomic_folder, digest_of, sha256_file
from stages.core.pretraining import Plan, fit
from stages.core.world import Problem, split_of
from stages.core.world_lessons import Lesson, Scribe

MODELS = Path("data/models")
CHECKPOINTS = Path(".pathfinder/pretrain")
SOURCES = ("world.py", "world_steps.py", "world_lessons.py", "tiny.py", "pretraining.py", "prompts.py")


SCRAMBLE = 0.55
"""Share of the candidates of the base model's second phase that have each word wrong or right by chance."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """Sizes, seeds and step budgets of the shipped models."""

    seed: int = 20
    hidden: int = 96
    layers: int = 5
    heads: int = 4
    feed: int = 256
    base: Plan = field(default_factory=lambda: Plan(steps=3200, tokens=2560, rate=0.003))
    refined: Plan = field(default_factory=lambda: Plan(steps=1900, tokens=2560, rate=0.0025))
    judge: Plan = field(default_factory=lambda: Plan(steps=1300, tokens=2560, rate=0.002))


def _keep(problem: Problem) -> bool:
    return split_of(problem) == "train"


def base_lessons(scribe: Scribe, seed: int, phase: str, scramble: float) -> Callable[[int], Iterator[Lesson]]:
    """Endless lessons of a block for a phase of the base model."""

    def block(number: int) -> Iterator[Lesson]:
        rng = random.Random(f"{seed}/{phase}/{number}")
        while True:
            yield world_lessons.base_lesson(scribe, rng, _keep, scramble)

    return block


def judge_lessons(scribe: Scribe, seed: int) -> Callable[[int], Iterator[Lesson]]:
    """Endless lessons of a block for the judge."""

    def block(number: int) -> Iterator[Lesson]:
        rng = random.Random(f"{seed}/judge/{number}")
        while True:
            yield world_lessons.judge_lesson(scribe, rng, world_lessons.draw_problem(rng, _keep))

    return block


def train_base(recipe: Recipe, tokenizer: PreTrainedTokenizerFast, steps_done: Callable[[int, float], None]) -> None:
    """Pretrain the base model and put it in its place."""
    model = tiny.build_model(
        tokenizer,
        hidden=recipe.hidden,
        layers=recipe.layers,
        heads=recipe.heads,
        feed=recipe.feed,
        seed=recipe.seed,
    )
    scribe = Scribe(tokenizer)
    for phase, plan, scramble in (("base", recipe.base, 0.0), ("refined", recipe.refined, SCRAMBLE)):
        lessons = base_lessons(scribe, recipe.seed, phase, scramble)
        fit(model, lessons, plan, checkpoint_of(phase, recipe), steps_done)
    tiny.seed_label_rows(model, tokenizer)
    with atomic_folder(MODELS / "base") as folder:
        tiny.save(model, tokenizer, folder)


def train_judge(recipe: Recipe, tokenizer: PreTrainedTokenizerFast, steps_done: Callable[[int, float], None]) -> None:
    """Train the judge from the base model and put it in its place."""
    model = Qwen2ForCausalLM.from_pretrained(MODELS / "base", dtype=torch.float32)
    start = sha256_file(MODELS / "base" / "model.safetensors")
    lessons = judge_lessons(Scribe(tokenizer), recipe.seed)
    fit(model, lessons, recipe.judge, checkpoint_of("judge", recipe, start), steps_done)
    with atomic_folder(MODELS / "judge") as folder:
        tiny.save(model, tokenizer, folder)


def checkpoint_of(name: str, recipe: Recipe, start: str = "") -> Path:
    """Where a run keeps its progress: named by everything that decides its result."""
    core = Path(tiny.__file__).parent
    sources = {source: sha256_file(core / source) for source in SOURCES}
    digest = digest_of({"name": name, "recipe": asdict(recipe), "start": start, "sources": sources})
    return CHECKPOINTS / digest[:16] / f"{name}.safetensors"


def main(argv: Sequence[str] | None = None) -> None:
    """Train what is named on the command line, or both models."""
    names = list(sys.argv[1:] if argv is None else argv) or ["base", "judge"]
    if unknown := sorted(set(names) - {"base", "judge"}):
        raise SystemExit(f"unknown model {unknown[0]!r}; expected base or judge")
    torch.set_num_threads(1)  # one thread: the same sums in the same order on every machine of a kind
    recipe, tokenizer = Recipe(), tiny.build_tokenizer()
    for name, train, plan in (("base", train_base, recipe.base), ("judge", train_judge, recipe.judge)):
        if name in names:
            began = time.monotonic()

            def steps_done(step: int, loss: float, name: str = name, plan: Plan = plan, began: float = began) -> None:
                spent = time.monotonic() - began
                print(f"{name}: step {step}/{plan.steps}, loss {loss:.4f}, {spent:.0f} s", flush=True)

            train(recipe, tokenizer, steps_done)


if __name__ == "__main__":
    main()
