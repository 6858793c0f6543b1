"""Make what data/ ships: the base model (also the policy), the judge, and the corpora, from seeds and nothing else.

Reads nothing. Writes data/models/base, data/models/judge (safetensors, fp32), the corpora and data/world.json, and
prints what the models can do on held-out stories. Checkpoints every 500 steps in .pathfinder/pretrain: the same
command after an interruption goes on where it stopped.

    python -m stages.pretrain            # everything, a good hour on one core
    python -m stages.pretrain judge      # one part: base, judge (from data/models/base), corpus, measure
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch
from transformers import PreTrainedTokenizerFast, Qwen2ForCausalLM

from stages.core import tiny, world_judging, world_lessons
from stages.core.generate import Generator
from stages.core.io import atomic_folder, digest_of, sha256_file
from stages.core.pretraining import Plan, fit
from stages.core.world import Problem, split_of
from stages.core.world_benchmarks import WorldConfig
from stages.core.world_formats import renew_index, write_corpus
from stages.core.world_lessons import Lesson, Scribe
from stages.core.world_measure import measure_judge, measure_policy, sample_solutions

PARTS = ("base", "judge", "corpus", "measure")
DATA = Path("data")
MODELS = DATA / "models"
CHECKPOINTS = Path(".pathfinder/pretrain")
SOURCES = (
    "world.py",
    "world_steps.py",
    "world_lessons.py",
    "world_judging.py",
    "tiny.py",
    "pretraining.py",
    "prompts.py",
)


PHASES = {"base": (0.0, False), "refined": (0.55, False), "words": (0.55, True)}
"""For each phase of the base model the share of scrambled candidates, and whether they lean to words."""


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
    words: Plan = field(default_factory=lambda: Plan(steps=1000, tokens=2560, rate=0.002))
    judge: Plan = field(default_factory=lambda: Plan(steps=3600, tokens=2560, rate=0.002))


def _keep(problem: Problem) -> bool:
    return split_of(problem) == "train"


def base_lessons(scribe: Scribe, seed: int, phase: str) -> Callable[[int], Iterator[Lesson]]:
    """Endless lessons of a block for a phase of the base model."""

    def block(number: int) -> Iterator[Lesson]:
        rng = random.Random(f"{seed}/{phase}/{number}")
        while True:
            yield world_lessons.base_lesson(scribe, rng, _keep, *PHASES[phase])

    return block


def judge_lessons(scribe: Scribe, seed: int) -> Callable[[int], Iterator[Lesson]]:
    """Endless lessons of a block for the judge."""

    def block(number: int) -> Iterator[Lesson]:
        rng = random.Random(f"{seed}/judge/{number}")
        while True:
            yield world_judging.judge_lesson(scribe, rng, world_lessons.draw_problem(rng, _keep))

    return block


def train_base(recipe: Recipe, tokenizer: PreTrainedTokenizerFast) -> None:
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
    for phase, plan in (("base", recipe.base), ("refined", recipe.refined), ("words", recipe.words)):
        lessons = base_lessons(scribe, recipe.seed, phase)
        fit(model, lessons, plan, checkpoint_of(phase, recipe), _reporter(phase))
    tiny.seed_label_rows(model, tokenizer)
    with atomic_folder(MODELS / "base") as folder:
        tiny.save(model, tokenizer, folder)


def train_judge(recipe: Recipe, tokenizer: PreTrainedTokenizerFast) -> None:
    """Train the judge from the base model and put it in its place."""
    model = Qwen2ForCausalLM.from_pretrained(MODELS / "base", dtype=torch.float32)
    start = sha256_file(MODELS / "base" / "model.safetensors")
    lessons = judge_lessons(Scribe(tokenizer), recipe.seed)
    fit(model, lessons, recipe.judge, checkpoint_of("judge", recipe, start), _reporter("judge"))
    with atomic_folder(MODELS / "judge") as folder:
        tiny.save(model, tokenizer, folder)


def checkpoint_of(name: str, recipe: Recipe, start: str = "") -> Path:
    """Where a run keeps its progress: named by everything that decides its result."""
    core = Path(tiny.__file__).parent
    sources = {source: sha256_file(core / source) for source in SOURCES}
    digest = digest_of({"name": name, "recipe": asdict(recipe), "start": start, "sources": sources})
    return CHECKPOINTS / digest[:16] / f"{name}.safetensors"


def write_world(recipe: Recipe) -> None:
    """Write the corpora; the ProcessBench-like solutions are the policy's own."""
    policy = Generator(MODELS / "base")

    def solver(problems: list[Problem], purpose: str) -> list[list[str]]:
        return sample_solutions(policy, problems, [f"{recipe.seed}/{purpose}/{i}" for i in range(len(problems))])

    write_corpus(DATA, WorldConfig(), solver)


def measure() -> None:
    """Print the held-out figures of both models as JSON."""
    figures = {
        "policy": measure_policy(Generator(MODELS / "base")),
        "judge": measure_judge(Generator(MODELS / "judge")),
    }
    print(json.dumps(figures, indent=2))


def _reporter(name: str) -> Callable[[int, float], None]:
    began = time.monotonic()

    def report(step: int, loss: float) -> None:
        print(f"{name}: step {step}, loss {loss:.4f}, {time.monotonic() - began:.0f} s", flush=True)

    return report


def main(argv: Sequence[str] | None = None) -> None:
    """Do what is named on the command line, or everything."""
    names = list(sys.argv[1:] if argv is None else argv) or list(PARTS)
    if unknown := sorted(set(names) - set(PARTS)):
        raise SystemExit(f"unknown part {unknown[0]!r}; expected one of {', '.join(PARTS)}")
    torch.set_num_threads(1)  # one thread: the same sums in the same order on every machine of a kind
    recipe, tokenizer = Recipe(), tiny.build_tokenizer()
    if "base" in names:
        train_base(recipe, tokenizer)
    if "judge" in names:
        train_judge(recipe, tokenizer)
    if "corpus" in names:
        write_world(recipe)
    elif (DATA / "world.json").exists():
        renew_index(DATA)
    if "measure" in names:
        measure()


if __name__ == "__main__":
    main()
