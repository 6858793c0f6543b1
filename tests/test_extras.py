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


def installed() -> dict[str, metadata.Distribution]:
    """The packages that the extra installs, by name."""
    waiting, found = [canonical(wanted.name) for wanted in requirements("requirements-score.in")], {}
    while waiting:
        name = waiting.pop()
        if name in found:
            continue
        try:
            found[name] = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            continue  # needed on another platform
        needed = map(Requirement, found[name].requires or ())
        waiting += [canonical(one.name) for one in needed if one.marker is None or one.marker.evaluate({"extra": ""})]
    return found


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with links to the packages that the extra installs."""
    folder = tmp_path_factory.mktemp("packages")
    for found in installed().values():
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


IMPORT = """
import time
import torch
import transformers.modeling_utils
from transformers import AutoModelForCausalLM, PreTrainedModel, PreTrainedTokenizerFast
start = time.process_time()
from pathfinder import PRM
print(time.process_time() - start)
"""


@pytest.mark.benchmarks
def test_the_size_of_the_extra_and_the_time_of_its_import() -> None:
    """Without PyTorch, whose size depends on its build, and beyond the imports of PyTorch and transformers."""
    paths = {name: [Path(str(one.locate_file(file))) for file in one.files or ()] for name, one in installed().items()}
    sizes = {name: sum(path.stat().st_size for path in found if path.is_file()) for name, found in paths.items()}
    torch = {name: size for name, size in sizes.items() if re.fullmatch(r"torch|triton|nvidia-.*", name)}
    rest = sum(sizes.values()) - sum(torch.values())
    seconds = float(subprocess.run([sys.executable, "-c", IMPORT], cwd=ROOT, capture_output=True, check=True).stdout)
    print(f"\n{len(sizes) - len(torch)} packages: {rest / 1e6:.0f} MB, with PyTorch {sum(sizes.values()) / 1e6:.0f} MB")
    print(f"from pathfinder import PRM: {seconds:.2f} s of processor time beyond PyTorch and transformers")
    assert rest < 1.2e9
    assert seconds < 1
