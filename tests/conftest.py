"""Shared fixtures. One thread per process: small models are much slower with more on shared cores."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("DO_NOT_TRACK", "1")
os.environ.setdefault("PATHFINDER_SIGNING_KEY", f"{tempfile.gettempdir()}/pathfinder-tests-{os.getuid()}/signing.pem")

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def root() -> Path:
    """The project's root folder."""
    return ROOT


@pytest.fixture(scope="session")
def mirror() -> Path:
    """The folder with real benchmark files; tests that need it are skipped where it does not exist."""
    folder = Path(os.environ.get("PATHFINDER_MIRROR", ROOT.parent / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(f"no mirror of the real files at {folder}; set PATHFINDER_MIRROR to a folder that holds them")
    return folder


@pytest.fixture(scope="session")
def world() -> Path:
    """The shipped small world (``data/``)."""
    folder = ROOT / "data"
    if not (folder / "world.json").exists():
        pytest.skip("data/ is not here; fetch it with `dvc pull`")
    return folder


@pytest.fixture
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """The client of OpenAI-compatible servers repeats a failed call after hundredths of a second."""
    monkeypatch.setattr("pathfinder.engines.openai_client._FIRST_WAIT_S", 0.01)


@pytest.fixture
def exact_norms(monkeypatch: pytest.MonkeyPatch) -> None:
    """See ``exact_rms_norms``."""
    from tests.support.models import exact_rms_norms  # takes seconds

    exact_rms_norms(monkeypatch)


@pytest.fixture
def vllm_python() -> str:
    """The interpreter of an environment with vLLM; tests that need it are skipped if none is named."""
    python = os.environ.get("PATHFINDER_VLLM")
    if not python:
        pytest.skip("set PATHFINDER_VLLM to the python of an environment with vLLM")
    return python
