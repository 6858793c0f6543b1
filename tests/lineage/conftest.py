"""The miniature project after its run, copies of it, and copies of other projects as the working directory."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.provenance.conftest import made, project

__all__ = ["made", "project", "working_copy"]


@pytest.fixture
def working_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], Path]:
    """Copy a project and make the copy the working directory."""

    def copied(source: Path) -> Path:
        copy = Path(shutil.copytree(source, tmp_path / "project"))
        monkeypatch.chdir(copy)
        return copy

    return copied
