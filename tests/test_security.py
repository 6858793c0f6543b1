"""tests/campaigns/security.md names existing tests; what no other test of that page covers."""

from __future__ import annotations

import ast
import inspect
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from flows import server
from pathfinder import cli
from tests.support.wheels import lock, wheel

ROOT = Path(__file__).resolve().parent.parent
SOURCES = [path for room in ("pathfinder", "stages", "flows", "infra") for path in sorted((ROOT / room).rglob("*.py"))]
NAMED = re.findall(r"`(tests/[^`:]+\.py)::(\w+)`", (ROOT / "tests/campaigns/security.md").read_text(encoding="utf-8"))


def test_the_page_has_rows() -> None:
    assert len(NAMED) > 30


@pytest.mark.parametrize("file, name", NAMED, ids=[name for _, name in NAMED])
def test_every_test_of_the_page_exists(file: str, name: str) -> None:
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def calls() -> Iterator[tuple[Path, ast.Call]]:
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call):
                yield path, node


def test_no_code_of_others_is_run() -> None:
    """A loader that is not told asks the user on a terminal."""
    forbidden = {"trust_remote_code", "allow_pickle", "shell"}
    found = [(path, keyword) for path, call in calls() for keyword in call.keywords if keyword.arg in forbidden]
    assert {keyword.arg for _, keyword in found} == {"trust_remote_code", "allow_pickle"}, "the search finds calls"
    for path, keyword in found:
        assert isinstance(keyword.value, ast.Constant), path
        assert keyword.value.value is False, path
    loader = r"(Auto\w+\.from_pretrained|datasets\.load_dataset)\("
    loads = [(path, call) for path, call in calls() if re.match(loader, ast.unparse(call))]
    assert len(loads) > 2
    assert [path for path, call in loads if "trust_remote_code" not in {each.arg for each in call.keywords}] == []


def test_servers_listen_on_this_machine_only() -> None:
    assert inspect.signature(cli.serve).parameters["host"].default == "127.0.0.1"
    assert '"--host", "127.0.0.1"' in inspect.getsource(server.start_server)
    command = (ROOT / "pathfinder/engines/vllm_server.py").read_text(encoding="utf-8")
    assert '"--host", "127.0.0.1"' in command


@pytest.mark.parametrize("installer", [["uv", "pip"], [sys.executable, "-m", "pip"]], ids=["uv", "pip"])
def test_a_package_with_another_hash_is_not_installed(installer: list[str], tmp_path: Path) -> None:
    """With the options of the Makefile."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    (locked,) = re.findall(r"^LOCKED := (.*)$", makefile, re.MULTILINE)
    installer[0] = shutil.which(installer[0], path=str(Path(sys.executable).parent)) or installer[0]
    file = wheel(tmp_path / "wheels", "harmless", "1.0", {"harmless.py": "A = 1\n"})
    requirements, target = tmp_path / "a.lock", tmp_path / "installed"
    requirements.write_text(lock([file]))
    command = [*installer, "install", *locked.split(), "--no-index", "--find-links", str(file.parent)]
    command += ["--target", str(target), "-r", str(requirements)]
    if "uv" in installer[0]:
        command.append("--no-cache")
    wheel(file.parent, "harmless", "1.0", {"harmless.py": "A = 2\n"})
    refused = subprocess.run(command, capture_output=True, text=True, check=False)
    assert refused.returncode != 0
    assert "hash" in refused.stderr.lower()
    assert not (target / "harmless.py").exists()
    wheel(file.parent, "harmless", "1.0", {"harmless.py": "A = 1\n"})
    requirements.write_text(lock([file]))
    subprocess.run(command, check=True, capture_output=True)
    assert (target / "harmless.py").read_text() == "A = 1\n"
