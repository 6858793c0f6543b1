"""The wheel holds the whole library and nothing else at the top level of anyone's site-packages."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from email import message_from_bytes
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from tests.test_extras import CORE, requirements


@pytest.fixture(scope="module")
def wheel(root: Path, tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """A wheel built from a copy of the sources."""
    copy = tmp_path_factory.mktemp("wheel")
    for folder in ("pathfinder", "stages", "flows"):
        shutil.copytree(root / folder, copy / folder, ignore=shutil.ignore_patterns("__pycache__"))
    (copy / "infra").mkdir()
    for file in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copyfile(root / file, copy / file)
    for path in (root / "infra").glob("requirements*.in"):
        shutil.copyfile(path, copy / "infra" / path.name)
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", "dist", "."]
    subprocess.run(command, cwd=copy, check=True)
    (built,) = (copy / "dist").glob("*.whl")
    return zipfile.ZipFile(built)


@pytest.fixture(scope="module")
def names(wheel: zipfile.ZipFile) -> list[str]:
    return wheel.namelist()


def test_the_metadata_has_the_limits_of_the_requirement_files(wheel: zipfile.ZipFile, names: list[str]) -> None:
    (file,) = (name for name in names if name.endswith(".dist-info/METADATA"))
    found = message_from_bytes(wheel.read(file))
    assert all(
        version in SpecifierSet(found["Requires-Python"]) for version in ("3.11.0", "3.12.1", "3.13.0", "3.14.0")
    )
    assert sorted(found.get_all("Provides-Extra", [])) == ["bench", "evidence", "pipeline", "score", "serve", "train"]
    wanted: dict[str, set[str]] = {}
    for text in found.get_all("Requires-Dist", []):
        one = Requirement(text)
        extra = str(one.marker).split('"')[1] if one.marker else ""
        one.marker = None
        wanted.setdefault(extra, set()).add(str(one))
    files = {"": [CORE], "pipeline": ["requirements.in"]}
    files |= {extra: [f"requirements-{extra}.in"] for extra in ("bench", "evidence", "serve", "train")}
    files["score"] = [*files["bench"], *files["serve"]]
    assert wanted == {extra: {str(one) for file in of for one in requirements(file)} for extra, of in files.items()}


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
