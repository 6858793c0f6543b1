"""Which rules a search follows; tests/stages/test_search.py runs whole searches."""

from __future__ import annotations

from pathlib import Path

import pytest

from ground.io import DataError
from pathfinder.core.params import Params, load_params
from pathfinder.policy.evaluate import search_preset


def params(root: Path, preset: str, strategy: str) -> Params:
    read = load_params(root / "params.yaml")
    return read.model_copy(update={"search": read.search.model_copy(update={"preset": preset, "strategy": strategy})})


def test_only_the_published_search_preset_is_official(root: Path) -> None:
    found = {preset: search_preset(params(root, preset, "greedy")) for preset in ("default", "official")}
    assert found == {"default": "repaired", "official": "official"}
    assert search_preset(params(root, "default", "beam")) == "repaired"


def test_the_published_search_has_no_beam(root: Path) -> None:
    with pytest.raises(DataError, match=r"search\.strategy is beam, expected greedy"):
        search_preset(params(root, "official", "beam"))
