"""The miniature project, once after its run and as copies that tests may change."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.support.miniature import miniature
from tests.support.scratch import once


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project after one run. Tests copy it before they change it."""
    return once(tmp_path_factory, "miniature", miniature)


@pytest.fixture
def project(made: Path, tmp_path: Path) -> Path:
    """A copy that the test may change."""
    return Path(shutil.copytree(made, tmp_path / "project"))
