"""The saved outputs of the notebook are fresh."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from docs.tools.notebook import NOTEBOOK, executed
from ground.io import read_json


def outputs(notebook: dict[str, Any]) -> list[str]:
    """The outputs of each code cell; without numbers where they depend on the processor."""
    found = [(cell["metadata"], str(cell["outputs"])) for cell in notebook["cells"] if cell["cell_type"] == "code"]
    return [re.sub(r"\d+(\.\d+)?", "0", text) if "varies" in about.get("tags", ()) else text for about, text in found]


def test_the_saved_outputs_are_fresh(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved = read_json(root / NOTEBOOK)
    for folder in ("examples", "pathfinder"):
        (tmp_path / folder).symlink_to(root / folder)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")  # the notebook sets it; the test puts it back
    fresh = executed(saved)
    assert outputs(fresh) == outputs(saved), f"run `python -m docs.tools.notebook` to renew {NOTEBOOK}"
    assert "first error: 1 ('math',)" in outputs(fresh)[1]
    assert [cell["execution_count"] for cell in fresh["cells"] if cell["cell_type"] == "code"] == [1, 2, 3, 4, 5, 6]
