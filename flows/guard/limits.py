"""The time limits of stages in ``infra/resources.yaml``."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from pathlib import Path

from pathfinder.core.io import DataError
from pathfinder.core.params import PARAMS_FILE
from pathfinder.core.settings import Section, read_settings, read_yaml

FILE = Path("infra/resources.yaml")
_UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86400}


class Limit(Section):
    """One line of the file: the stages that it matches, and their time."""

    stage: str
    time: str
    profile: str = "*"

    @property
    def seconds(self) -> float:
        """The time in seconds; raises ``DataError`` if it is not a number with a unit."""
        found = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd])", self.time)
        if found is None or float(found[1]) == 0:
            raise DataError(f"{FILE}: limits, {self.stage}: time is {self.time!r}; expected for example 30m, 6h or 2d")
        return float(found[1]) * _UNITS_S[found[2]]


class Resources(Section):
    """The whole file."""

    limits: list[Limit]


def limits(root: Path, stages: list[str]) -> dict[str, float]:
    """The time limit in seconds of each stage that has one; raises ``DataError`` if the file is not valid."""
    if not (root / FILE).exists():
        return {}
    lines = [(line, line.seconds) for line in read_settings(Resources, root / FILE).limits]
    profile = str(read_yaml(root / PARAMS_FILE).get("profile", ""))
    found: dict[str, float] = {}
    for name in stages:
        for line, seconds in lines:
            if fnmatchcase(profile, line.profile) and fnmatchcase(name, line.stage):
                found[name] = seconds
                break
    return found
