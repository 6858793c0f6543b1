"""The table of stages: pools, needs, time limits and retries, and what a retry depends on."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, cast

import pytest
from prefect import Task
from prefect.client.schemas.objects import TaskRun
from prefect.states import Failed

from flows.local.dvc import DvcError
from flows.places import Retries, WorkerLost, class_of
from flows.tasks import with_retries
from flows.team.pools.table import FILE, Needs, needs, slots
from ground.io import DataError, TransientError
from tests.flows.conftest import ROOT

STAGES = ("label", "train@full", "report")


def write(root: Path, *lines: str, more: str = "") -> None:
    (root / "infra").mkdir(exist_ok=True)
    (root / "params.yaml").write_text("profile: quickstart\n")
    (root / FILE).write_text("stages:\n" + "".join(f"- {line}\n" for line in lines) + more)


def test_each_value_is_that_of_the_first_line_that_has_it(tmp_path: Path) -> None:
    assert needs(tmp_path, STAGES) == {name: Needs() for name in STAGES}, "without the file, everything runs here"
    write(
        tmp_path,
        "{stage: label, time: 1.5h, pool: judge, slots: {judges: 2}}",
        "{profile: paper, stage: '*', time: 2d}",
        "{stage: 'train@*', gpus: 8, memory: 64Gi, pool: gpu}",
        "{stage: '*', pool: here, time: 30m, retries: {transient: 1, lost: 0}}",
        more="slots: {judges: 4}\n",
    )
    found = needs(tmp_path, STAGES)
    assert (found["label"].pool, found["label"].time_s, found["label"].slots) == ("judge", 5400.0, {"judges": 2})
    assert (found["train@full"].pool, found["train@full"].time_s) == ("gpu", 1800.0)
    assert found["train@full"].job_variables == {"gpus": 8, "memory": "64Gi"}
    assert (found["report"].is_here, found["report"].job_variables) == (True, {})
    assert found["report"].retries == Retries(transient=1, lost=0, error=0)
    assert slots(tmp_path) == {"judges": 4}


def test_a_wrong_line_is_named(tmp_path: Path) -> None:
    write(tmp_path, "{stage: label, time: soon}")
    with pytest.raises(DataError, match=r"stages\.0\.time: Value error, is 'soon'; expected for example 30m"):
        needs(tmp_path, STAGES)
    write(tmp_path, "{stage: label, pools: gpu}")
    with pytest.raises(DataError, match=r"stages\.0\.pools"):
        needs(tmp_path, STAGES)
    write(tmp_path, "{stage: 'train@*', slots: {gpus: 8, any: 9}}", more="slots: {gpus: 4}\n")
    with pytest.raises(DataError, match="train@full asks for 8 of the slots gpus, and `slots` has 4; correct one"):
        needs(tmp_path, STAGES)


@pytest.mark.parametrize("word", ["{user}", "{}", "{stage.name}", "{gpus[0]}", "{gpus:x y}"])
def test_an_unknown_field_of_a_launcher_is_named(word: str) -> None:
    with pytest.raises(
        DataError, match=r"launch: gpu: .*; the fields of label are {stage}, {order}, {gpus}, {minutes}"
    ):
        Needs(pool="gpu", launch=f"srun '{word}'").command("label", "-")


def test_the_shipped_table_sends_no_stage_away_and_limits_all(tmp_path: Path) -> None:
    (tmp_path / "infra").mkdir()
    shutil.copy(ROOT / FILE, tmp_path / FILE)
    for profile in sorted((ROOT / "infra/profiles").glob("*.yaml")):
        shutil.copy(profile, tmp_path / "params.yaml")
        found = needs(tmp_path, STAGES)
        assert all(each.is_here and each.time_s for each in found.values())
        assert found["label"].retries == Retries(transient=3, lost=1, error=0)


@pytest.mark.parametrize(
    ("error", "name"),
    [
        (WorkerLost("gone"), "lost"),
        (TransientError("slow"), "transient"),
        (DvcError(["repro"], 1, "ERROR: Connection refused"), "transient"),
        (DvcError(["repro"], 1, "ERROR: no"), "error"),
        (DataError("wrong"), "error"),
    ],
)
def test_a_retry_depends_on_the_class_of_the_error(error: Exception, name: str) -> None:
    assert class_of(error) == name
    allowed = Retries(**{"transient": 0, "lost": 0, "error": 0, name: 2})
    task = with_retries(Task(write), allowed)
    condition = cast(Any, task.retry_condition_fn)
    run = TaskRun(task_key="", dynamic_key="")
    assert task.retries == 2
    assert [condition(task, run, Failed(data=error)) for _ in range(3)] == [True, True, False]


def test_each_class_of_error_has_its_own_retries() -> None:
    task = with_retries(Task(write), Retries())
    condition, run = cast(Any, task.retry_condition_fn), TaskRun(task_key="", dynamic_key="")
    errors = (TransientError("slow"), WorkerLost("gone"), TransientError("slow"), WorkerLost("gone"))
    tried = [
        condition(task, run.model_copy(update={"run_count": n}), Failed(data=error))
        for n, error in enumerate(errors, 1)
    ]
    assert (task.retries, tried) == (4, [True, True, True, False])
