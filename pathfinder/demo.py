"""The demo: the small PRM of this package scores a solution with a math and a consistency error."""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path
from typing import Any

from ground.text import columns_of, has_colour
from pathfinder.library import PRM
from pathfinder.pages.picture import EXAMPLE_PROBLEM, EXAMPLE_STEPS, LEGEND, as_text, picture_of
from pathfinder.prm.results import ScoredSolution, UnscoredSolution

MODEL = Path(__file__).parent / "demo_model"
_NEXT = """
This tiny model knows only such stories. What to try next:
  pathfinder serve pathfinder/demo_model
      opens a page where you paste a solution
  pathfinder score FILE --pretty --model pathfinder/demo_model
      draws the same picture of your own stories
  make run
      in a clone, trains the PRMs in five minutes and writes reports/report.html"""


def scored() -> ScoredSolution | UnscoredSolution:
    """The solution with its scores."""
    return PRM.load(MODEL, device="cpu").score(EXAMPLE_PROBLEM, EXAMPLE_STEPS)


def as_row(solution: ScoredSolution | UnscoredSolution) -> dict[str, Any]:
    """The scored solution as a JSON value."""
    steps = [{"text": step.text, **step.row()} for step in solution.steps]
    return {"problem": solution.problem, **solution.row(), "steps": steps}


def shown() -> str:
    """The picture and the next things to try, in colours if standard output is a terminal."""
    solution = scored()
    columns = columns_of(sys.stdout)
    picture = as_text(picture_of(solution.problem, solution.steps), has_colour(sys.stdout), columns)
    return "\n".join([picture, "", *textwrap.wrap(LEGEND, min(columns, 100)), _NEXT])
