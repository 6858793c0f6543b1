"""The pretraining command: it learns, it repeats, and it goes on where it was ended."""

from __future__ import annotations

import contextlib
import importlib
import random
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import yaml
from hypothesis import given
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerFast, Qwen2ForCausalLM

from flows import profiles
from pathfinder.core.io import DataError, read_json, read_jsonl, sha256_file
from pathfinder.core.params import load_params
from pathfinder.core.runs import parse_runs
from pathfinder.lineage.check import check
from pathfinder.lineage.graph import up
from pathfinder.provenance.pipeline import PRETRAINING, read_pipeline
from pathfinder.world import pretrain, tiny
from pathfinder.world.lessons import POLICY_HABITS, Lesson, Scribe, arithmetic_drill
from pathfinder.world.pretraining import Plan, fit, orthogonalise, rate_share
from pathfinder.world.problem_sets import WorldConfig
from pathfinder.world.recipes import RECIPES, load_recipe
from pathfinder.world.steps import write_solution
from pathfinder.world.story import WORLDS, assess, sample_problem

PLAN = Plan(steps=12, tokens=512, rate=0.003)


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerFast:
    return tiny.build_tokenizer()


def _model(tokenizer: PreTrainedTokenizerFast) -> Qwen2ForCausalLM:
    return tiny.build_model(tokenizer, hidden=32, layers=1, heads=2, feed=64, seed=1)


def _train(
    tokenizer: PreTrainedTokenizerFast, checkpoint: Path, steps_before_the_end: int | None = None
) -> tuple[Qwen2ForCausalLM, list[float]]:
    scribe, losses, model = Scribe(tokenizer), list[float](), _model(tokenizer)

    def lessons(block: int) -> Iterator[Lesson]:
        if steps_before_the_end is not None and block * 4 >= steps_before_the_end:
            raise KeyboardInterrupt
        rng = random.Random(f"test/{block}")
        while True:
            yield arithmetic_drill(scribe, rng)

    fit(model, lessons, PLAN, checkpoint, lambda _, loss: losses.append(loss), every=4)
    return model, losses


def test_an_ended_run_comes_to_the_same_weights(tokenizer: PreTrainedTokenizerFast, tmp_path: Path) -> None:
    whole, _ = _train(tokenizer, tmp_path / "whole.safetensors")
    with pytest.raises(KeyboardInterrupt):
        _train(tokenizer, tmp_path / "ended.safetensors", steps_before_the_end=8)
    resumed, _ = _train(tokenizer, tmp_path / "ended.safetensors")
    fresh = _model(tokenizer)
    for name, tensor in whole.state_dict().items():
        assert torch.equal(tensor, resumed.state_dict()[name]), name
    assert not torch.equal(whole.model.embed_tokens.weight, fresh.model.embed_tokens.weight)


def test_updates_are_orthogonalised() -> None:
    torch.manual_seed(0)
    for shape in ((3, 24, 64), (2, 64, 24)):
        singular = torch.linalg.svdvals(orthogonalise(torch.randn(shape)))
        assert singular.min() > 0.5 and singular.max() < 1.5  # noqa: PT018


def test_the_rate_warms_up_and_decays() -> None:
    assert [rate_share(step, 1000) for step in (50, 100, 600, 800, 1000)] == [0.5, 1.0, 1.0, 0.5, 0.0]


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


@pytest.fixture(scope="module")
def made(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The pretraining pipeline of the project with a recipe of a few steps: each command of its dvc.yaml, run here
    one after another (a process each would import torch four times), and what they made entered into its lock."""
    project = tmp_path_factory.mktemp("pretraining")
    for folder in ("pathfinder", "infra/locks"):
        shutil.copytree(root / folder, project / folder, ignore=shutil.ignore_patterns("__pycache__"))
    (project / "infra/pretraining").mkdir(parents=True)
    shutil.copy(root / PRETRAINING, project / PRETRAINING)
    (project / "infra/pretraining/params.yaml").write_text(TINY)
    (project / "dvc.yaml").write_text("stages: {}\n")
    subprocess.run([sys.executable, "-m", "dvc", "init", "-q", "--no-scm"], cwd=project, check=True)
    stages = [stage for stage in read_pipeline(project, PRETRAINING).values() if stage.name.endswith("@quickstart")]
    assert [stage.name.partition("@")[0] for stage in stages] == ["base", "judge", "corpus", "measure"]
    with contextlib.chdir(project):
        for stage in stages:
            _, _, module, *words = stage.cmd.split()
            importlib.import_module(module).main(words)
    names = [f"{PRETRAINING.as_posix()}:{stage.name}" for stage in stages]
    subprocess.run([sys.executable, "-m", "dvc", "commit", "-q", "-f", *names], cwd=project, check=True)
    return project


def test_the_pipeline_makes_and_measures_all_that_is_shipped(made: Path) -> None:
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


def test_lineage_goes_from_a_made_model_to_the_seed(made: Path) -> None:
    (made / "dvc.lock").write_text("schema: '2.0'\nstages: {}\n")
    tree = up("artifacts/pretraining/quickstart/prm800k", made)
    for text in ("corpus@quickstart  $", "judge@quickstart  $", "base@quickstart  $", "levels.quickstart.seed: 3"):
        assert text in tree
    (made / "params.yaml").write_text("{}\n")
    assert [finding for finding in check(None, made) if finding.level == "error"] == []


def test_the_same_recipe_gives_the_same_model_and_goes_on_from_its_checkpoints(
    made: Path, tokenizer: PreTrainedTokenizerFast, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = load_recipe("quickstart", made / "infra/pretraining/params.yaml")
    monkeypatch.chdir(tmp_path)
    weights = Path("artifacts/pretraining/quickstart/models/base/model.safetensors")
    pretrain.train_base(recipe, tokenizer, tmp_path / "again")
    assert sha256_file(made / weights) == sha256_file(tmp_path / "again/model.safetensors")
    monkeypatch.setattr(pretrain, "base_lessons", lambda *_: pytest.fail)  # nothing is left to learn
    pretrain.train_base(recipe, tokenizer, tmp_path / "resumed")
    assert sha256_file(made / weights) == sha256_file(tmp_path / "resumed/model.safetensors")
    longer = recipe.plans.model_copy(update={"refined": recipe.plans.base})
    for other, phases in (({"seed": 4}, ("base", "refined", "judge")), ({"plans": longer}, ("refined", "words"))):
        changed = recipe.model_copy(update=other)
        names = ("base", "refined", "words", "judge")
        differ = {n for n in names if pretrain.checkpoint_of(n, recipe) != pretrain.checkpoint_of(n, changed)}
        assert differ >= set(phases)
        assert ("base" in differ) is ("base" in phases)


def test_every_recipe_of_the_project_is_valid(root: Path) -> None:
    content = yaml.safe_load((root / RECIPES).read_text())
    stages = yaml.safe_load((root / "infra/pretraining/dvc.yaml").read_text())["stages"]
    assert set(content["levels"]) == {"quickstart", "replica", "replica-small"}
    for stage in stages.values():
        assert stage["matrix"]["level"] == list(content["levels"])
    for level in content["levels"]:
        recipe = load_recipe(level, root / RECIPES)
        scale = next(iter(recipe.levels.values())).scale
        assert scale.written + scale.amounts <= 99 + 9
    assert load_recipe("quickstart", root / RECIPES).config == WorldConfig()
    assert set(read_pipeline(root)) & set(read_pipeline(root, PRETRAINING)) == set()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("    seed: 3\n", "levels.quickstart.seed: Field required"),
        ("hidden: 32", "levels.quickstart.shape: Value error, hidden must be"),
        ("steps: 3", "levels.quickstart.plans.base.steps"),
        ("mistral: 4", "corpus.mistrall: 4"),
        ("  quickstart:", "no level 'quickstart'; there are slowstart"),
    ],
)
def test_a_wrong_recipe_is_named(tmp_path: Path, change: str, message: str) -> None:
    wrong = {"hidden: 32": "hidden: 33", "steps: 3": "steps: 0", "mistral: 4": "mistrall: 4"}
    wrong |= {"  quickstart:": "  slowstart:"}
    path = tmp_path / "params.yaml"
    path.write_text(TINY.replace(change, wrong.get(change, ""), 1))
    with pytest.raises(DataError, match=re.escape(message)):
        load_recipe("quickstart", path)


def test_an_unknown_level_and_a_missing_gpu_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / RECIPES
    path.parent.mkdir(parents=True)
    path.write_text(TINY.replace("device: cpu", "device: cuda"))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError, match="no level 'slow'; there are quickstart"):
        pretrain.main(["base", "slow"])
    if not torch.cuda.is_available():
        with pytest.raises(DataError, match="trains on a GPU and none is here"):
            pretrain.main(["base", "quickstart"])


@given(seed=st.integers(0, 2**32), name=st.sampled_from(sorted(WORLDS["rich"])))
def test_the_rich_worlds_stories_stay_within_its_numbers(seed: int, name: str) -> None:
    rng, level = random.Random(seed), WORLDS["rich"][name]
    problem = sample_problem(rng, level)
    assert level.events[0] <= len(problem.events) <= level.events[1]
    assert all(0 <= value <= level.largest for value in problem.values)
    for written in write_solution(problem, rng, POLICY_HABITS):
        assert written.verdict.state.value <= level.scale.written
        again = assess(problem, written.before, written.text)
        assert again == written.verdict


def test_the_replica_reads_what_the_pipeline_makes(root: Path, tmp_path: Path) -> None:
    """With its profile the download waits for the level's stages, and the shipped world for none."""
    shutil.copytree(root / "infra/profiles", tmp_path / "infra/profiles")
    shutil.copytree(root / "infra/pretraining", tmp_path / "infra/pretraining")
    for name in ("dvc.yaml", "data.dvc"):
        shutil.copy(root / name, tmp_path / name)
    subprocess.run([sys.executable, "-m", "dvc", "init", "-q", "--no-scm"], cwd=tmp_path, check=True)
    for profile, wanted in (("replica", True), ("quickstart", False)):
        profiles.write(tmp_path, profile, force=True)
        done = subprocess.run(
            [sys.executable, "-m", "dvc", "dag", "--dot", "download"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=True,
        )
        edge = re.search(r'"infra/pretraining/dvc.yaml:corpus@replica" -> "download"', done.stdout)
        assert bool(edge) is wanted
        assert ("data.dvc" in done.stdout) is not wanted
        assert "replica-small" not in done.stdout
        names = {
            source.location.rpartition("/models")[0]
            for source in load_params(tmp_path / "params.yaml").download.sources
        }
        assert ("artifacts/pretraining/replica" in names) is wanted
    runs = yaml.safe_load(profiles.render(tmp_path, "replica"))["runs"]
    assert {run.variant for run in parse_runs(runs)} == {"full", "no_error_categories", "no_subtasks", "autoregressive"}
    assert {run.seed for run in parse_runs(runs)} == {1, 2, 3, 4, 5}
