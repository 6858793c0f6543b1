"""The wheel holds the whole library and nothing else at the top level of anyone's site-packages."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def names(root: Path, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The files of a wheel built from a copy of the sources."""
    copy = tmp_path_factory.mktemp("wheel")
    for folder in ("pathfinder", "stages", "flows"):
        shutil.copytree(root / folder, copy / folder, ignore=shutil.ignore_patterns("__pycache__"))
    (copy / "infra").mkdir()
    for file in ("pyproject.toml", "README.md", "LICENSE", "infra/requirements.in", "infra/requirements-score.in"):
        shutil.copyfile(root / file, copy / file)
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", "dist", "."]
    subprocess.run(command, cwd=copy, check=True)
    (wheel,) = (copy / "dist").glob("*.whl")
    return zipfile.ZipFile(wheel).namelist()


def test_the_wheel_holds_every_file_of_the_package(names: list[str], root: Path) -> None:
    wanted = {
        path.relative_to(root).as_posix()
        for path in (root / "pathfinder").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert len(wanted) > 120
    assert wanted - set(names) == set()


def test_the_wheel_installs_one_top_level_package(names: list[str]) -> None:
    tops = {name.partition("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"pathfinder"}
