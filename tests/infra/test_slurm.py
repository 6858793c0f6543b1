"""Slurm jobs ask for what the profile needs on the machine that its head names."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from flows.local.graph import load_graph
from ground.io import DataError
from infra.slurm.__main__ import commands
from infra.slurm.sizes import RUN, sizes
from pathfinder.models.cards import GIB, gpus
from pathfinder.models.footprint import verdict
from pathfinder.planning import profiles
from pathfinder.planning.gpu_plan import Plan
from tests.planning.test_profiles import GPU_PROFILES, PROFILES

Activate = Callable[[str], Path]


@pytest.fixture
def activate(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Activate:
    """A folder of the project with a profile."""
    for path in ("infra/profiles", "infra/accelerate"):
        shutil.copytree(root / path, tmp_path / path)
    for path in ("infra/resources.yaml", "dvc.yaml"):
        shutil.copy(root / path, tmp_path / path)
    (tmp_path / "data").symlink_to(root / "data")
    monkeypatch.chdir(tmp_path)

    def project(name: str) -> Path:
        (tmp_path / "params.yaml").write_text(profiles.render(root, name))
        return tmp_path

    return project


@pytest.mark.parametrize("name", PROFILES)
def test_every_job_of_every_profile_has_what_the_plan_asks_for(
    root: Path, activate: Activate, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = activate(name)
    monkeypatch.setattr("infra.slurm.sizes.load_graph", cache(load_graph))  # most of the time is in reading it again
    params = profiles.load(root, name)
    if name.startswith("replica"):  # the sizes of its models are unknown until they are made
        assert sizes(folder, "build").gpus == 0
        with pytest.raises(DataError, match="its size is unknown until it is fetched"):
            sizes(folder, RUN)
        return
    largest = 0
    for stage, job in {job.partition("@")[0]: job for job in load_graph(folder).select(())}.items():
        found = sizes(folder, job)
        largest = max(largest, found.gpus)
        if name in GPU_PROFILES:
            plan = Plan(params, profiles.machine_of(folder, name))
            need = plan.verdicts.get(stage)
            assert (found.gpus > 0) == (need is not None), job
            if need is not None:
                own = verdict(stage, params, gpus(plan.device.total / GIB, found.gpus), plan.shape_of)
                assert own is not None
                assert own.fits, f"{job}: {own.remedy}"
        assert found.seconds > 0
        assert found.memory_gib * GIB > Plan(params, gpus(80, 8)).main_memory_of([stage])
    whole = sizes(folder, RUN)
    assert whole.gpus == largest
    assert (largest > 0) == (name in GPU_PROFILES)
    assert whole.nodes == (2 if name == "paper-nodes" else 1)


def test_the_judge_gets_the_cards_over_which_it_is_divided(activate: Activate) -> None:
    array, merge = commands(activate("paper"), "label", 8)
    assert {"--gpus-per-node=8", "--nodes=1", "--array=1-8", "--time=7-00:00:00"} <= set(array)
    assert array[-2:] == ["infra/slurm/job.sbatch", "label"]
    assert "--dependency=afterok:LAST_JOB" in merge
    assert not [word for word in merge if "gpus" in word]


def test_machines_that_train_together_are_one_job(activate: Activate) -> None:
    folder = activate("paper-nodes")
    (train,) = commands(folder, "train@full")
    assert {"--nodes=2", "--gpus-per-node=8"} <= set(train)
    first, *trains, last = commands(folder, RUN)
    assert first[-2:] == [RUN, "validate_train"]
    assert [words[-1] for words in trains] == [f"train@{run}" for run in profiles.load(folder, "paper-nodes").runs]
    assert last[-1] == RUN
    assert ["--nodes=2" in words for words in (first, *trains, last)] == [False, *[True] * 7, False]
    assert all("--dependency=afterok:LAST_JOB" in words for words in (*trains, last))
    assert "--nodes=1" in commands(folder, "search@full")[0]


def test_a_wrong_job_is_refused(activate: Activate) -> None:
    folder = activate("paper")
    with pytest.raises(DataError, match=r"^train: no such job; expected run or a stage: download, "):
        sizes(folder, "train")
    with pytest.raises(DataError, match=r"^train@full: profile paper-data does not run it; write another with "):
        sizes(activate("paper-data"), "train@full")
    activate("paper")
    with pytest.raises(DataError, match=r"^sample has no parts; label, prepare, build have"):
        commands(folder, "sample", 2)
    text = (folder / "params.yaml").read_text()
    (folder / "params.yaml").write_text(re.sub("tensor_parallel: 8", "tensor_parallel: 10", text))
    with pytest.raises(DataError, match=r"^label does not fit the machine of profile paper: label\.vllm"):
        sizes(folder, "label")
    (folder / "params.yaml").write_text(text.replace("profile: paper\n", "profile: mine\n"))
    with pytest.raises(DataError, match=r"^params\.yaml: infra/profiles has no mine\.yaml to name its machine"):
        sizes(folder, "label")
