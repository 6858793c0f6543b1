"""The step scores of one of our runs for a whole benchmark."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pathfinder.core.params import Params
from pathfinder.core.progress import Progress
from pathfinder.core.runs import parse_run
from pathfinder.core.steps import Solution, StepScore
from pathfinder.models.footprint import require
from pathfinder.prm.opening import open_pathfinder
from pathfinder.prm.readings import Stop
from pathfinder.tree.passes import Mode


def run_scores(
    benchmark: str,
    run: str,
    solutions: Sequence[Solution],
    params: Params,
    stop: Stop | None = None,
    preset: str = "default",
    mode: Mode = Mode.BOTH,
) -> list[list[StepScore]]:
    """Score every step of ``solutions`` with the model in ``models/<run>`` and show the progress.

    ``preset`` is a name in ``PRESETS``. Raises ``DataError`` if ``run`` is not the name of a run, or if the model
    does not fit into memory.
    """
    model = Path("models") / parse_run(run).name
    require(benchmark, params, {"base": model})
    with (
        open_pathfinder(model, params.score, mode, preset) as scorer,
        Progress(f"{benchmark} {run}", len(solutions), "solutions") as progress,
    ):
        return scorer.score(solutions, progress.advance, stop)
