"""The extra `score` is enough to score: with its packages and theirs, and nothing else, the commands run."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.prm.test_scoring import save_prm

ROOT = Path(__file__).resolve().parent.parent
RUN = "import sys; from pathfinder.cli import main; main()"


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def requirements(file: str) -> list[Requirement]:
    lines = (ROOT / "infra" / file).read_text().splitlines()
    return [Requirement(text) for line in lines if (text := line.partition("#")[0].strip())]


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with links to the packages that the extra installs."""
    folder = tmp_path_factory.mktemp("packages")
    waiting, seen = [canonical(wanted.name) for wanted in requirements("requirements-score.in")], set[str]()
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        try:
            found = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            continue  # needed on another platform
        needed = map(Requirement, found.requires or ())
        waiting += [canonical(one.name) for one in needed if one.marker is None or one.marker.evaluate({"extra": ""})]
        for top in {file.parts[0] for file in found.files or () if file.parts[0] not in ("..", "__pycache__")}:
            link = folder / top
            if not link.exists():
                link.symlink_to(str(found.locate_file(top)))
    assert not (folder / "prefect").exists()
    assert not (folder / "polars").exists()
    return folder


@pytest.mark.parametrize("verb", ["score", "rerank"])
def test_the_extra_is_enough(packages: Path, tmp_path: Path, verb: str) -> None:
    save_prm(tmp_path / "model")
    row = {"problem": "1+1?", "steps": ["It is 2."], "solutions": ["It is 2.", "So \\boxed{3}"]}
    environment = {**os.environ, "PYTHONPATH": f"{packages}{os.pathsep}{ROOT}"}
    done = subprocess.run(
        [sys.executable, "-S", "-c", RUN, verb, "-", "--model", str(tmp_path / "model")],
        input=json.dumps(row),
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["id"] == "1"


def test_the_extra_asks_for_the_versions_of_the_whole() -> None:
    whole = {canonical(one.name): one.specifier for one in requirements("requirements.in")}
    for one in requirements("requirements-score.in"):
        assert whole[canonical(one.name)] == one.specifier, one.name
