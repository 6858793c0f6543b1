"""One door for every PRM: ours, and a published one by its name."""

from __future__ import annotations

import ast
import gc
import pydoc
import weakref
from pathlib import Path
from types import ModuleType

import pytest

import pathfinder
from ground.io import DataError
from pathfinder.baselines.opening import open_prm
from pathfinder.baselines.scorer import BaselineScorer
from pathfinder.prm.scoring import Scorer
from pathfinder.tree.passes import Mode
from tests.baselines.model_folders import FOLDERS
from tests.prm.test_scoring import save_prm

SOLUTION = pathfinder.Solution("1", "1 + 1?", ("It is 2.", "So 2."))


def test_ours(tmp_path: Path) -> None:
    save_prm(tmp_path)
    with pathfinder.open_prm(tmp_path) as prm:
        assert isinstance(prm, Scorer)
        (scores,) = prm.score([SOLUTION])
    assert all(isinstance(score, pathfinder.StepScore) and 0 < score.reward < 1 for score in scores)


def test_a_published_prm(tmp_path: Path) -> None:
    FOLDERS["skywork"](tmp_path)
    with open_prm(tmp_path, system="skywork") as prm:
        assert isinstance(prm, BaselineScorer)
        (scores,) = prm.score([SOLUTION])
    assert [score.labels for score in scores] == [{}, {}]
    assert all(0 < score.reward < 1 for score in scores)


@pytest.mark.parametrize(
    ("system", "mode", "error"), [("gpt", Mode.BOTH, "unknown system 'gpt'"), ("skywork", Mode.FIRST, "use mode both")]
)
def test_errors(tmp_path: Path, system: str, mode: Mode, error: str) -> None:
    with pytest.raises(DataError, match=error), open_prm(tmp_path, system=system, mode=mode):
        pass


def test_the_garbage_of_the_program_around_it_is_still_collected(tmp_path: Path) -> None:
    save_prm(tmp_path)
    theirs = ModuleType("theirs")
    vars(theirs)["itself"] = theirs  # so that only the collector frees it
    seen = weakref.ref(theirs)
    with pathfinder.open_prm(tmp_path):
        del theirs
    gc.collect()
    assert seen() is None


def test_every_public_name_exists() -> None:
    where, names = (vars(pathfinder)[name] for name in ("_WHERE", "__all__"))
    assert set(names) == set(where) <= set(dir(pathfinder))
    assert all(getattr(pathfinder, name) is not None for name in where)
    with pytest.raises(AttributeError, match="Scorer"):
        getattr(pathfinder, "Scorer")  # noqa: B009  # mypy knows that it is missing
    assert "class ScoredSolution" in pydoc.plain(pydoc.render_doc(pathfinder))


def test_type_checkers_find_every_public_name_where_it_is() -> None:
    stub = Path(str(pathfinder.__file__)).with_suffix(".pyi")
    imports = [node for node in ast.parse(stub.read_text()).body if isinstance(node, ast.ImportFrom)]
    assert {name.asname: node.module for node in imports for name in node.names} == vars(pathfinder)["_WHERE"]
    assert all((stub.parents[1] / package / "py.typed").is_file() for package in ("pathfinder", "ground"))
