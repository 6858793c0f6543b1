"""The pods of Prefect's charts start in the images that the values name. ``tests.support.charts`` rendered them."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from prefect.cli import app
from prefect.utilities.schema_tools.validation import is_valid

from tests.support.charts import KUBERNETES, RENDERED, ROOT, digest_of_values

FOUND = json.loads(RENDERED.read_text())
CONTAINERS: list[dict[str, Any]] = FOUND["containers"]
OURS = [container for container in CONTAINERS if "/pathfinder/" in container["image"]]
BUILT_IN = ("set", "echo")
SERVER_LOCK = ROOT / "infra/requirements-server.lock"


def words(container: dict[str, Any]) -> list[str]:
    return [*container["command"], *container.get("args", [])]


def programs(container: dict[str, Any]) -> list[str]:
    """The programs that a container starts: its first word, and the first word of each line of its script."""
    first, *rest = words(container)
    script = [line.split()[0] for line in rest[-1].splitlines() if line.strip()] if rest[:1] == ["-c"] else []
    return [Path(first).name if first.startswith("/bin/") else first, *script]


def test_the_rendered_pods_are_those_of_the_present_values() -> None:
    assert digest_of_values() == FOUND["values"], "render again: see tests/support/charts.py"
    assert [container["name"] for container in CONTAINERS] == [
        "prefect-background-services",
        "prefect-server",
        "pre-upgrade-migration",
        "sync-base-job-template",
        "prefect-worker",
    ]
    assert len(OURS) == 3


def test_every_program_is_in_the_image() -> None:
    """Debian's packages and the entry points of the lock; Prefect's is the only one of them that pods start."""
    dockerfile = (ROOT / "infra/images/Dockerfile").read_text()
    installed = set(re.findall(r"--no-install-recommends (.*) \\", dockerfile)[0].split())
    assert "\nprefect==" in SERVER_LOCK.read_text()
    known = installed | {"prefect"} | set(BUILT_IN)
    assert {name for container in OURS for name in programs(container)} <= known


def test_the_scripts_of_pods_run_in_their_shell(tmp_path: Path) -> None:
    """Debian's /bin/sh, which the image has, knows no pipefail; ``prefect`` is a stand-in that notes its words."""
    noted = tmp_path / "prefect"
    noted.write_text('#!/bin/sh\necho "$@" > "$0.words"\n')
    noted.chmod(0o755)
    (migration,) = [container for container in OURS if "-c" in words(container)]
    path = f"{tmp_path}:/usr/bin:/bin"
    shell, *rest = words(migration)
    done = subprocess.run([shell, *rest], env={"PATH": path}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "prefect.words").read_text() == "server database upgrade -y\n"


@pytest.mark.parametrize("container", OURS, ids=lambda container: container["name"])
def test_prefect_knows_the_words_of_pods(
    container: dict[str, Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The installed Prefect has the version of the image (test_recipes.py)."""
    line = next((line for line in words(container)[-1].splitlines() if line.startswith("prefect")), None)
    command = line.split() if line else words(container)
    assert command[0] == "prefect"
    monkeypatch.setattr(sys, "argv", [*command, "--help"])
    with suppress(SystemExit):
        app()
    output, errors = capsys.readouterr()
    assert errors == ""
    assert "Usage: prefect" in output
    assert all(word in output for word in command if word.startswith("--")), output


@pytest.mark.parametrize("container", CONTAINERS, ids=lambda container: container["name"])
def test_pods_are_confined_and_no_variable_is_set_twice(container: dict[str, Any]) -> None:
    assert {"cpu", "memory"} <= set(container["resources"]["limits"])
    settings = container["securityContext"]
    assert settings["runAsNonRoot"]
    assert settings["readOnlyRootFilesystem"]
    assert not settings["allowPrivilegeEscalation"]
    assert [name for name, count in Counter(container["env"]).items() if count > 1] == []


def test_a_run_s_image_is_named_by_its_digest() -> None:
    """A tag can be moved to another image; Prefect checks the values of a pool by this schema."""
    schema = json.loads((KUBERNETES / "job-template.json").read_text())["variables"]
    image = "registry.example.org/pathfinder/worker:cuda-0.1.0"
    assert is_valid({"image": f"{image}@sha256:{'0' * 64}"}, schema)
    assert not is_valid({"image": image}, schema)
    page = (ROOT / "infra/kubernetes/README.md").read_text()
    assert len(re.findall(r"prefectTag=\S+@sha256:", page)) == 2
