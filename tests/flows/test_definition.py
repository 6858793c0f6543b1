"""The deployments of a folder, as they are derived from prefect.yaml: no server is needed."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from flows.local.storage import REMOTE
from flows.team.deployment.definition import NIGHTLY, adjusted, clone_id, pool_name
from ground.io import DataError
from ground.remote import ENDPOINT, KINDS, Kind

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv(REMOTE, raising=False)
    monkeypatch.delenv(ENDPOINT, raising=False)
    shutil.copyfile(ROOT / "prefect.yaml", tmp_path / "prefect.yaml")
    return tmp_path


def nightly(folder: Path, present: dict[str, dict[str, str]] | None = None) -> dict[str, object]:
    found = adjusted(folder, present or {})["deployments"]
    return next(item for item in found if item["name"] == f"{NIGHTLY}-{clone_id(folder)}")


def variables(deployment: dict[str, object]) -> dict[str, str]:
    pool = deployment["work_pool"]
    assert isinstance(pool, dict)
    return dict(pool["job_variables"]["env"])


def test_a_remote_is_kept_by_a_later_up_from_another_shell(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(REMOTE, "s3://team/runs")
    first = variables(nightly(folder))
    assert first[REMOTE] == "s3://team/runs"
    monkeypatch.delenv(REMOTE)
    kept = {f"{NIGHTLY}-{clone_id(folder)}": first}
    assert variables(nightly(folder, kept))[REMOTE] == "s3://team/runs"


def test_a_password_in_an_address_does_not_reach_the_server(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(REMOTE, "s3://AKIA:secret@team/runs")
    with pytest.raises(DataError, match=r"^s3://team/runs: an address must not name a password"):
        adjusted(folder, {})


def test_two_clones_have_other_names_and_pools(folder: Path) -> None:
    other = folder / "other" / folder.name
    other.mkdir(parents=True)
    shutil.copyfile(folder / "prefect.yaml", other / "prefect.yaml")
    assert pool_name(folder) != pool_name(other)
    names = [{item["name"] for item in adjusted(root, {})["deployments"]} for root in (folder, other)]
    assert not names[0] & names[1]


def test_the_schedule_of_the_file_is_only_for_a_new_deployment(folder: Path) -> None:
    assert nightly(folder)["schedules"]
    assert "schedules" not in nightly(folder, {f"{NIGHTLY}-{clone_id(folder)}": {}})


def test_a_deployment_that_is_new_takes_the_remote_of_the_others(folder: Path) -> None:
    kept = {f"{NIGHTLY}-{clone_id(folder)}": {REMOTE: "s3://team/runs"}}
    found = adjusted(folder, kept)["deployments"]
    assert len(found) > 1
    assert {variables(item)[REMOTE] for item in found} == {"s3://team/runs"}


def test_runs_get_the_server_of_every_kind_of_remote(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(KINDS, "gs", Kind("PATHFINDER_GS_ENDPOINT", "https://storage.googleapis.com"))
    monkeypatch.setenv(REMOTE, "gs://team/runs")
    monkeypatch.setenv("PATHFINDER_GS_ENDPOINT", "http://own:9000")
    assert variables(nightly(folder))["PATHFINDER_GS_ENDPOINT"] == "http://own:9000"
