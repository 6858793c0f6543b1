"""``make env``: the environment always ends with the build of PyTorch that was asked for.

The Makefile runs with the real pip and uv on small wheels with PyTorch's names, versions and build marks.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Callable
from pathlib import Path

import pytest

from ground.io import write_text
from tests.support import wheels

ROOT = Path(__file__).resolve().parents[2]
SITE = ".venv/lib/python3.11/site-packages"
_BACKEND = """\
import shutil
def build_editable(folder, *_):
    return shutil.copy("project-1-py3-none-any.whl", folder).rpartition("/")[2]
"""
_PROJECT = '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'

Make = Callable[..., str]


def torch(folder: Path, version: str, cuda: str | None) -> Path:
    text = f"from typing import Optional\n\n__version__ = {version!r}\ncuda: Optional[str] = {cuda!r}\nhip = None\n"
    return wheels.wheel(folder, "torch", version, {"torch/version.py": text, "torch/__init__.py": ""})


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the Makefile, small locks, and an environment that has only pip and uv."""
    folder = tmp_path_factory.mktemp("make")
    index, links = folder / "index", folder / "links"
    main, dev, core = (wheels.wheel(index, name, "1", {f"{name}.py": ""}) for name in ("polars", "pytest", "typer"))
    blas = wheels.wheel(index, "nvidia_cublas", "13", {"nvidia/cublas.py": ""})
    cuda = [main, torch(index, "2.13.0", "13.0"), blas, core]
    files = {
        "infra/torch-cpu.lock": wheels.lock([torch(links, "2.13.0+cpu", None)]),
        "infra/locks/cpu.lock": wheels.lock([main, core]),
        "infra/requirements-score.lock": wheels.lock([core]),
        "pathfinder.py": "import sys\nimport torch.version, typer\nprint(*sys.argv[1:], torch.version.__version__)\n",
        "infra/locks/cuda.lock": wheels.lock(cuda),
        "infra/requirements-dev.lock": wheels.lock([dev]),
        "infra/requirements-vllm.lock": wheels.lock([wheels.wheel(index, "vllm", "0.32.0", {"vllm.py": ""}), cuda[1]]),
        "pyproject.toml": _PROJECT,
        "backend.py": _BACKEND,
    }
    for name, text in files.items():
        write_text(folder / name, text)
    wheels.index(folder / "simple", [*index.iterdir()])
    wheels.wheel(folder, "project", "1", {"project.pth": ""})
    for name in ("Makefile", "infra/uv.lock"):
        shutil.copyfile(ROOT / name, folder / name)
    venv.create(folder / ".venv", with_pip=True)
    shutil.copy(Path(sys.prefix) / "bin/uv", folder / ".venv/bin/uv")
    for part in Path(sys.prefix, "lib/python3.11/site-packages").glob("uv-*.dist-info"):
        shutil.copytree(part, folder / SITE / part.name)
    return folder


@pytest.fixture
def make(clone: Path) -> Make:
    def run(*words: str, links: str = str(clone / "links")) -> str:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PIP_", "UV_", "MAKE"))}
        extra = {
            "PIP_CONFIG_FILE": os.devnull,
            "PIP_INDEX_URL": (clone / "simple").as_uri(),
            "PIP_FIND_LINKS": links,
            "UV_CACHE_DIR": str(clone / "cache"),
        }
        done = subprocess.run(
            ["make", *words], cwd=clone, env=kept | extra, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run


def installed(clone: Path) -> set[str]:
    """Packages and versions in the environment, without its tools."""
    names = {path.name.removesuffix(".dist-info") for path in (clone / SITE).glob("*.dist-info")}
    return {name for name in names if not name.startswith(("pip-", "setuptools-", "uv-", "project-"))}


def code(clone: Path) -> str:
    return (clone / SITE / "torch/version.py").read_text()


CPU = {"polars-1", "typer-1", "torch-2.13.0+cpu"}
CUDA = {"polars-1", "typer-1", "torch-2.13.0", "nvidia_cublas-13"}


def test_the_core_scores_before_the_rest_is_installed(clone: Path, make: Make) -> None:
    assert make("try") == "demo 2.13.0+cpu\n"
    assert installed(clone) == CPU - {"polars-1"}
    make("env")
    assert installed(clone) == CPU
    (clone / ".venv/.installed-core").unlink()
    make("try")  # with the whole environment
    assert not (clone / ".venv/.installed-core").exists()


def test_the_environment_ends_with_the_build_that_was_asked_for(clone: Path, make: Make) -> None:
    """Fails if the CUDA lock is installed over ``2.13.0+cpu``, which uv and pip take for version 2.13.0."""
    make("env")
    assert installed(clone) == CPU
    assert [*(clone / SITE / "__pycache__").glob("polars.*.pyc")], "a run has no module to compile on a full disk"
    assert "Replacing the cpu build" in make("env", "BUILD=cuda")
    assert installed(clone) == CUDA
    assert "'13.0'" in code(clone)
    make("env")  # as `make test` and `make run`, which name no build
    make(".venv/.installed-dev")
    assert installed(clone) == CUDA | {"pytest-1"}
    make("env", "BUILD=cpu")
    assert installed(clone) == CPU | {"pytest-1"}  # and none of the CUDA libraries
    assert "None" in code(clone)
    before = (clone / ".venv/.installed").stat().st_mtime_ns
    assert make("env") == ""
    assert (clone / ".venv/.installed").stat().st_mtime_ns == before


def test_another_installers_build_is_noticed(clone: Path, make: Make) -> None:
    """Fails if a stamp is trusted instead of the installed files."""
    make("env", "BUILD=cuda")
    pip = [str(clone / ".venv/bin/python"), "-m", "pip", "install", "--quiet", "--no-index"]
    subprocess.run([*pip, *map(str, (clone / "links").iterdir())], check=True)
    assert "None" in code(clone)
    make("env", "BUILD=cuda")
    assert "'13.0'" in code(clone)


@pytest.mark.campaign
def test_pip_replaces_the_build_where_uv_fails(clone: Path, make: Make) -> None:
    make("env", "BUILD=cpu")
    uv = clone / ".venv/bin/uv"
    uv.rename(clone / "uv")
    uv.write_text("#!/bin/sh\nexit 1\n")
    uv.chmod(0o755)
    try:
        make("env", "BUILD=cuda", links="")  # pip would take the CPU wheel of a folder for 2.13.0 and refuse its hash
        assert installed(clone) >= CUDA
        assert "'13.0'" in code(clone)
    finally:
        (clone / "uv").replace(uv)


@pytest.mark.campaign
def test_vllm_gets_an_environment_of_its_own(clone: Path, make: Make) -> None:
    before = installed(clone)
    make("vllm")
    site = clone / SITE.replace(".venv", ".venv-vllm")
    assert (site / "vllm-0.32.0.dist-info").is_dir()
    assert "'13.0'" in (site / "torch/version.py").read_text()
    assert installed(clone) == before


def test_an_unknown_build_is_refused(clone: Path) -> None:
    done = subprocess.run(["make", "env", "BUILD=gpu"], cwd=clone, capture_output=True, text=True, check=False)
    assert "BUILD=gpu is unknown; it is cpu or cuda" in done.stderr


@pytest.fixture
def bare(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs make in a folder without an environment, on a PATH with the tools of the system alone."""
    tools = tmp_path / "bin"
    tools.mkdir()
    for tool in ("bash", "sh", "sed", "grep", "rm", "cat", "true"):
        (tools / tool).symlink_to(str(shutil.which(tool)))
    for name in ("Makefile", "infra/uv.lock"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copyfile(ROOT / name, tmp_path / name)

    def run(**environment: str) -> subprocess.CompletedProcess[str]:
        command = [str(shutil.which("make")), ".venv/bin/python", "PYTHON=python-of-nobody"]
        kept = {"PATH": str(tools), "HOME": str(tmp_path), **environment}
        return subprocess.run(command, cwd=tmp_path, env=kept, capture_output=True, text=True, check=False)

    return run


def test_uv_brings_python_where_the_machine_has_another_one(
    bare: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    """A machine with uv whose Python 3.11 is not called python3.11; what uv downloads is a folder of the same shape."""
    (tmp_path / "bin/uv").symlink_to(Path(sys.prefix) / "bin/uv")
    known = tmp_path / "pythons/cpython-3.11-linux-x86_64-gnu/bin"
    known.mkdir(parents=True)
    (known / "python3.11").symlink_to(Path(sys.base_prefix) / "bin/python3.11")
    done = bare(PATH=f"{tmp_path / 'bin'}:{known}", UV_PYTHON_DOWNLOADS="never")
    assert done.returncode == 0, done.stderr
    version = subprocess.check_output([tmp_path / ".venv/bin/python", "--version"], text=True)
    assert version.startswith("Python 3.11.")


def test_without_python_and_uv_the_remedy_is_named(bare: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    done = bare()
    assert done.returncode != 0
    assert "Python 3.11 is needed; name it with: make PYTHON=" in done.stdout
