"""Recipes of the pretraining pipeline: the project's recipes are valid, and wrong keys are named."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from evidence.dvc.pipeline import PIPELINES, read_pipeline
from ground.io import DataError
from world.recipes import RECIPES, CorpusConfig, load_recipe
from world.story import LARGEST_NUMBER

TINY = """
levels:
  quickstart:
    world: rich
    device: cpu
    seed: 3
    shape: {hidden: 32, layers: 1, heads: 2, feed: 64}
    plans:
      base: {steps: 3, tokens: 512, rate: 0.003}
      refined: {steps: 2, tokens: 512, rate: 0.003}
      words: {steps: 2, tokens: 512, rate: 0.003}
      judge: {steps: 2, tokens: 512, rate: 0.003}
    corpus: {phase1_train: 4, phase1_test: 22, phase2_train: 6, mistral: 4, processbench: 2, prmbench: 3, search: 3}
    measure: {policy: 1, judge: 4}
"""


def test_every_recipe_of_the_project_is_valid(root: Path) -> None:
    content = yaml.safe_load((root / RECIPES).read_text())
    stages = yaml.safe_load((root / "infra/pretraining/dvc.yaml").read_text())["stages"]
    assert set(content["levels"]) == {"quickstart", "replica", "replica-small"}
    made = {name: stage.get("matrix", {}).get("level") for name, stage in stages.items()}
    assert made == {name: None if name == "ship" else list(content["levels"]) for name in stages}
    for level in content["levels"]:
        recipe = load_recipe(level, root / RECIPES)
        scale = next(iter(recipe.levels.values())).scale
        assert max(scale.starts, scale.amounts) <= scale.written <= LARGEST_NUMBER
    assert load_recipe("quickstart", root / RECIPES).corpus == CorpusConfig()
    assert set(read_pipeline(root)) & set(read_pipeline(root, PIPELINES[1])) == set()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("    seed: 3\n", "levels.quickstart.seed: Field required"),
        ("hidden: 32", "levels.quickstart.shape: Value error, hidden must be"),
        ("steps: 3", "levels.quickstart.plans.base.steps"),
        ("mistral: 4", "levels.quickstart.corpus.mistrall: Extra inputs are not permitted"),
        ("  quickstart:", "no level 'quickstart'; the levels are slowstart"),
    ],
)
def test_a_wrong_recipe_is_named(tmp_path: Path, change: str, message: str) -> None:
    wrong = {"hidden: 32": "hidden: 33", "steps: 3": "steps: 0", "mistral: 4": "mistrall: 4"}
    wrong |= {"  quickstart:": "  slowstart:"}
    path = tmp_path / "params.yaml"
    path.write_text(TINY.replace(change, wrong.get(change, ""), 1))
    with pytest.raises(DataError, match=re.escape(message)):
        load_recipe("quickstart", path)
