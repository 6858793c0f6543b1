"""The content of the asset events; test_reproduce.py tests that they reach a server."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from evidence.dvc.history import MAIN_LOCK, read_stages
from evidence.record.reading import read_records
from flows.graph import load_graph
from flows.team.pools.assets import Assets, key_of
from ground.hashing import digest_path
from tests.support.miniature import miniature
from tests.support.scratch import once


@pytest.mark.parametrize("path, key", [("a/b-c_1@2.txt", "a/b-c_1@2.txt"), ("ä b?[1]|%", "__b__1___")])
def test_keys_have_only_characters_that_prefect_allows(path: str, key: str) -> None:
    from prefect.assets import Asset

    assert key_of(path) == f"dvc://pathfinder-prm/{key}" == Asset(key=key_of(path)).key


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return once(tmp_path_factory, "miniature", miniature)


@pytest.fixture
def project(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "project"))


@pytest.fixture
def assets(project: Path) -> Assets:
    return Assets(project, load_graph(project), "s3://bucket/prefix/")


def test_a_context_names_digests_objects_upstream_and_the_record(assets: Assets, project: Path) -> None:
    locked = read_stages(project / MAIN_LOCK, MAIN_LOCK)
    context = assets.context("train@full", locked, "restored")
    made = {asset.key: asset for asset in context.downstream_assets}
    model = "dvc://pathfinder-prm/models/full"
    assert made.keys() == {model, "dvc://pathfinder-prm/metrics/train/full.json"}
    about = context.materialization_metadata[model]
    md5 = digest_path(project / "models/full").md5
    assert (about["md5"], about["state"]) == (md5, "restored")
    assert about["object"] == f"s3://bucket/prefix/files/md5/{md5[:2]}/{md5[2:]}"
    assert about["record"] == read_records(project, "train@full")[0].digest
    assert about["inputs"] == {"artifacts/raw/corpus": digest_path(project / "artifacts/raw/corpus").md5}
    (upstream,) = context.direct_asset_dependencies  # the whole out of which the stage reads a part
    assert upstream.key == "dvc://pathfinder-prm/artifacts/raw"
    assert upstream.properties is not None
    assert str(upstream.properties.url).endswith(digest_path(project / "artifacts/raw").md5[2:])


def test_without_a_record_of_these_digests_none_is_named(assets: Assets, project: Path) -> None:
    locked = read_stages(project / MAIN_LOCK, MAIN_LOCK)
    shutil.rmtree(project / ".pathfinder/lineage/train@plain")
    about = assets.context("train@plain", locked, "ran").materialization_metadata
    assert all("record" not in each for each in about.values())


def test_a_missing_lock_fails_no_stage(assets: Assets, project: Path) -> None:
    (project / MAIN_LOCK).unlink()
    assets.emit(["download"], "ran")
