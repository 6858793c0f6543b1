"""The core is enough to score: with its packages and theirs, and nothing else, the commands run or name an extra."""

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

from ground.io import DataError
from ground.text import EXTRAS, extra_named
from tests.prm.test_scoring import save_prm

ROOT = Path(__file__).resolve().parent.parent
RUN = "import sys; from pathfinder.cli import main; main()"
AUDIT = "from ground.text import *\nwith errors_without_traceback(): import extras.records.trace"
FLOWS = AUDIT.replace("extras.records.trace", "flows.endings")
CORE, OWN = "requirements-score.in", ("bench", "evidence", "serve", "train")
"""The requirements of the core, and the extras that have requirements of their own; ``pipeline`` has all others."""
DISTRIBUTIONS = {
    "latex2sympy2_extended": "math-verify",
    "starlette": "fastapi",
    "botocore": "boto3",
    "ruamel": "ruamel-yaml",
}
"""The requirement that brings a module of a different name."""


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def requirements(file: str) -> list[Requirement]:
    lines = (ROOT / "infra" / file).read_text().splitlines()
    return [Requirement(text) for line in lines if (text := line.partition("#")[0].strip())]


def installed(*files: str) -> dict[str, metadata.Distribution]:
    """The packages that these files of requirements install, by name."""
    waiting, found = [canonical(wanted.name) for file in files for wanted in requirements(file)], {}
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


def linked(folder: Path, *files: str) -> Path:
    """A folder with links to the packages that these requirements install."""
    folder.mkdir(exist_ok=True)
    for found in installed(*files).values():
        for top in {file.parts[0] for file in found.files or () if file.parts[0] not in ("..", "__pycache__")}:
            link = folder / top
            if not link.exists():
                link.symlink_to(str(found.locate_file(top)))
    assert not (folder / "prefect").exists()
    return folder


@pytest.fixture(scope="module")
def core(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = linked(tmp_path_factory.mktemp("core"), CORE)
    assert not (folder / "polars").exists()
    return folder


def run(packages: Path, cwd: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run Python with these packages and the project's modules only."""
    row = {"problem": "1+1?", "steps": ["It is 2."], "solutions": ["It is 2.", "So \\boxed{3}"]}
    return subprocess.run(
        [sys.executable, "-S", *words],
        input=json.dumps(row),
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": f"{packages}{os.pathsep}{ROOT}"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_core_scores(core: Path, tmp_path: Path) -> None:
    save_prm(tmp_path / "model")
    done = run(core, tmp_path, "-c", RUN, "score", "-", "--model", "model")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["id"] == "1"


def test_the_extra_for_benchmarks_reranks(tmp_path: Path) -> None:
    save_prm(tmp_path / "model")
    packages = linked(tmp_path / "packages", CORE, "requirements-bench.in")
    done = run(packages, tmp_path, "-c", RUN, "rerank", "-", "--model", "model")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["id"] == "1"


@pytest.mark.parametrize(
    ("extra", "words"),
    [
        ("bench", "-c RUN bench DEMO"),
        ("bench", "-c RUN grade processbench x.jsonl"),
        ("bench", "-c RUN rerank - --model DEMO"),
        ("bench", "-c RUN score - --model DEMO --url http://127.0.0.1:9/v1"),
        ("serve", "-c RUN serve DEMO --port 0"),
        ("train", "-c RUN train own.jsonl --out new"),
        ("evidence", "-c AUDIT"),
        ("pipeline", "-c FLOWS"),
    ],
)
def test_a_missing_extra_is_one_line_that_names_it(core: Path, tmp_path: Path, extra: str, words: str) -> None:
    replaced = {"RUN": RUN, "AUDIT": AUDIT, "FLOWS": FLOWS, "DEMO": str(ROOT / "pathfinder/demo_model")}
    done = run(core, tmp_path, *(replaced.get(word, word) for word in words.split()))
    assert (done.returncode, done.stdout) == (1, "")
    expected = rf"error: this needs [\w.]+, which is not installed; run `pip install '\.\[{extra}\]'` in a clone\n"
    assert re.fullmatch(expected, done.stderr), done.stderr


@pytest.mark.parametrize("module", ["uvicorn.config", "peft"])
def test_a_library_call_names_the_extra_too(module: str) -> None:
    extra = "serve" if "uvicorn" in module else "train"
    with pytest.raises(DataError, match=rf"needs {module}, .*'\.\[{extra}\]'` in a clone"), extra_named():
        raise ModuleNotFoundError(f"No module named {module!r}", name=module)
    with pytest.raises(ModuleNotFoundError, match="unheard"), extra_named():
        raise ModuleNotFoundError("No module named 'unheard'", name="unheard")


def locked() -> dict[str, str]:
    """The versions of the pipeline's lock."""
    texts = [(ROOT / "infra" / file).read_text() for file in ("locks/cpu.lock", "torch-cpu.lock")]
    return dict(re.findall(r"^([a-z0-9._-]+)==([^ +;]+)", "\n".join(texts), re.MULTILINE))


@pytest.mark.parametrize("file", [CORE, *(f"requirements-{extra}.in" for extra in OWN)])
def test_the_limits_of_the_library_include_the_locked_versions(file: str) -> None:
    whole, versions = {canonical(one.name) for one in requirements("requirements.in")}, locked()
    for one in requirements(file):
        assert canonical(one.name) in whole, f"{one.name} is missing in requirements.in"
        assert versions[canonical(one.name)] in one.specifier, one
        assert ">=" in str(one.specifier), f"{one.name} has no lowest version"


def test_every_module_of_an_extra_belongs_to_its_requirements() -> None:
    files = {extra: f"requirements-{extra}.in" for extra in OWN} | {"pipeline": "requirements.in"}
    assert EXTRAS.keys() == files.keys()
    core = {canonical(one.name) for one in requirements(CORE)}
    for extra, modules in EXTRAS.items():
        names = {canonical(one.name) for one in requirements(files[extra])}
        for module in modules:
            assert canonical(DISTRIBUTIONS.get(module, module)) in names - core, module


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
def test_the_size_of_the_core_and_the_time_of_its_import() -> None:
    """Without PyTorch, whose size depends on its build, and beyond the imports of PyTorch and transformers."""
    found = installed(CORE).items()
    paths = {name: [Path(str(one.locate_file(file))) for file in one.files or ()] for name, one in found}
    sizes = {name: sum(path.stat().st_size for path in found if path.is_file()) for name, found in paths.items()}
    torch = {name: size for name, size in sizes.items() if re.fullmatch(r"torch|triton|nvidia-.*", name)}
    rest = sum(sizes.values()) - sum(torch.values())
    seconds = float(subprocess.run([sys.executable, "-c", IMPORT], cwd=ROOT, capture_output=True, check=True).stdout)
    print(f"\n{len(sizes) - len(torch)} packages: {rest / 1e6:.0f} MB, with PyTorch {sum(sizes.values()) / 1e6:.0f} MB")
    print(f"from pathfinder import PRM: {seconds:.2f} s of processor time beyond PyTorch and transformers")
    assert rest < 1.2e9
    assert seconds < 1
