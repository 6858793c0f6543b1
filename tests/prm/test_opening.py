"""PathFinder-PRM opens in process or behind a server, by the same settings as in params.yaml."""

from __future__ import annotations

from pathlib import Path

import pytest

from ground.io import DataError, write_json
from pathfinder.core.steps import Solution
from pathfinder.models.folders import MODEL_FILE, open_model
from pathfinder.prm.opening import DEFAULTS, open_pathfinder
from pathfinder.prm.scoring import Scorer
from pathfinder.prm.served_scoring import ServedScorer
from pathfinder.tree.passes import Mode
from tests.prm.test_scoring import save_prm
from tests.support.prm_server import PRMServer, prm_server

SOLUTION = Solution("1", "1 + 1?", ("It is 2.", "So 2."))


@pytest.mark.parametrize("mode", [Mode.BOTH, Mode.ALL])
def test_both_engines_give_the_same_scores(tmp_path: Path, mode: Mode) -> None:
    model, _ = save_prm(tmp_path)
    with open_pathfinder(open_model(tmp_path), mode=mode) as local:
        assert isinstance(local, Scorer)
        expected = local.score([SOLUTION])[0]
    with prm_server(PRMServer(model)) as server:
        settings = DEFAULTS.model_copy(update={"engine": "vllm", "base_url": server.url})
        with open_pathfinder(open_model(tmp_path), settings, mode) as served:
            assert isinstance(served, ServedScorer)
            found = served.score([SOLUTION])[0]
    assert [step.reward for step in found] == pytest.approx([step.reward for step in expected], abs=1e-5)


def test_the_preset_chooses_the_prompt(tmp_path: Path) -> None:
    save_prm(tmp_path)
    rewards = set()
    for preset in ("default", "official-search"):
        with open_pathfinder(open_model(tmp_path), preset=preset) as scorer:
            rewards.add(scorer.score([SOLUTION])[0][0].reward)
    assert len(rewards) == 2


def test_an_unknown_variant_is_refused(tmp_path: Path) -> None:
    save_prm(tmp_path)
    write_json(tmp_path / MODEL_FILE, {"variant": "other"})
    with pytest.raises(DataError, match="unknown variant 'other'; expected"), open_pathfinder(open_model(tmp_path)):
        pass
