"""The description of a run's environment: JSON, with the commit and the files that differ from it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pathfinder.provenance.environment import PACKAGES, VARIABLES, describe_commit, describe_environment


def test_the_environment_is_json_with_every_package_and_variable() -> None:
    found = describe_environment()
    assert json.loads(json.dumps(found)) == found
    assert set(found["packages"]) == set(PACKAGES)
    assert found["packages"]["polars"]
    assert set(found["variables"]) == set(VARIABLES)


def test_changed_and_untracked_paths_are_listed(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project)
    paths = ["stages", "pathfinder/mixing", "params.yaml"]
    clean = describe_commit(paths)
    assert (len(clean["commit"]), clean["dirty"], clean["changed"]) == (40, False, [])
    (project / "pathfinder/mixing/new.py").touch()
    (project / "params.yaml").write_text("train: {}\n")
    (project / "dvc.yaml").write_text("outside the given paths")
    assert describe_commit(paths)["changed"] == ["params.yaml", "pathfinder/mixing/new.py"]


def test_outside_a_repository_nothing_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert describe_commit(["."]) == {"commit": None, "dirty": None, "changed": None}
