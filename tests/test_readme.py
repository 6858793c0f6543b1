"""The README works: its quick commands run in a fresh copy, and everything that it names exists."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from code import InteractiveInterpreter
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.support import warm
from tests.support.verbs import whole_app

ROOT = Path(__file__).resolve().parent.parent
README, COMMANDS = ((ROOT / page).read_text(encoding="utf-8") for page in ("README.md", "docs/commands.md"))
PAGES = README + COMMANDS
BLOCKS = [line[4:] for line in PAGES.splitlines() if line.startswith("    ")]
INLINE = re.findall(r"`([^`]+)`", PAGES)
SPOKEN = "\n".join([*BLOCKS, *INLINE])


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with the files that a clone of the present state would contain."""
    folder = tmp_path_factory.mktemp("readme") / "clone"
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    names = [name for name in listed.stdout.decode().split("\0") if name and (ROOT / name).is_file()]
    assert len(names) > 60
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, folder / name)
    subprocess.run(["git", "init", "-q"], cwd=folder, check=True)
    return folder


def run(folder: Path, *words: str) -> str:
    """Run a README command there, with this environment's interpreter and the copy's code."""
    python, cli = sys.executable, "import sys; from pathfinder.cli import main; sys.exit(main())"
    if words[0] == "pathfinder":
        words = (python, "-c", cli, *words[1:])
    elif words[0] in ("python", "dvc"):
        words = (python, *(("-m", "dvc") if words[0] == "dvc" else ()), *words[1:])
    path = f"{Path(python).parent}{os.pathsep}{os.environ['PATH']}"
    environment = os.environ | {"PATH": path, "PYTHONPATH": str(folder), "NO_COLOR": "1", "COLUMNS": "200"}
    done = warm.run(words, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
    return str(done.stdout)


def invoked(*words: str) -> str:
    """The same in this process, with its code."""
    done = CliRunner().invoke(whole_app(), list(words[1:]))
    assert done.exit_code == 0, f"{words}: {done.output}"
    return done.stdout


def test_readme_is_short_and_was_read() -> None:
    assert len(README.splitlines()) <= 90
    assert len(BLOCKS) > 15
    assert len(INLINE) > 40


@pytest.mark.parametrize("command", ["make help", "pathfinder --help", "pathfinder profile", "python -m infra.deps"])
def test_quick_commands_run_in_a_fresh_copy(copy: Path, command: str) -> None:
    assert run(copy, *command.split())


WHOLE = {
    "make run": "the pipeline; .ci/run runs it in a clone",
    "make test": "this test run",
    "make try": "tests/infra/test_makefile.py runs it on small wheels",
    "make BUILD=cuda env": "needs an NVIDIA card",
    "source .venv/bin/activate": "`run` puts the environment on the path",
    "pathfinder train examples/steps.jsonl --out my": "tests/test_train.py kills it and lets it resume",
    "pathfinder serve": "tests/prm/test_serving.py starts it on a free port",
    "make doctor": "asks the machine; tests/infra/doctor checks its answers",
}
"""Commands of the README that run elsewhere, and where."""


def commands() -> list[str]:
    """The README's commands: the lines of its blocks, and the commands in its sentences."""
    lines = [line.strip().partition("  ")[0] for line in README.splitlines() if line.startswith("    ")]
    inline = [code for code in re.findall(r"`([^`]+)`", README) if code.startswith(("make ", "pathfinder ", "python "))]
    shell = [one for line in [*lines, *inline] for one in line.split(" && ") if not line.startswith(">>> ")]
    return list(dict.fromkeys(shell))


@pytest.mark.parametrize("is_process", [False, pytest.param(True, marks=pytest.mark.campaign)])
def test_every_command_of_the_readme_runs_here_or_elsewhere(
    copy: Path, is_process: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one process each, with the code of the copy, or all in this process."""
    monkeypatch.chdir(copy)
    shutil.copytree(copy / "pathfinder/demo_model", copy / "models/full", dirs_exist_ok=True)
    before = (copy / "params.yaml").read_bytes()
    found = commands()
    assert [one for one in WHOLE if one not in found] == []
    mine = [one for one in found if one not in WHOLE]
    assert all(one.startswith("pathfinder ") for one in mine)
    start = partial(run, copy) if is_process else invoked
    shown = {one: start(*one.split()) for one in mine}
    (copy / "params.yaml").write_bytes(before)
    assert len(shown) > 3
    assert "first error, math error" in shown["pathfinder demo"]
    drawn = shown["pathfinder score examples/solution.txt --pretty"]
    without_numbers = [re.sub(r"0\.\d\d", "", text).splitlines()[:11] for text in (drawn, shown["pathfinder demo"])]
    assert without_numbers[0] == without_numbers[1], "the picture of the demo; only the precision differs"
    assert json.loads(shown["pathfinder rerank examples/candidates.jsonl"])["chosen"]["min"] == 1


def test_the_python_of_the_readme_runs(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(copy)
    shutil.copytree(copy / "pathfinder/demo_model", copy / "models/full", dirs_exist_ok=True)
    lines = [line.strip().removeprefix(">>> ") for line in README.splitlines() if line.startswith("    >>> ")]
    assert len(lines) == 2
    names: dict[str, Any] = {}
    shell = InteractiveInterpreter(names)
    assert [shell.runsource(line) for line in (lines[0], f"found = {lines[1]}")] == [False, False]
    assert names["found"] == [None, 0]
    assert "the result `[None, 0]`" in README


def test_profile_writes_the_committed_params(copy: Path) -> None:
    committed = (copy / "params.yaml").read_text(encoding="utf-8")
    for profile in ("paper", "sample", "quickstart"):
        run(copy, "pathfinder", "profile", profile)
        assert f"profile: {profile}" in (copy / "params.yaml").read_text(encoding="utf-8")
    assert (copy / "params.yaml").read_text(encoding="utf-8") == committed


def test_audit_without_a_run_says_what_to_do(copy: Path) -> None:
    words = [sys.executable, "-m", "evidence", "up", "models/full"]
    (copy / "dvc.lock").unlink(missing_ok=True)
    done = warm.run(words, cwd=copy, capture_output=True, text=True)
    assert done.returncode == 1
    assert "pathfinder run" in done.stderr


def test_make_targets_exist(copy: Path) -> None:
    named = set(re.findall(r"\bmake (?:BUILD=[a-z]+ )?([a-z-]+)\b", SPOKEN))
    offered = set(re.findall(r"make ([a-z-]+)", run(copy, "make", "help")))
    assert {"run", "test", "deploy", "undeploy", "lock"} <= named
    assert named <= offered | {"help"}


def test_pathfinder_verbs_exist(copy: Path) -> None:
    named = set(re.findall(r"\bpathfinder (?!import)([a-z]+)\b", SPOKEN))
    assert {"run", "plan", "profile", "score", "grade", "lineage"} <= named
    offered = run(copy, "pathfinder", "--help")
    assert [verb for verb in named if not re.search(rf"\b{verb}\b", offered)] == []
    lineage = run(copy, "pathfinder", "lineage", "--help")
    for verb in set(re.findall(r"\bpathfinder lineage ([a-z]+)\b", SPOKEN)):
        assert verb in lineage


def test_modules_exist() -> None:
    named = set(re.findall(r"\bpython -m ((?:pathfinder|stages|flows|infra)\.[a-z.]*[a-z]|evidence)\b", SPOKEN))
    assert {"flows.reproduce", "infra.deps", "evidence"} <= named
    for module in named:
        stem = ROOT / module.replace(".", "/")
        assert stem.with_suffix(".py").exists() or (stem / "__main__.py").exists(), module


def test_paths_of_the_map_exist(copy: Path) -> None:
    table = COMMANDS.split("## Where things are")[1].split("##")[0]
    rows = [re.findall(r"`([^`]+)`", row.split("|")[1]) for row in table.splitlines() if row.startswith("| `")]
    paths = [path for row in rows for cell in row for path in cell.split()]
    assert len(paths) > 8
    made = {"artifacts/", "models/", "metrics/", "reports/", ".pathfinder/"}
    missing = [path for path in paths if path not in made and not list(copy.glob(path.rstrip("/")))]
    assert missing == []


def test_variables_are_read_somewhere() -> None:
    named = set(re.findall(r"\b(PATHFINDER_[A-Z_]+|TORCH_INDEX)\b", SPOKEN))
    assert len(named) >= 3
    folders = ("pathfinder", "ground", "stages", "flows", "tests")
    sources = [ROOT / "Makefile", *(path for folder in folders for path in ROOT.glob(f"{folder}/**/*.py"))]
    text = "\n".join(path.read_text(encoding="utf-8") for path in sources)
    assert [name for name in named if name not in text] == []


def test_no_machine_path_in_the_readme() -> None:
    assert not re.search(r"/(work|root|tmp|opt|home)/", PAGES)
