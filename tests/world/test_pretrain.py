"""The pretraining pipeline: its commands, its lineage, and repeatable models that resume from checkpoints."""

from __future__ import annotations

import contextlib
import importlib
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import yaml
from transformers import PreTrainedTokenizerFast

from evidence.dvc.pipeline import PIPELINES, read_pipeline
from evidence.verbs.check import check
from ground.io import DataError, read_json, read_jsonl, sha256_file
from pathfinder.core.params import load_params
from pathfinder.core.runs import parse_runs
from pathfinder.planning import profiles
from tests.support.upwards import up
from tests.world.test_recipes import TINY
from world import pretrain
from world.recipes import RECIPES, load_recipe
from world.story import WORLDS


def without_git(project: Path) -> None:
    """What ``dvc init --no-scm`` writes."""
    (project / ".dvc").mkdir()
    (project / ".dvc/config").write_text("[core]\n    no_scm = True\n")


@pytest.fixture(scope="module")
def made(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project's pretraining pipeline after a run with a recipe of a few steps.

    Each command of its dvc.yaml runs in this process, because four processes would import torch four times. Then
    ``dvc commit`` writes the lock.
    """
    project = tmp_path_factory.mktemp("pretraining")
    for folder in ("ground", "pathfinder", "world", "infra/locks"):
        shutil.copytree(root / folder, project / folder, ignore=shutil.ignore_patterns("__pycache__"))
    (project / "infra/pretraining").mkdir(parents=True)
    shutil.copy(root / PIPELINES[1], project / PIPELINES[1])
    (project / "infra/pretraining/params.yaml").write_text(TINY)
    (project / "dvc.yaml").write_text("stages: {}\n")
    without_git(project)
    stages = [stage for stage in read_pipeline(project, PIPELINES[1]).values() if stage.name.endswith("@quickstart")]
    assert [stage.name.partition("@")[0] for stage in stages] == ["base", "judge", "corpus", "measure"]
    with contextlib.chdir(project), pytest.MonkeyPatch.context() as patch:
        patch.setattr("evidence.record.record.unlisted_modules", lambda _: {})  # other tests loaded modules too
        patch.setattr("world.abilities.LONGEST_SOLUTION", 16)  # after a few steps, no solution is one
        for stage in stages:
            _, _, module, *words = stage.cmd.split()
            importlib.import_module(module).main(words)
    names = [f"{PIPELINES[1].as_posix()}:{stage.name}" for stage in stages]
    subprocess.run([sys.executable, "-m", "dvc", "commit", "-q", "-f", *names], cwd=project, check=True)
    return project


def test_the_pipeline_writes_and_measures_everything_that_data_ships(made: Path) -> None:
    level = made / "artifacts/pretraining/quickstart"
    index = read_json(level / "world.json")
    found = {path.relative_to(level).as_posix() for path in level.rglob("*") if path.is_file()} - {"world.json"}
    assert set(index["files"]) == found
    assert {"models/base/model.safetensors", "models/judge/model.safetensors", "search/math.jsonl"} <= found
    problems = [row["problem"] for _, row in read_jsonl(level / "search/aime24.jsonl")]
    assert all(7 <= problem.count(")") <= 9 for problem in problems)  # omnimath's length in the rich world
    metrics = read_json(made / "infra/pretraining/metrics/quickstart.json")
    assert metrics["judge"]["cases"] == 4
    assert set(metrics["policy"]["by_level"]) == {"all", *WORLDS["rich"]}


def test_lineage_traces_a_corpus_to_the_seed(made: Path) -> None:
    (made / "dvc.lock").write_text("schema: '2.0'\nstages: {}\n")
    tree = up("artifacts/pretraining/quickstart/prm800k", made)
    for text in ("corpus@quickstart  $", "judge@quickstart  $", "base@quickstart  $", "levels.quickstart.seed: 3"):
        assert text in tree
    (made / "params.yaml").write_text("{}\n")
    assert [str(error) for error in check(None, made).errors] == [
        "error: dvc.yaml: defines no stage; restore it from git"
    ]


def test_a_recipe_gives_the_same_model_again_and_resumes_from_checkpoints(
    made: Path, tokenizer: PreTrainedTokenizerFast, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = load_recipe("quickstart", made / "infra/pretraining/params.yaml")
    monkeypatch.chdir(tmp_path)
    weights = Path("artifacts/pretraining/quickstart/models/base/model.safetensors")
    pretrain.train("base", recipe, tokenizer, tmp_path / "again")
    assert sha256_file(made / weights) == sha256_file(tmp_path / "again/base/model.safetensors")
    monkeypatch.setattr(pretrain, "base_lesson", lambda *_, **__: pytest.fail("no step should be left"))
    pretrain.train("base", recipe, tokenizer, tmp_path / "resumed")
    assert sha256_file(made / weights) == sha256_file(tmp_path / "resumed/base/model.safetensors")
    longer = recipe.plans.model_copy(update={"refined": recipe.plans.base})
    for other, phases in (({"seed": 4}, ("base", "refined", "judge")), ({"plans": longer}, ("refined", "words"))):
        changed = recipe.model_copy(update=other)
        names = ("base", "refined", "words", "judge")
        differ = {n for n in names if pretrain.checkpoint_of(n, recipe) != pretrain.checkpoint_of(n, changed)}
        assert differ >= set(phases)
        assert ("base" in differ) is ("base" in phases)


def test_an_unknown_level_and_a_missing_gpu_are_errors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / RECIPES
    path.parent.mkdir(parents=True)
    path.write_text(TINY.replace("device: cpu", "device: cuda"))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError, match="no level 'slow'; the levels are quickstart"):
        pretrain.main(["base", "slow"])
    if not torch.cuda.is_available():
        with pytest.raises(DataError, match="needs a GPU and none was found"):
            pretrain.main(["base", "quickstart"])


def test_the_replica_profile_depends_on_the_pipeline(root: Path, tmp_path: Path) -> None:
    """With a replica profile the download depends on the level's stages; with the shipped world on none."""
    wants = {"replica": True, "quickstart": False}
    for profile in wants:
        shutil.copytree(root / "infra/profiles", tmp_path / profile / "infra/profiles")
        shutil.copytree(root / "infra/pretraining", tmp_path / profile / "infra/pretraining")
        for name in ("dvc.yaml", "data.dvc"):
            shutil.copy(root / name, tmp_path / profile / name)
        without_git(tmp_path / profile)
        profiles.write(tmp_path / profile, profile, force=True)
    code = "import os, sys; from dvc.cli import main\n"
    code += "for at in sys.argv[1:]: os.chdir(at); main(['dag', '--dot', 'download'])"
    command = [sys.executable, "-c", code, *(str(tmp_path / profile) for profile in wants)]
    dags = subprocess.run(command, capture_output=True, text=True, check=True)
    graphs = dags.stdout.split("strict digraph")[1:]
    for (profile, wanted), graph in zip(wants.items(), graphs, strict=True):
        edge = re.search(r'"infra/pretraining/dvc.yaml:corpus@replica" -> "download"', graph)
        assert bool(edge) is wanted
        assert ("data.dvc" in graph) is not wanted
        assert "replica-small" not in graph
        names = {
            source.location.rpartition("/models")[0]
            for source in load_params(tmp_path / profile / "params.yaml").download.sources
        }
        assert ("artifacts/pretraining/replica" in names) is wanted
    runs = yaml.safe_load(profiles.render(root, "replica"))["runs"]
    assert {run.variant for run in parse_runs(runs)} == {"full", "no_error_categories", "no_subtasks", "autoregressive"}
    assert {run.seed for run in parse_runs(runs)} == {1, 2, 3, 4, 5}
