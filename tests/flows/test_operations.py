"""docs/operations.md: every path exists, and its commands for one machine, which tests/flows/test_deploy.py runs."""

from __future__ import annotations

import re
import shlex

from tests.flows.conftest import ROOT

PAGE = (ROOT / "docs/operations.md").read_text(encoding="utf-8")


def one_machine() -> list[list[str]]:
    """The page's commands for one machine, without their ``python``."""
    part = PAGE.split("## One machine")[1].split("##")[0]
    lines = re.findall(r"^    (python .*)$", part, re.MULTILINE)
    return [shlex.split(line, comments=True)[1:] for line in lines]


def test_the_commands_for_one_machine_are_those_that_are_run() -> None:
    assert [words[2] for words in one_machine()] == ["up", "status", "up", "up", "up", "down"]


def test_files_that_the_page_names_exist() -> None:
    named = set(re.findall(r"`((?:infra|tests|docs)/[\w./-]+)`", PAGE))
    assert len(named) >= 2
    assert [path for path in sorted(named) if not (ROOT / path).exists()] == []
