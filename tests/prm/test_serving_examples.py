"""The examples that score over HTTP give the scorer's rewards, and are short."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pathfinder.core.steps import Solution
from pathfinder.models.folders import open_model
from pathfinder.prm.scoring import Scorer
from tests.support.scoring_server import PROBLEM, STEPS, Server

ROOT = Path(__file__).resolve().parents[2]


def example(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, ROOT / "examples" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_examples_give_the_scorer_s_rewards(
    server: tuple[str, Server], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Called as TRL, verl and search-and-learn document it: none of the three is installed here."""
    monkeypatch.setenv("PATHFINDER_URL", server[0].rstrip("/"))
    text = "\n\n".join(STEPS)
    (scores,) = Scorer(open_model(folder)).score([Solution("0", PROBLEM, tuple(STEPS))])
    rewards = [score.reward for score in scores]
    trl = example("trl_reward").step_reward
    assert trl([PROBLEM], [text], trainer_state=None) == pytest.approx([min(rewards)], abs=1e-6)
    chats = [[{"role": "user", "content": PROBLEM}]], [[{"role": "assistant", "content": text}]]
    assert trl(*chats) == pytest.approx([min(rewards)], abs=1e-6)
    assert len(trl([PROBLEM], [""])) == 1
    verl = example("verl_reward").compute_score
    assert verl("math", text, "2", {"question": PROBLEM}) == pytest.approx(min(rewards), abs=1e-6)
    prm = example("search_and_learn").PathFinder(SimpleNamespace(prm_path=str(folder)))
    found = prm.score([PROBLEM], [[text, ""]])
    assert found[0][0] == pytest.approx(rewards, abs=1e-5)
    assert len(found[0][1]) == 1
    long = "a " * 9000
    assert trl([PROBLEM, PROBLEM], [long, text]) == pytest.approx([0.0, min(rewards)], abs=1e-5)
    assert verl("math", long, "2", {"question": PROBLEM}) == 0.0
    assert prm.score([PROBLEM], [[long]]) == [[[0.0]]]


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.py")), ids=lambda path: path.stem)
def test_an_example_is_short(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= (150 if path.stem == "verify_bundle" else 22)
