"""The answers of the experiment on typed errors, which has more seeds than a pipeline's run (docs/experiment.md)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ground.io import read_json
from pathfinder.pages.page import Block, Table
from pathfinder.reporting.cells import printed
from pathfinder.reporting.names import CAPTIONS, VARIANTS
from pathfinder.reporting.origins import placed
from pathfinder.reporting.results import Score

ANSWERS = Path("infra/experiment/answers.json")


def decided() -> list[Block]:
    """A table of the differences between variants and their verdicts; empty if the project has no answers."""
    answers = placed(read_json(ANSWERS), ANSWERS.as_posix()) if ANSWERS.exists() else []
    heads = ("compared with", "base model, records", "seeds", "reading", "difference", "verdict")
    return [Table(CAPTIONS["decided"], heads, [*map(_row, answers)], measured=frozenset())] if answers else []


def _row(answer: Mapping[str, Any]) -> tuple[str, ...]:
    found = answer["difference"]
    return (
        f"{answer['hypothesis']}: {VARIANTS[answer['right']]}",
        f"{answer['base']}, {answer['records']:,}",
        str(answer["seeds"]),
        answer["reading"],
        printed(Score(found["value"], found["low"], found["high"])),
        answer["verdict"],
    )
