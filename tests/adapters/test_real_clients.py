"""The adapters in the libraries that they are for, which are installed for these tests: ``pytest -m team``."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pathfinder.demo import MODEL
from pathfinder.library import PRM
from pathfinder.pages.picture import EXAMPLE_PROBLEM, EXAMPLE_STEPS
from tests.adapters.real_clients import TEXT

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = {"inspect_ai": "inspect-ai==0.3.285", "its_hub": "its-hub==1.2.0", "trl": "trl==1.16.0"}


def ran(name: str, folder: Path) -> Any:
    """The result of a library; without its dependencies for TRL, whose own are installed here."""
    own = ["--no-deps"] if name == "trl" else []
    install = [sys.executable, "-m", "pip", "install", "-q", "--target", str(folder), *own, PACKAGES[name]]
    done = subprocess.run(install, capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"{PACKAGES[name]} cannot be installed: {done.stderr[-300:]}")
    command = [sys.executable, "-m", "tests.adapters.real_clients", name, str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.team
@pytest.mark.parametrize("name", PACKAGES)
def test_a_library_gets_our_rewards(name: str, tmp_path: Path) -> None:
    expected = pytest.approx(min(PRM.load(MODEL, device="cpu").score(EXAMPLE_PROBLEM, EXAMPLE_STEPS).rewards), abs=1e-6)
    found = ran(name, tmp_path)
    if name == "inspect_ai":
        assert found == {"a": expected, "none": 0.0}
    elif name == "its_hub":
        assert found == {"answer": TEXT, "score": expected}
    else:
        assert len(found) == 2
        assert all(0 < mean < 1 for mean in found)
