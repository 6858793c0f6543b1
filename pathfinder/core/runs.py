"""A run is one variant of the PRM, trained on one data mix with one seed. Its name contains all three.

``VARIANT[-MIX][-sSEED]``, for example ``full``, ``no_subtasks-prm800k`` or ``full-550k-s2``. The defaults are the
paper's main setting, mix ``400k``, and seed 1. A run has exactly one name, because the name locates its files.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ground.io import DataError
from ground.text import meant
from pathfinder.core.prompts import VARIANTS

MAIN_MIX = "400k"
_NAME = re.compile(r"([a-z_]+)(?:-([0-9a-z]*k))?(?:-s([1-9][0-9]*))?")


@dataclass(frozen=True, slots=True)
class Run:
    """A parsed run name; ``seed`` counts from 1, which is the seed of the profile."""

    name: str
    variant: str
    mix: str
    seed: int

    @property
    def system(self) -> str:
        """The run's name without its seed. Runs that differ only in the seed measure one system."""
        return _name_of(self.variant, self.mix, 1)


def parse_run(name: str) -> Run:
    """Parse a run's name; raises ``DataError`` if it is invalid or not the shortest name of the run."""
    found = _NAME.fullmatch(name)
    if found is None or found[1] not in VARIANTS:
        _, hyphen, rest = name.partition("-")
        near = (f"{known}{hyphen}{rest}" for known in VARIANTS)
        raise DataError(
            f"run {name!r}: {meant(name, [*filter(_NAME.fullmatch, near), *VARIANTS])}expected VARIANT[-MIX][-sSEED], "
            f"as in no_subtasks-prm800k-s2, with a variant of {', '.join(VARIANTS)}"
        )
    run = Run(name, found[1], found[2] or MAIN_MIX, int(found[3] or 1))
    if (short := _name_of(run.variant, run.mix, run.seed)) != name:
        raise DataError(f"run {name!r}: the name of this run is {short!r}; use that")
    return run


def parse_runs(names: Iterable[str]) -> tuple[Run, ...]:
    """The runs of a profile, in order; raises ``DataError`` as ``parse_run`` does."""
    return tuple(parse_run(name) for name in names)


def systems(runs: Sequence[Run]) -> dict[str, list[Run]]:
    """The runs of each system, the lowest seed first; systems are in order of first appearance."""
    found: dict[str, list[Run]] = {}
    for run in runs:
        found.setdefault(run.system, []).append(run)
    return {system: sorted(members, key=lambda run: run.seed) for system, members in found.items()}


def _name_of(variant: str, mix: str, seed: int) -> str:
    return variant + f"-{mix}" * (mix != MAIN_MIX) + f"-s{seed}" * (seed != 1)
