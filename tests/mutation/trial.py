"""Try the mutants of one module in a copy of the tree, with the tests that own the module.

mutmut writes every mutant of a module into one file. One process then collects the tests and forks for each mutant.
Each verdict is on disk at once, so an interrupted run resumes.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.conftest import ROOT
from tests.support.isolated import layered

LOCK = ROOT / "infra/requirements-mutation.lock"
WORK = ROOT / ".pathfinder/mutation"
"""One copy of the tree per module."""
_CONFIG = """
[tool.mutmut]
source_paths = ["pathfinder", "stages"]
do_not_mutate_patterns = ['raise \\w+']
"""
_PYTEST = ["-q", "-p", "tests.mutation.forks", "-p", "no:cacheprovider", "-o", "tmp_path_retention_policy=none"]
_PYTEST += ["-m", "not benchmarks and not campaign"]


def folder_of(module: str) -> Path:
    """The folder in which a module is mutated."""
    return WORK / module.removesuffix(".py").replace("/", ".")


def try_mutants(module: str, tests: Sequence[str]) -> int:
    """Try the mutants of ``module`` that no test has killed yet; returns the exit status, 0 if all were tried."""
    folder = folder_of(module)
    _copy_tree(folder)
    (folder / "pyproject.toml").write_text((ROOT / "pyproject.toml").read_text(encoding="utf-8") + _CONFIG, "utf-8")
    with (folder / "mutation.log").open("w") as log, tempfile.TemporaryDirectory() as own:
        # A folder of its own, because pytest removes the folders of older sessions while other sessions start.
        for command in (
            ["python", "-m", "tests.mutation.mutants", module, str(WORK / "types")],
            ["python", "-m", "pytest", *_PYTEST, f"--basetemp={own}/tests", *tests],
        ):
            done = subprocess.run(
                layered(LOCK, command), cwd=folder, env=_environment(), stdout=log, stderr=log, check=False
            )
            if done.returncode:
                return done.returncode
    return 0


def _copy_tree(folder: Path) -> None:
    """Bring the folder to the state of the working tree; files that did not change keep their time."""
    listed = subprocess.run(
        ["git", "-C", str(ROOT), "ls-files", "-z", "-co", "--exclude-standard"],
        capture_output=True,
        text=True,
        check=True,
    )
    names = [name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()]
    names += [str(path.relative_to(ROOT)) for path in (ROOT / "data").rglob("*") if path.is_file()]
    for name in names:
        source, target = ROOT / name, folder / name
        if not target.exists() or target.read_bytes() != source.read_bytes():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target)


def _environment() -> dict[str, str]:
    own = {"OMP_NUM_THREADS": "1", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONHASHSEED": "0"}
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return os.environ | own | {"PATH": path, "TOKENIZERS_PARALLELISM": "false"}
