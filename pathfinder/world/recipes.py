"""Recipes of the pretraining pipeline: one level of ``infra/pretraining/params.yaml`` each, checked on the way in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from pathfinder.core.io import DataError
from pathfinder.world.problem_sets import WorldConfig
from pathfinder.world.story import WORLDS, Level

RECIPES = Path("infra/pretraining/params.yaml")
Count = Annotated[int, Field(ge=1)]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Shape(_Part):
    """Sizes of the models (Qwen2, tied embeddings)."""

    hidden: Count
    layers: Count
    heads: Count
    feed: Count

    @model_validator(mode="after")
    def _divides(self) -> Shape:
        if self.hidden % (2 * self.heads) or self.hidden < 18:
            raise ValueError("hidden must be at least 18 and a multiple of twice the heads")
        return self


class Steps(_Part):
    """A phase: optimizer steps, padded tokens a batch, and the full learning rate."""

    steps: Count
    tokens: Count
    rate: Annotated[float, Field(gt=0)]


class Plans(_Part):
    """The three phases of the base model, and the judge's."""

    base: Steps
    refined: Steps
    words: Steps
    judge: Steps


class Measure(_Part):
    """How many held-out stories each measurement takes."""

    policy: Count
    judge: Count


class Recipe(_Part):
    """Everything that decides what a level's pipeline makes."""

    world: Literal["small", "rich"]
    device: Literal["cpu", "cuda"]
    seed: int
    shape: Shape
    plans: Plans
    corpus: dict[str, int | float]
    measure: Measure

    @model_validator(mode="after")
    def _corpus_is_known(self) -> Recipe:
        for name, value in self.corpus.items():
            default = asdict(WorldConfig()).get(name)
            if default is None or isinstance(value, float) > isinstance(default, float):
                raise ValueError(f"corpus.{name}: {value}; settings are {asdict(WorldConfig())}")
        return self

    @property
    def levels(self) -> Mapping[str, Level]:
        """The stories of this level."""
        return WORLDS[self.world]

    @property
    def config(self) -> WorldConfig:
        """Sizes and rates of the corpora; what the recipe leaves out is as shipped."""
        return WorldConfig(**self.corpus)  # type: ignore[arg-type]


def load_recipe(level: str, path: Path = RECIPES) -> Recipe:
    """The recipe of a level; raises ``DataError`` that lists every wrong key."""
    try:
        content: Any = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, yaml.YAMLError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: cannot be read ({error}); restore it with `git checkout -- {path}`") from error
    levels = content.get("levels") if isinstance(content, dict) else None
    if not isinstance(levels, dict) or level not in levels:
        known = ", ".join(map(str, levels)) if isinstance(levels, dict) else "none"
        raise DataError(f"{path}: no level {level!r}; there are {known}")
    try:
        return Recipe.model_validate(levels[level])
    except ValidationError as error:
        lines = "\n".join(
            f"  levels.{level}.{'.'.join(map(str, item['loc']))}: {item['msg']}" for item in error.errors()
        )
        raise DataError(f"{path}: wrong recipe:\n{lines}\nCorrect it there.") from error
