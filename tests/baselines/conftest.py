"""A model folder per system."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.baselines.model_folders import FOLDERS


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One model folder per system."""
    root = tmp_path_factory.mktemp("baselines")
    for name, write in FOLDERS.items():
        write(root / name)
    return {name: root / name for name in FOLDERS}
