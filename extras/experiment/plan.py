"""The plan of the experiment (``infra/experiment/params.yaml``): base models, test sets, and cells by block."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, PositiveFloat, PositiveInt, model_validator

from ground.io import DataError
from ground.settings import Section, read_settings
from pathfinder.core.params import Share, Train
from pathfinder.core.prompts import VARIANTS
from world.recipes import Shape
from world.story import WORLDS, Level

FOLDER = Path("infra/experiment")
PLAN, CELLS = FOLDER / "params.yaml", FOLDER / "cells"
MADE = Path("artifacts/experiment")
_NAME = re.compile(r"(.+)-([a-z_]+)-([1-9][0-9]*)-s([1-9][0-9]*)")
SHARES = (0, 3, 10)
"""Percent of the correct steps that are not optimal, at which F1 is computed."""
MAIN_SHARE = 3
LOOKS = {8: 0.01, 24: 0.015, 48: 0.025}
"""Two-sided levels by the number of seeds. Their sum is 5 %, so the looks together keep it (Bonferroni)."""


class Dose(Section):
    """A base model: ``share`` of its lessons verify steps; steps, padded tokens per batch, and rate as in ``Phase``."""

    device: Literal["cpu", "cuda"] = "cpu"
    share: Share
    steps: PositiveInt
    tokens: PositiveInt
    rate: Annotated[float, Field(gt=0)]
    seed: int


class Training(Section):
    """The records to learn from."""

    lines: PositiveInt
    wrong_plus: Share


class Tests(Section):
    """Sizes of the test sets, and the share of solutions with a correct step that is not optimal."""

    items: PositiveInt
    dev: PositiveInt
    prmbench: PositiveInt
    idle: Share


@dataclass(frozen=True, slots=True)
class Cell:
    """One training and its evaluation. Every cell of a plan has the same number of optimiser steps."""

    base: str
    variant: str
    size: int
    seed: int

    @property
    def name(self) -> str:
        """Its name, which is also the name of its file without the ending."""
        return f"{self.base}-{self.variant}-{self.size}-s{self.seed}"

    @classmethod
    def parse(cls, name: str) -> Cell:
        """The cell with a name; raises ``DataError`` for a name of a different form, or with an unknown variant."""
        if (found := _NAME.fullmatch(name)) is None:
            raise DataError(f"{name!r} is not a cell; expected BASE-VARIANT-RECORDS-sSEED, as in a1-full-500-s1")
        if found[2] not in VARIANTS:
            raise DataError(f"{name!r} is not a cell: no variant {found[2]!r}; the variants are {', '.join(VARIANTS)}")
        return cls(found[1], found[2], int(found[3]), int(found[4]))


class Block(Section):
    """Cells that are run together: every combination of the lists; ``seeds`` are the first and the last.

    ``rates`` replaces the learning rate of some variants. ``looks`` maps a number of seeds to the level of its look.
    ``readings`` replaces the reading of some hypotheses. ``flips`` are shares of wrong labels (``noise.Flips``).
    ``correction`` names the shares for which the loss allows: none, the shares estimated without the truth, or the true
    shares.
    """

    bases: list[str]
    variants: list[str]
    sizes: list[PositiveInt]
    seeds: Annotated[list[PositiveInt], Field(min_length=2, max_length=2)]
    rates: dict[str, PositiveFloat] = Field(default_factory=dict)
    looks: dict[PositiveInt, Share] = Field(default=LOOKS)
    readings: dict[str, Literal["soundness", "quality", "definition"]] = Field(default_factory=dict)
    flips: Annotated[list[Share], Field(min_length=2, max_length=2)] = Field(default=[0.0, 0.0])
    correction: Literal["none", "estimated", "true"] = "none"

    @property
    def cells(self) -> list[Cell]:
        """The cells up to each look, size by size and then seed by seed, so that an early end leaves whole settings."""
        first, last = self.seeds
        seeds = range(first, last + 1)
        cells = [Cell(b, v, n, s) for n, s, b, v in product(self.sizes, seeds, self.bases, self.variants)]
        return sorted(cells, key=lambda cell: sum(cell.seed - first >= look for look in self.looks))


class Plan(Section):
    """Everything that decides the experiment's figures."""

    world: Literal["small", "rich", "wide"]
    seed: int
    bases: dict[str, Dose]
    shape: Shape
    training: Training
    tests: Tests
    blocks: dict[str, Block]
    train: Train

    @model_validator(mode="after")
    def _names_exist(self) -> Plan:
        for name, block in self.blocks.items():
            for given, known in ((block.bases, self.bases), (block.variants, VARIANTS), (block.rates, VARIANTS)):
                if unknown := {*given} - {*known}:
                    raise ValueError(f"blocks.{name}: unknown {', '.join(sorted(unknown))}")
        return self

    @property
    def levels(self) -> Mapping[str, Level]:
        """The levels of the stories."""
        return WORLDS[self.world]

    def block(self, name: str) -> Block:
        """A block by name; raises ``DataError`` with the names that exist."""
        if name not in self.blocks:
            raise DataError(f"{PLAN}: no block {name!r}; the blocks are {', '.join(self.blocks)}")
        return self.blocks[name]


def load_plan(path: Path = PLAN) -> Plan:
    """Read the plan; raises ``DataError`` with every wrong key."""
    return read_settings(Plan, path)
