"""The Dockerfile's instructions, replayed in a clean folder by the machine's shell: no engine builds images here.

The replay takes the stages that a target is made of. It runs each RUN with the variables of ENV and ARG, and copies
each COPY from the project or from an earlier stage. Paths below /opt and /build become paths in the folder. It leaves
out the installation of Debian's packages and the creation of the user, which would change this machine. uv uses the
machine's cache and compiles no bytecode, which would take minutes.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.infra.test_charts import OURS, programs
from tests.support import wheels

ROOT = Path(__file__).resolve().parents[2]
_ROOTS = re.compile(r"(?<![\w/])/(opt|build)\b")
_LEFT_OUT = ("apt-get", "useradd")


@dataclass
class Stage:
    """One FROM with the instructions that follow it."""

    parent: str
    instructions: list[tuple[str, str]] = field(default_factory=list)


def stages(text: str) -> dict[str, Stage]:
    """The named stages of a Dockerfile; comments are dropped and continued lines are joined."""
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    found: dict[str, Stage] = {}
    for line in re.sub(r"\\\n", " ", "\n".join(lines)).splitlines():
        word, _, rest = line.strip().partition(" ")
        if word == "FROM":
            parent, _, name = rest.partition(" AS ")
            found[name] = Stage(parent)
        elif word and found:
            found[[*found][-1]].instructions.append((word, rest.strip()))
    return found


class Replay:
    """A folder in place of an image's root folder."""

    def __init__(self, folder: Path, arguments: dict[str, str]) -> None:
        self.folder, self.arguments = folder, arguments
        self.known = stages((ROOT / "infra/images/Dockerfile").read_text())
        self.left_out: list[str] = []
        self.machine = _machine()

    def target(self, name: str) -> dict[str, str]:
        """Replay a stage and those it is made of; returns its variables."""
        stage = self.known[name]
        variables = self.target(stage.parent) if stage.parent in self.known else dict(self.machine)
        for word, rest in stage.instructions:
            if word == "ENV":
                variables.update((key, self._expand(value, variables)) for key, value in _pairs(rest))
            elif word == "ARG":
                key, _, value = rest.partition("=")
                variables[key] = self.arguments.get(key, value)
            elif word == "COPY":
                self._copy(rest)
            elif word == "RUN":
                self._run(rest, variables)
        return variables

    def _expand(self, value: str, variables: dict[str, str]) -> str:
        return self._inside(value).replace("$PATH", variables["PATH"])

    def _inside(self, text: str) -> str:
        return _ROOTS.sub(rf"{self.folder}/\1", text)

    def _copy(self, rest: str) -> None:
        *sources, target = rest.split()
        if sources[0].startswith("--from="):
            stage = sources[0].removeprefix("--from=")
            if not (self.folder / stage).exists():
                self.target(stage)
                (self.folder / stage).touch()
            assert Path(self._inside(sources[1])).exists()
            return
        folder = Path(self._inside(target))
        folder.mkdir(parents=True, exist_ok=True)
        for source in sources:
            shutil.copy(ROOT / source, folder)

    def _run(self, command: str, variables: dict[str, str]) -> None:
        if any(word in command for word in _LEFT_OUT):
            self.left_out.append(command)
            return
        variables = variables | {"UV_NO_CACHE": "0", "UV_COMPILE_BYTECODE": "0", "HOME": str(self.folder)}
        if "UV_CACHE_DIR" not in variables:
            variables["UV_CACHE_DIR"] = str(Path.home() / ".cache/uv")
        shell = ["/bin/bash", "-o", "pipefail", "-c", self._inside(command)]
        done = subprocess.run(
            shell, cwd=self.folder, env=variables, capture_output=True, text=True, check=False, timeout=1200
        )
        if done.returncode and any(text in done.stderr for text in ("dns error", "error sending request")):
            pytest.skip("the package index is not reachable")
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"


def _machine() -> dict[str, str]:
    """The variables that lead package tools to this machine's index and cache."""
    kept = re.compile(r"(UV|PIP)_|.*(PROXY|proxy|CERT|SSL)")
    links = subprocess.run(
        [sys.executable, "-m", "pip", "config", "get", "global.find-links"],
        capture_output=True,
        text=True,
        check=False,
    )
    variables = {name: value for name, value in os.environ.items() if kept.match(name)}
    return variables | {
        "PATH": f"{Path(sys.base_prefix) / 'bin'}:/usr/bin:/bin",
        "UV_FIND_LINKS": links.stdout.strip(),
    }


def _pairs(rest: str) -> Iterator[tuple[str, str]]:
    for pair in rest.split():
        key, _, value = pair.partition("=")
        yield key, value


@pytest.mark.team
@pytest.mark.parametrize(
    ("target", "locks", "programs"),
    [
        (
            "server",
            ["requirements-server.lock"],
            [
                ["prefect", "version"],
                ["python", "-c", "import prefect_redis"],
                *(["bash", "-c", f"type {' '.join(programs(container))}"] for container in OURS),
            ],
        ),
        (
            "cpu",
            ["torch-cpu.lock", "locks/cpu.lock"],
            [["prefect", "worker", "--help"], ["dvc", "--version"], ["python", "-c", "import torch, transformers"]],
        ),
    ],
)
def test_the_instructions_make_a_working_environment(
    tmp_path: Path, target: str, locks: list[str], programs: list[list[str]]
) -> None:
    replay = Replay(tmp_path, {})
    if replay.machine["UV_FIND_LINKS"]:  # has PyTorch's CPU build, which the machine may not be able to fetch
        wheels.index(tmp_path / "none", [])
        replay.arguments["TORCH_INDEX"] = (tmp_path / "none").as_uri()
    variables = replay.target(target)
    assert len(set(replay.left_out)) == 2
    for command in programs:
        environment = {"PATH": variables["PATH"], "HOME": str(tmp_path), "PREFECT_HOME": str(tmp_path)}
        subprocess.run(command, env=environment, cwd=tmp_path, check=True, capture_output=True)
    bill = json.loads((tmp_path / "opt/sbom.json").read_text())
    texts = "".join((ROOT / "infra" / lock).read_text() for lock in locks)
    pins = re.findall(r'^[a-z0-9._-]+==(?!.*"darwin")', texts, re.MULTILINE)
    assert len(bill["components"]) == len(pins) > 90


def test_the_card_images_only_add_a_compiler_to_the_base() -> None:
    known = stages((ROOT / "infra/images/Dockerfile").read_text())
    assert {name: known[name].parent for name in ("cuda", "vllm", "card", "cpu", "server")} == {
        "cuda": "card",
        "vllm": "card",
        "card": "base",
        "cpu": "base",
        "server": "base",
    }
