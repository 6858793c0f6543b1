"""``infra/resources.yaml``: where each stage runs, what it needs, and how often it is tried again."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from evidence.record.identity import LOCKS
from flows.local.graph import profile_of
from flows.places import Count, Retries
from ground.io import DataError
from ground.settings import Section, read_settings

FILE = Path("infra/resources.yaml")
HERE = "here"
"""The pool of stages that run in the folder of the flow."""
_UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86400}
Packages = Literal["locked", "any"]


def _seconds(text: Any) -> float:
    """A time in seconds; raises ``ValueError`` if it is not a number with a unit."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd])", str(text))
    if found is None or float(found[1]) == 0:
        raise ValueError(f"is {text!r:.80}; expected for example 30m, 6h or 2d")
    return float(found[1]) * _UNITS_S[found[2]]


Seconds = Annotated[float, BeforeValidator(_seconds)]


class Line(Section):
    """One line of the file: the stages that it matches, and their needs."""

    stage: str
    profile: str = "*"
    pool: str | None = None
    parts: Annotated[int, Field(ge=1)] | None = None
    gpus: Count | None = None
    memory: str | None = None
    time_s: Seconds | None = Field(None, alias="time")
    wait_s: Seconds | None = Field(None, alias="wait")
    retries: Retries | None = None
    slots: dict[str, Annotated[int, Field(ge=1)]] | None = None
    packages: Packages | None = None


class Resources(Section):
    """The whole file: the lines, the launchers by pool, and the number of slots of each name on the Prefect server."""

    stages: list[Line]
    launch: dict[str, Annotated[str, Field(pattern=r"\S")]] = Field(default_factory=dict)
    slots: dict[str, Annotated[int, Field(ge=1)]] = Field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Needs:
    """The needs of one stage: pool, GPUs, memory as Kubernetes writes it, time limit, retries and slots.

    With several ``parts``, the pool computes these and the stage itself merges them in the folder of the flow.
    ``launch`` is the command that starts a stage of the pool; without it, Prefect's deployment starts the stage.
    ``wait_s`` is how long it waits for a pool that has no worker. With ``packages`` "any", workers may have different
    packages from the lock.
    """

    pool: str = HERE
    parts: int = 1
    gpus: int = 0
    memory: str = ""
    time_s: float | None = None
    wait_s: float = 600.0
    retries: Retries = field(default_factory=Retries)
    slots: Mapping[str, int] = field(default_factory=dict)
    packages: Packages = "locked"
    launch: str = ""

    @property
    def is_here(self) -> bool:
        """True if the stage runs in the folder of the flow."""
        return self.pool == HERE

    def require_packages(self, name: str, others: list[str], say: Callable[[str], None] = lambda _: None) -> None:
        """Say that a worker has ``others``, versions that the lock does not pin; raises ``DataError`` if it may not."""
        told = f"{name}: the worker has {', '.join(others)} (pinned in {LOCKS})"
        if others and self.packages != "any":
            raise DataError(f"{told}; run `make env` there and run again, or allow it with `packages: any` in {FILE}")
        if others:
            say(f"{told}; `packages: any` in {FILE} allows it")

    def command(self, stage: str, order: str) -> list[str]:
        """The words of ``launch`` for a stage and the file of its order; raises ``DataError`` for an unknown field."""
        minutes = math.ceil((self.time_s or _UNITS_S["d"]) / _UNITS_S["m"])
        fields = {"stage": stage, "order": order, "gpus": self.gpus, "minutes": minutes}
        known = fields | ({"memory": self.memory.removesuffix("i")} if self.memory else {})
        try:
            return [word.format(**known) for word in shlex.split(self.launch)]
        except (AttributeError, KeyError, IndexError, TypeError, ValueError) as error:
            listed = f"{{{'}, {'.join(known)}}}"
            raise DataError(f"{FILE}: launch: {self.pool}: {error}; the fields of {stage} are {listed}") from error

    @property
    def job_variables(self) -> dict[str, Any]:
        """The variables with which the pool chooses a machine for the stage."""
        return {name: value for name, value in (("gpus", self.gpus), ("memory", self.memory)) if value}


def needs(root: Path, stages: Iterable[str]) -> dict[str, Needs]:
    """The needs of each stage, each from the first line that has it; raises ``DataError`` if the file is not valid."""
    if not (root / FILE).exists():
        return {name: Needs() for name in stages}
    resources, profile = read_settings(Resources, root / FILE), profile_of(root)
    found = {}
    for name in stages:
        stated: dict[str, Any] = {}
        for line in reversed(resources.stages):
            if fnmatchcase(profile, line.profile) and fnmatchcase(name, line.stage):
                stated |= {key: value for key, value in line if value is not None and key not in ("stage", "profile")}
        for slot, number in stated.get("slots", {}).items():
            if number > (most := resources.slots.get(slot, number)):
                raise DataError(
                    f"{FILE}: {name} asks for {number} of the slots {slot}, and `slots` has {most}; correct one"
                )
        found[name] = Needs(**stated, launch=resources.launch.get(stated.get("pool", HERE), ""))
    return found


def slots(root: Path) -> dict[str, int]:
    """The number of slots of each name that the file asks for; raises ``DataError`` if it is not valid."""
    return dict(read_settings(Resources, root / FILE).slots) if (root / FILE).exists() else {}
