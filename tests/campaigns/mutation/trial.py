"""Try the mutants of one module in a copy of the tree, with the tests that own the module.

mutmut writes every mutant of a module into one file. One process then collects the tests and forks for each mutant.
Each verdict is on disk at once, so an interrupted run resumes. In a tree that did not change, no mutant is tried twice.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from ground.io import digest_of, sha256_file
from ground.progress import Progress
from tests.campaigns.mutation.verdicts import Mutants
from tests.conftest import ROOT
from tests.support.isolated import layered

LOCK = ROOT / "infra/requirements-mutation.lock"
WORK = ROOT / ".pathfinder/mutation"
"""One copy of the tree per module."""
_LOOK_S = 2.0
_CONFIG = """
[tool.mutmut]
source_paths = ["ground", "pathfinder", "stages", "evidence"]
do_not_mutate_patterns = ['raise \\w+']
"""
_PYTEST = [
    "-q",
    "-p",
    "tests.campaigns.mutation.forks",
    "-p",
    "no:cacheprovider",
    "-o",
    "tmp_path_retention_policy=none",
]
_PYTEST += ["-m", "not benchmarks and not campaign"]


def folder_of(module: str) -> Path:
    """The folder in which a module is mutated."""
    return WORK / module.removesuffix(".py").replace("/", ".")


def try_mutants(module: str, tests: Sequence[str], label: str) -> int:
    """Try the mutants of ``module`` that have no verdict yet; returns the exit status, 0 if all were tried.

    ``label`` is the beginning of the lines that show the progress.
    """
    folder, names = folder_of(module), _files()
    tree = _digest(names)
    before = Mutants.read(folder)
    if before is not None and before.tree == tree and before.decided == len(before.verdicts):
        return 0
    _copy_tree(folder, names)
    (folder / "pyproject.toml").write_text((ROOT / "pyproject.toml").read_text(encoding="utf-8") + _CONFIG, "utf-8")
    with (folder / "mutation.log").open("w") as log, tempfile.TemporaryDirectory() as own:
        # A folder of its own, because pytest removes the folders of older sessions while other sessions start.
        for command in (
            ["python", "-m", "tests.campaigns.mutation.mutants", module, str(WORK / "types"), tree],
            ["python", "-m", "pytest", *_PYTEST, f"--basetemp={own}/tests", *tests],
        ):
            with subprocess.Popen(
                layered(LOCK, command), cwd=folder, env=_environment(), stdout=log, stderr=log
            ) as process:
                if command[2] == "pytest":
                    _show(process, folder, label)
            if process.returncode:
                return process.returncode
    return 0


def _show(process: subprocess.Popen[bytes], folder: Path, label: str) -> None:
    """Show how many mutants have a verdict until the process ends."""
    mutants = Mutants.read(folder)
    assert mutants is not None
    with Progress(label, len(mutants.verdicts), "mutants") as progress:
        progress.resume(mutants.decided)
        while process.poll() is None:
            time.sleep(_LOOK_S)
            if mutants := Mutants.read(folder):
                progress.advance(mutants.decided - progress.done)


def _files() -> list[str]:
    """The files of the working tree and its data."""
    listed = subprocess.run(
        ["git", "-C", str(ROOT), "ls-files", "-z", "-co", "--exclude-standard"],
        capture_output=True,
        text=True,
        check=True,
    )
    names = [name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()]
    return names + [str(path.relative_to(ROOT)) for path in (ROOT / "data").rglob("*") if path.is_file()]


def _digest(names: Sequence[str]) -> str:
    """One digest of the names and contents of files."""
    return digest_of({name: sha256_file(ROOT / name) for name in names})


def _copy_tree(folder: Path, names: Sequence[str]) -> None:
    """Bring the folder to the state of the working tree; files that did not change keep their time."""
    for name in names:
        source, target = ROOT / name, folder / name
        if not target.exists() or target.read_bytes() != source.read_bytes():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target)


def _environment() -> dict[str, str]:
    own = {"OMP_NUM_THREADS": "1", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONHASHSEED": "0"}
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return os.environ | own | {"PATH": path, "TOKENIZERS_PARALLELISM": "false"}
