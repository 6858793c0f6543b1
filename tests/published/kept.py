"""The kept answers of the published code, and how the project's own are compared with them."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pathfinder.core import prompts
from tests.published.sources import slot

CASES = Path(__file__).parent / "cases"


@dataclass(frozen=True, slots=True)
class Case:
    """An input of our own and the published function's output; ``{"raises": …}`` if it raised.

    ``differs`` says why the project's answer is another one; it is empty where both must agree.
    """

    input: Any
    output: Any
    differs: str = ""


def cases(topic: str, function: str, file: str = "") -> list[Case]:
    """The cases of a function in ``cases/TOPIC.json``; ``file`` is the end of its path where the name repeats."""
    recorded = json.loads((CASES / f"{topic}.json").read_text(encoding="utf-8"))
    found = [each for each in recorded if each["function"] == function and each["file"].endswith(file)]
    assert len(found) == 1, f"{topic}: {len(found)} functions {function}"
    return [Case(case["input"], _filled(case["output"]), case.get("differs", "")) for case in found[0]["cases"]]


def _filled(value: Any) -> Any:
    """The value with the project's own text in each slot; ``prompts.DIGESTS`` pins it."""
    if isinstance(value, str):
        for name in prompts.DIGESTS if "⟦" in value else ():
            value = value.replace(slot(name), getattr(prompts, name))
        return value
    if isinstance(value, list):
        return [_filled(item) for item in value]
    return {key: _filled(item) for key, item in value.items()} if isinstance(value, dict) else value


def differences(found: list[Case], ours: Callable[[Any], Any]) -> list[str]:
    """The cases in which the project's function answers something else, in words. Floats agree to nine decimals.

    A deliberate difference counts as one where both agree: then the pages are wrong.
    """
    different = []
    for case in found:
        answer = ours(case.input)
        if (_rounded(answer) != _rounded(case.output)) != bool(case.differs):
            different.append(f"{case.input!r:.300}\n  published {case.output!r:.600}\n  here      {answer!r:.600}")
    return different


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return round(value, 9)
    if isinstance(value, list | tuple):
        return [_rounded(item) for item in value]
    return {key: _rounded(item) for key, item in value.items()} if isinstance(value, dict) else value
