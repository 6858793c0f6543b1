"""The files that a code host reads: workflows, forms and the hook; no test starts them."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from ground.io import write_text
from tests.infra.test_recipes import tool

__all__ = ["tool"]
ROOT = Path(__file__).resolve().parents[2]
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
FORMS = sorted((ROOT / ".github/ISSUE_TEMPLATE").glob("*.yml"))
PARSED: dict[str, Any] = {path.stem: yaml.safe_load(path.read_text(encoding="utf-8")) for path in WORKFLOWS}
JOBS = [job for workflow in PARSED.values() for job in workflow["jobs"].values()]
STEPS = [step for job in JOBS for step in job["steps"]]
COMMANDS = [step["run"] for step in STEPS if "run" in step]


def test_workflows_can_only_read_and_every_action_has_a_version() -> None:
    assert PARSED.keys() == {"nightly", "release", "tests"}
    assert [workflow["permissions"] for workflow in PARSED.values()] == [{"contents": "read"}] * 3
    assert [job["permissions"] for job in JOBS if "permissions" in job] == [
        {"contents": "write", "id-token": "write", "attestations": "write"}
    ]
    assert all(job["timeout-minutes"] <= 120 for job in JOBS)
    used = {step["uses"] for step in STEPS if "uses" in step}
    assert all(re.fullmatch(r"actions/[a-z-]+@v\d+", action) for action in used)
    assert not re.search(r"secrets\.", "".join(path.read_text(encoding="utf-8") for path in WORKFLOWS))


def test_every_command_of_a_workflow_exists() -> None:
    named = "\n".join(COMMANDS)
    modules = re.findall(r"-m ((?:infra|tests)[\w.]*)", named)
    assert len(modules) == 2
    assert all((ROOT / f"{module.replace('.', '/')}.py").is_file() for module in modules)
    for path in re.findall(r"(?:^|\s)((?:tests|\.ci)/[\w./]+)", named):
        assert (ROOT / path).is_file(), path
    for target in set(re.findall(r"make (\S+)", named)):
        subprocess.run(["make", "--dry-run", target], cwd=ROOT, check=True, capture_output=True)


def test_forms_ask_for_the_version_and_the_machine() -> None:
    assert [form.stem for form in FORMS] == ["bug", "result"]
    for form in FORMS:
        text = form.read_text(encoding="utf-8")
        assert "`pathfinder --version`" in text
        assert "`make doctor`" in text


def test_the_hook_is_the_check_of_make() -> None:
    (repository,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))["repos"]
    assert [hook["entry"] for hook in repository["hooks"]] == ["make check"]


@pytest.mark.team
def test_every_file_has_the_form_of_its_schema(tool: Callable[..., str], tmp_path: Path) -> None:
    check = ("check-jsonschema", "--builtin-schema")
    tool(*check, "vendor.github-workflows", *map(str, WORKFLOWS))
    tool(*check, "vendor.github-issue-forms", *map(str, FORMS))
    tool(*check, "vendor.dependabot", str(ROOT / ".github/dependabot.yml"))
    wrong = tmp_path / "tests.yml"
    write_text(wrong, WORKFLOWS[0].read_text(encoding="utf-8").replace("runs-on:", "runs:"))
    assert "runs" in tool(*check, "vendor.github-workflows", str(wrong), fails=True)


@pytest.mark.team
def test_the_linter_has_nothing_to_say_about_the_commands(tool: Callable[..., str], tmp_path: Path) -> None:
    script = tmp_path / "commands.sh"
    write_text(script, "\n".join(["#!/bin/bash", *COMMANDS]) + "\n")
    tool("shellcheck", str(script))
