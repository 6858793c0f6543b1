"""The small project, the miniature project after its run, and copies of projects as the working directory."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from evidence.record.signing import KEY_FILE
from tests.evidence.record.conftest import made, project
from tests.evidence.small import write_project

__all__ = ["made", "project", "working_copy"]


@pytest.fixture
def working_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], Path]:
    """Copy a project and make the copy the working directory."""

    def copied(source: Path) -> Path:
        copy = Path(shutil.copytree(source, tmp_path / "project"))
        monkeypatch.chdir(copy)
        return copy

    return copied


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The small project, with a key of its own."""
    monkeypatch.setenv(KEY_FILE, str(tmp_path / "key.pem"))
    write_project(tmp_path / "project")
    return tmp_path / "project"
