"""CPU time, measured now and remembered per profile, and what follows for the time left."""

from __future__ import annotations

import json
import os
import resource
from collections.abc import Iterable

from ground.io import write_text
from tests.campaigns.rehearsal import material

_FILE = "times.json"
_DEFAULT_S = 150.0  # of a profile that was never rehearsed here


def cpu_seconds() -> float:
    """CPU time of the commands of this process that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def keep(profile: str, seconds: float) -> None:
    """Remember the CPU time of a profile."""
    with material.lock():
        write_text(material.cache() / _FILE, json.dumps(_known() | {profile: round(seconds)}))


def longest_first(profiles: Iterable[str]) -> list[str]:
    """The profiles in the order in which lanes should take them, so that all lanes end at about the same time."""
    known = _known()
    return sorted(profiles, key=lambda name: -known.get(name, _DEFAULT_S))


def left(profiles: Iterable[str]) -> str:
    """The time that the profiles take on the cores of this machine, at most two, as words."""
    known = _known()
    seconds = sum(known.get(name, _DEFAULT_S) for name in profiles) / min(2, os.cpu_count() or 1)
    return f"about {seconds / 60:.0f} min"


def _known() -> dict[str, float]:
    path = material.cache() / _FILE
    found: dict[str, float] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return found
