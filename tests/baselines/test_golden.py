"""The installed transformers gives the kept scores of each published PRM, by its authors' procedure and by ours."""

from __future__ import annotations

from pathlib import Path

import pytest
import transformers

from ground.io import read_json
from pathfinder.baselines.registry import SYSTEMS
from pathfinder.baselines.scorer import BaselineScorer
from pathfinder.models.folders import open_model
from tests.baselines.golden import GOLDEN, scores, solutions
from tests.baselines.model_folders import FOLDERS

KEPT = read_json(GOLDEN)


def moved(found: list[list[float]], kept: list[list[float]]) -> list[str]:
    """The solutions whose scores differ from the kept ones, with both."""
    pairs = zip(found, kept, strict=True)
    return [f"{n}: {a} is not {b}" for n, (a, b) in enumerate(pairs) if a != pytest.approx(b, rel=1e-4, abs=2e-7)]


@pytest.mark.parametrize("name", FOLDERS)
def test_the_scores_are_the_kept_ones(name: str, folders: dict[str, Path]) -> None:
    kept = KEPT[name]
    assert moved(scores(name, folders[name]), kept) == [], f"{name} moved with transformers {transformers.__version__}"
    mine = BaselineScorer(open_model(folders[name]), SYSTEMS[name].methods["authors"]).score(solutions())
    assert moved([[step.reward for step in steps] for steps in mine], kept) == [], f"{name} moved in this project"


def test_the_kept_scores_could_show_a_move() -> None:
    assert KEPT.keys() == FOLDERS.keys() == SYSTEMS.keys()
    for name, rows in KEPT.items():
        flat = [score for row in rows for score in row]
        assert (len(rows), len(flat)) == (20, sum(len(one.steps) for one in solutions()))
        assert max(flat) > 1.05 * min(flat), f"{name}: scores that hardly differ would show nothing"
