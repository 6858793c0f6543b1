"""docs/operations.md: the commands for one machine run as they are written, and every path and option exists."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable

import pytest

from flows import server
from tests.flows.conftest import ROOT, Project
from tests.flows.test_deploy import with_flow

PAGE = (ROOT / "docs/operations.md").read_text(encoding="utf-8")


@pytest.mark.slow
def test_the_commands_for_one_machine(make_project: Callable[[], Project]) -> None:
    project = with_flow(make_project())
    part = PAGE.split("## One machine")[1].split("##")[0]
    commands = [shlex.split(line, comments=True) for line in re.findall(r"^    (python .*)$", part, re.MULTILINE)]
    assert [words[3] for words in commands] == ["up", "status", "up", "up", "up", "down"]
    try:
        output = [project.run(*words[1:]) for words in commands]
    finally:
        project.run("-m", "flows.deploy", "down")
    assert "are deployed at http://127.0.0.1:" in output[0]
    assert "nightly-" in output[1]
    assert output[-1].startswith("deleted: nightly/nightly-")
    assert server.recorded(project.root, "server") is None


def test_files_that_the_page_names_exist() -> None:
    named = set(re.findall(r"`((?:infra|tests|docs)/[\w./-]+)`", PAGE))
    assert len(named) >= 2
    assert [path for path in sorted(named) if not (ROOT / path).exists()] == []
