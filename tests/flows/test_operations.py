"""docs/operations.md: its commands work, its tables are valid, and every path exists.

tests/flows/test_deploy.py runs the commands for one machine, and tests/flows/test_notices.py the commands for notices.
"""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path

import pytest

from flows.team.pools.table import FILE, needs, slots
from tests.flows.conftest import ROOT
from tests.flows.test_branch import git

PAGE = (ROOT / "docs/operations.md").read_text(encoding="utf-8")


def section(title: str) -> str:
    """The indented lines of a section, without their indentation."""
    part = PAGE.split(f"## {title}\n")[1].split("\n## ")[0]
    return "\n".join(line.removeprefix("    ") for line in part.splitlines() if line.startswith("    "))


def commands(title: str, beginning: str) -> list[list[str]]:
    """The words of the commands in a section that begin so."""
    lines = [line for line in section(title).splitlines() if line.startswith(beginning)]
    return [shlex.split(line, comments=True) for line in lines]


def one_machine() -> list[list[str]]:
    """The page's commands for one machine, without their ``python``."""
    return [words[1:] for words in commands("One machine", "python ")]


def test_the_commands_for_one_machine_are_those_that_are_run() -> None:
    assert [words[2] for words in one_machine()] == ["up", "status", "up", "up", "up", "down"]


def test_a_run_branch_is_merged_by_hand(tmp_path: Path) -> None:
    """The three git commands, with the name of a branch that exists."""
    origin, clone = tmp_path / "origin.git", tmp_path / "clone"
    git(tmp_path, "init", "-q", "--bare", "-b", "main", "origin.git")
    git(tmp_path, "clone", "-q", str(origin), "clone")
    for name in ("base", "result"):
        (clone / "dvc.lock").write_text(name)
        git(clone, "add", "dvc.lock")
        git(clone, "commit", "-q", "-m", name)
        git(clone, "push", "-q", "origin", f"HEAD:refs/heads/{'main' if name == 'base' else 'runs/of-the-night'}")
    git(clone, "reset", "-q", "--hard", "HEAD~1")
    found = commands("One machine", "git ")
    assert [words[1] for words in found] == ["fetch", "log", "merge"]
    (named,) = {word for words in found for word in words if re.fullmatch(r"origin/runs/[\d-]+-[0-9a-f]{8}", word)}
    for words in found:
        subprocess.run([word.replace(named, "origin/runs/of-the-night") for word in words], cwd=clone, check=True)
    assert (clone / "dvc.lock").read_text() == "result"


@pytest.mark.parametrize("title", ["Stages on other machines", "Limits on all machines"])
def test_the_tables_of_the_page_are_valid(title: str, tmp_path: Path) -> None:
    (tmp_path / FILE).parent.mkdir()
    (tmp_path / FILE).write_text(section(title).partition("export")[0].strip() + "\n")
    found = needs(tmp_path, ["label", "train@full", "report"])
    limits = slots(tmp_path)
    if limits:
        assert found["label"].slots == {"pathfinder-judge": 1}
        assert {name for one in found.values() for name in one.slots} == set(limits)
    else:
        assert [found[name].pool for name in found] == ["judge", "gpu", "here"]


def test_the_worker_of_the_page_serves_a_pool_that_exists() -> None:
    ((*_, pool, _, limit),) = commands("Stages on other machines", "prefect worker")
    assert f"name: {pool}" in (ROOT / "prefect.yaml").read_text()
    assert limit == "1"


def test_files_that_the_page_names_exist() -> None:
    named = set(re.findall(r"`((?:infra|tests|docs)/[\w./-]+)`", PAGE))
    assert named
    assert [path for path in sorted(named) if not (ROOT / path).exists()] == []
