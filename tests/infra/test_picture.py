"""The shipped model is the trained one in half the size."""

from __future__ import annotations

from pathlib import Path

import pytest

from docs.tools.picture import rounded
from pathfinder import PRM
from pathfinder.demo import MODEL
from pathfinder.pages.picture import EXAMPLE_PROBLEM, EXAMPLE_STEPS
from tests.prm.test_scoring import save_prm


def test_a_rounded_model_has_half_the_bytes_and_nearly_the_scores(tmp_path: Path) -> None:
    source, target = tmp_path / "model", tmp_path / "small"
    save_prm(source)
    (source / "chat_template.jinja").touch()
    target.mkdir()
    rounded(source, target)
    sizes = [(folder / "model.safetensors").stat().st_size for folder in (source, target)]
    assert sizes[1] < 0.6 * sizes[0]
    scores = [
        PRM.load(folder, dtype="float32").score(EXAMPLE_PROBLEM, EXAMPLE_STEPS).rewards for folder in (source, target)
    ]
    assert scores[1] == pytest.approx(scores[0], abs=0.02)
    assert {path.name for path in MODEL.iterdir()} == {path.name for path in target.iterdir()} | {"README.md"}
