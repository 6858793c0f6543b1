"""The wheel holds the four packages of the library whole, and they import nothing that it lacks."""

from __future__ import annotations

import ast
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

PACKAGES = ("ground", "pathfinder", "evidence", "extras")
LEFT_OUT = ("stages", "flows", "infra", "world")
"""The pipeline's own rooms, which need its folder."""


@pytest.fixture(scope="module")
def wheel(root: Path, tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """A wheel built from a copy of the sources."""
    copy = tmp_path_factory.mktemp("wheel")
    for folder in (*PACKAGES, *LEFT_OUT):
        shutil.copytree(root / folder, copy / folder, ignore=shutil.ignore_patterns("__pycache__"))
    for file in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copyfile(root / file, copy / file)
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
    assert sorted(found.get_all("Provides-Extra", [])) == [
        *("bench", "evidence", "pipeline", "score", "serve", "stamp", "train")
    ]
    wanted: dict[str, set[str]] = {}
    for text in found.get_all("Requires-Dist", []):
        one = Requirement(text)
        extra = str(one.marker).split('"')[1] if one.marker else ""
        one.marker = None
        wanted.setdefault(extra, set()).add(str(one))
    files = {"": [CORE], "pipeline": ["requirements.in"]}
    files |= {extra: [f"requirements-{extra}.in"] for extra in ("bench", "evidence", "serve", "stamp", "train")}
    files["score"] = [*files["bench"], *files["serve"]]
    assert wanted == {extra: {str(one) for file in of for one in requirements(file)} for extra, of in files.items()}


def test_the_wheel_holds_every_file_of_its_packages(names: list[str], root: Path) -> None:
    wanted = {
        path.relative_to(root).as_posix()
        for package in PACKAGES
        for path in (root / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    wanted = {name for name in wanted if not name.startswith("extras/experiment/")} - {
        "evidence/README.md",
        "extras/why/README.md",
    }
    assert len(wanted) > 300
    assert {name for name in names if ".dist-info/" not in name} == wanted


def test_the_wheel_imports_only_what_it_holds(wheel: zipfile.ZipFile, names: list[str]) -> None:
    for name in names:
        if not name.endswith(".py"):
            continue
        for node in ast.walk(ast.parse(wheel.read(name))):
            modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            modules += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            lacking = {module for module in modules if module.partition(".")[0] in LEFT_OUT}
            assert (name, lacking) in [(name, set()), ("extras/records/trace.py", {"world.truth"})]
