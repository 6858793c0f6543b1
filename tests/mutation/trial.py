"""Run mutmut on one module in a folder of its own, with the tests that own the module.

mutmut writes every mutant of a module into one file and forks a process per mutant. Its fork server has imported the
tests and has run none, so no thread of a library is lost in a fork. It keeps each verdict on disk and resumes.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import _pytest.config

from tests.conftest import ROOT
from tests.support.isolated import layered

LOCK = ROOT / "infra/requirements-mutation.lock"
WORK = ROOT / ".pathfinder/mutation"
"""One folder per module, with a copy of the tree and mutmut's folder ``mutants``."""
UNKILLED = frozenset({0, 5, 33})
"""Exit codes of mutants that no test noticed: the tests passed, or there was no test."""
_CONFIG = """
[tool.mutmut]
source_paths = ["pathfinder", "stages"]
only_mutate = [{module}]
do_not_mutate_patterns = ['raise \\w+']
type_check_command = ["mypy", "--output", "json", "--cache-dir", {cache}, "--disable-error-code", "unused-ignore",
  "--disable-error-code", "unreachable", "--disable-error-code", "no-redef", {module}]
also_copy = {others}
pytest_add_cli_args_test_selection = {tests}
pytest_add_cli_args = ["-p", "tests.mutation.order", "-p", "no:cacheprovider", "-m", "not benchmarks and not campaign"]
process_isolation = "forkserver"
forkserver_warmup = "import"
preload_modules_file = "preload.txt"
use_git_change_detection = false
on_dependency_change = "ignore"
timeout_constant = 5.0
timeout_multiplier = 4.0
"""
_PYTEST = [f"_pytest.{name}" for name in sorted(_pytest.config.builtin_plugins)]
_SOURCES = ("pathfinder", "stages", "tests")


def folder_of(module: str) -> Path:
    """The folder in which a module is mutated."""
    return WORK / _dotted(module)


def run_mutmut(module: str, tests: Sequence[str]) -> int:
    """Try the mutants of ``module`` that no test has killed yet; returns mutmut's exit status."""
    folder = folder_of(module)
    _copy_tree(folder)
    others = sorted(path.name for path in folder.iterdir() if path.name not in (*_SOURCES, ".git", "mutants"))
    config = _CONFIG.format(
        module=json.dumps(module),
        cache=json.dumps(str(WORK / "types")),
        others=json.dumps(others),
        tests=json.dumps(list(tests)),
    )
    (folder / "pyproject.toml").write_text((ROOT / "pyproject.toml").read_text(encoding="utf-8") + config, "utf-8")
    # Not by collecting: pytest escapes ids that are not ASCII once more in the second collection, and finds none.
    (folder / "preload.txt").write_text("\n".join([*_PYTEST, *map(_dotted, tests)]), encoding="utf-8")
    forget_unkilled(folder / "mutants", module)
    command = layered(LOCK, ["mutmut", "run", "--max-children", "1"])
    with (folder / "mutmut.log").open("w") as log:
        return subprocess.run(command, cwd=folder, env=_environment(), stdout=log, stderr=log, check=False).returncode


def forget_unkilled(mutants: Path, module: str) -> None:
    """Have mutmut try the mutants again that were not killed, with the tests as they are now."""
    meta = mutants / f"{module}.meta"
    (mutants / "mutmut-stats.json").unlink(missing_ok=True)  # durations, and which test calls which function
    if meta.exists():
        try:
            content = json.loads(meta.read_text(encoding="utf-8"))
        except json.JSONDecodeError:  # mutmut was killed while it wrote the file
            shutil.rmtree(mutants)
            return
        codes = content["exit_code_by_key"]
        content["exit_code_by_key"] = {key: 1 if code == 1 else None for key, code in codes.items()}
        meta.write_text(json.dumps(content), encoding="utf-8")


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


def _dotted(file: str) -> str:
    return file.removesuffix(".py").replace("/", ".")


def _environment() -> dict[str, str]:
    own = {"OMP_NUM_THREADS": "1", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONHASHSEED": "0"}
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return os.environ | own | {"PATH": path, "TOKENIZERS_PARALLELISM": "false"}
