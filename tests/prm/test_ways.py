"""How far the model of ``pathfinder score`` travels, and how much of the project the verb loads."""

from __future__ import annotations

from pathlib import Path

import pytest

from docs.tools.shape import score_way
from tests.conftest import ROOT

MOST_MODULES, MOST_FILES = 40, 11
WINGS = ("pathfinder", "ground", "evidence", "extras", "flows")
OTHERS = ("accelerate", "boto3", "datasets", "pandas", "scipy", "sympy", "torch", "transformers")


@pytest.fixture(scope="module")
def counted() -> tuple[list[str], set[str]]:
    """The modules that ``score`` loads, and the files with a function that gets the model or its folder."""
    loaded, way = score_way(ROOT, {*WINGS, *OTHERS})
    return loaded, {file for _, file in way}


def test_score_loads_little_of_the_project(counted: tuple[list[str], set[str]]) -> None:
    loaded, _ = counted
    own = [name for name in loaded if name.startswith(WINGS)]
    assert "pathfinder/prm/scoring.py" in own, "this process did not score"
    assert len(own) <= MOST_MODULES, own


def test_score_loads_no_code_of_models_or_compilers(counted: tuple[list[str], set[str]]) -> None:
    loaded, _ = counted
    assert "torch/nn/modules/linear" in loaded
    slow = ("torch/_dynamo", *(name for name in OTHERS if name != "torch"))
    assert [name for name in loaded if name.startswith(slow)] == []


def test_the_model_travels_a_short_way(counted: tuple[list[str], set[str]]) -> None:
    _, files = counted
    assert {"pathfinder/cli.py", "pathfinder/models/folders.py", "pathfinder/prm/scoring.py"} <= files
    assert len(files) <= MOST_FILES, files


def test_only_the_door_looks_for_the_files_of_a_model() -> None:
    openers = {
        path.relative_to(ROOT).as_posix()
        for path in Path(ROOT / "pathfinder/prm").glob("*.py")
        if "open_model(" in path.read_text(encoding="utf-8")
    }
    assert openers == {"pathfinder/prm/evaluate.py"}, "a scorer takes the OpenedModel; only a worker's job has a path"
