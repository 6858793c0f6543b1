"""Recipes of the pretraining pipeline: the levels of ``infra/pretraining/params.yaml``, checked when they are read."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, NonNegativeInt, PositiveInt, model_validator

from ground.io import DataError
from ground.settings import Section, read_settings
from pathfinder.core.params import Share
from world.story import WORLDS, Language, Level

RECIPES = Path("infra/pretraining/params.yaml")
PRETRAINING = Path("artifacts/pretraining")


class Shape(Section):
    """Sizes of the models (Qwen2, tied embeddings)."""

    hidden: PositiveInt
    layers: PositiveInt
    heads: PositiveInt
    feed: PositiveInt

    @model_validator(mode="after")
    def _divides(self) -> Shape:
        if self.hidden % (2 * self.heads) or self.hidden < 18:
            raise ValueError("hidden must be at least 18 and a multiple of twice the heads")
        return self


class Phase(Section):
    """A training phase: optimizer steps, padded tokens per batch, and the full learning rate."""

    steps: PositiveInt
    tokens: PositiveInt
    rate: Annotated[float, Field(gt=0)]


class Plans(Section):
    """The three phases of the base model, and the judge's."""

    base: Phase
    refined: Phase
    words: Phase
    judge: Phase


class Instructions(Section):
    """The share of correct steps, by kind, that a rater rates by PRM800K's instructions.

    At 0 the rater follows the oracle. ``oracle.INSTRUCTED`` has the ratings.
    """

    unchecked: Share = 0.0
    dead_end: Share = 0.0
    circling: Share = 0.0
    planning: Share = 0.0


class CorpusConfig(Section):
    """Sizes and error rates of the corpora; the defaults are the shipped data's."""

    seed: int = 11
    phase1_train: PositiveInt = 160
    phase1_test: PositiveInt = 60
    phase2_train: PositiveInt = 610
    phase2_test: PositiveInt = 100
    mistral: PositiveInt = 1600
    processbench: PositiveInt = 200
    prmbench: PositiveInt = 50
    search: PositiveInt = 50
    wrong_minus: Share = 0.02  # correct steps that a rater calls incorrect
    wrong_plus: Share = 0.01  # incorrect steps that a rater calls correct
    null_ratings: Share = 0.004
    instructions: Instructions = Instructions()
    repeats: Share = 0.03  # alternatives that repeat another one verbatim
    noise_on_track: Share = 0.05  # Monte-Carlo "-" although the true answer is still within reach
    noise_off_track: Share = 0.1  # Monte-Carlo "+" although it is not
    overlap: NonNegativeInt = 2  # problems of each benchmark subset and search set that phase1_test repeats


class Measure(Section):
    """Numbers of held-out stories."""

    policy: PositiveInt
    judge: PositiveInt


class Recipe(Section):
    """Everything that decides the results of a level's pipeline."""

    world: Literal["small", "rich", "wide"]
    device: Literal["cpu", "cuda"]
    seed: int
    shape: Shape
    plans: Plans
    corpus: CorpusConfig
    measure: Measure

    @property
    def levels(self) -> Mapping[str, Level]:
        """The story levels of this world."""
        return WORLDS[self.world]

    @property
    def language(self) -> Language:
        """The language of this world."""
        return next(iter(self.levels.values())).language


class _File(Section):
    levels: dict[str, Recipe]


def load_recipe(level: str, path: Path = RECIPES) -> Recipe:
    """The recipe of a level; raises ``DataError`` with every wrong key."""
    recipes = read_settings(_File, path).levels
    if level not in recipes:
        raise DataError(f"{path}: no level {level!r}; the levels are {', '.join(recipes) or 'none'}")
    return recipes[level]
