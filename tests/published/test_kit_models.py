"""The inputs that the PRMBench kit's model files make of a solution, and what its convention gives here."""

from __future__ import annotations

from pathlib import Path

import pytest

from pathfinder.baselines.registry import SYSTEMS
from pathfinder.baselines.scorer import BaselineScorer
from pathfinder.benchmarks.prmbench import columns
from pathfinder.core.steps import Solution
from pathfinder.models.folders import open_model
from tests.baselines.model_folders import FOLDERS
from tests.published.kept import cases
from tests.published.kit_models import PLACES


@pytest.mark.parametrize("system", PLACES)
def test_each_system_sends_what_the_kit_sends(system: str, tmp_path: Path) -> None:
    """The same verdicts, the same number of them, and scores to 1e-5, for empty, many-lined and overlong solutions."""
    FOLDERS[system](tmp_path / system)
    method = SYSTEMS[system].method("prmbench", "benchmark")
    scorer = BaselineScorer(open_model(tmp_path / system), method)
    found = cases("kit_models", f"{PLACES[system][1]}.respond")
    for case in found:
        (steps,) = scorer.score([Solution("", case.input["problem"], tuple(case.input["steps"]))])
        mine = columns(method.rule.verdicts(steps)) | {
            "step_level_validity_scores": pytest.approx([step.reward for step in steps], abs=1e-5)
        }
        if method.rule.redundancy is not None:
            redundancies = [step.redundancy for step in steps]
            mine["step_level_redundancy_scores"] = pytest.approx(redundancies, abs=1e-5)
        assert case.output == mine
    said = [label for case in found for name, labels in case.output.items() if "labels" in name for label in labels]
    assert len(set(said)) == 2, "verdicts that do not differ would compare nothing"


def test_the_systems_without_a_file_of_their_own_share_one() -> None:
    """Both RLHFlow PRMs run one file of the kit. The paper's figures of Math-PSA and Qwen's PRM800K are R-PRM's."""
    assert SYSTEMS["rlhflow-deepseek"].methods == SYSTEMS["rlhflow-mistral"].methods
    assert set(SYSTEMS) == {*PLACES, "rlhflow-deepseek", "qwen-prm800k", "math-psa"}
    for name in ("math-psa", "qwen-prm800k"):
        assert SYSTEMS[name].conventions("prmbench") == ("authors",)
