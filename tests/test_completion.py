"""Shell completion: the words that the command offers, and its script in a real bash."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.support.verbs import whole_app

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent
BASH = shutil.which("bash")
APP = whole_app()
_OFFER = """
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=()
_pathfinder_completion pathfinder
printf '%s\\n' "${COMPREPLY[@]}"
"""
needs_bash = pytest.mark.skipif(BASH is None, reason="no bash on this machine")


def words_for(typed: str) -> list[str]:
    """The completions that the command offers for the last of the typed words."""
    words = ["pathfinder", *typed.split(" ")]
    asked = {"_PATHFINDER_COMPLETE": "complete_bash", "COMP_WORDS": "\n".join(words), "COMP_CWORD": str(len(words) - 1)}
    done = CliRunner().invoke(APP, [], env=asked, prog_name="pathfinder")
    assert done.exception is None or isinstance(done.exception, SystemExit), done.output
    return done.stdout.split()


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("lin", ["lineage"]),
        ("lineage rep", ["replay"]),
        ("score --pre", ["--preset", "--pretty"]),
        ("score --preset official-p", ["official-processbench", "official-prmbench"]),
        ("score --system math-", ["math-psa", "math-shepherd"]),
        ("grade processbench x --format la", ["latex"]),
        ("profile one", ["one-gpu-24", "one-gpu-48", "one-gpu-80"]),
        ("plan --gpu --profile paper-", ["paper-data", "paper-nodes", "paper-official"]),
        ("run train@no_s", ["train@no_subtasks"]),
        ("run train @ no", []),
        ("plan down", ["download"]),
        ("lineage up models/no_s", ["models/no_subtasks"]),
        ("lineage replay validate_", ["validate_train"]),
        ("lineage items prm", ["prmbench"]),
        ("lineage export --format c", ["crate", "cyclonedx", "croissant", "card"]),
        ("why x --run full-", ["full-s2", "full-s3"]),
    ],
)
def test_arguments_with_known_values_are_completed(
    typed: str, offered: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    assert words_for(typed) == offered


def test_outside_a_project_nothing_of_one_is_offered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert [words_for(typed) for typed in ("lineage up m", "profile q", "run t")] == [[], [], []]


def bash(script: str, *words: str, home: Path) -> str:
    assert BASH is not None
    path = f"{BIN}{os.pathsep}{os.environ['PATH']}"
    environment = os.environ | {"HOME": str(home), "PATH": path, "PYTHONPATH": str(ROOT), "SHELL": BASH}
    done = subprocess.run(
        [BASH, "--norc", "-c", script, "bash", *words], cwd=ROOT, env=environment, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout


@needs_bash
def test_bash_reads_the_script_that_the_command_prints(tmp_path: Path) -> None:
    source = 'source <(pathfinder --show-completion "$1"); shift;'
    assert bash(source + _OFFER, "bash", "pathfinder", "score", "--preset", "def", home=tmp_path) == "default\n"
    assert bash(source + _OFFER, "bash", "pathfinder", "profile", "quick", home=tmp_path) == "quickstart\n"


@needs_bash
def test_install_writes_the_script_for_new_shells(tmp_path: Path) -> None:
    told = bash("pathfinder --install-completion bash; true", home=tmp_path)
    assert "bash completion installed" in told
    start = (tmp_path / ".bashrc").read_text()
    assert str(tmp_path) in start
    assert bash(f"{start}\n{_OFFER}", "pathfinder", "gra", home=tmp_path) == "grade\n"
