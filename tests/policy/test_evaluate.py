"""Which rules a search follows; tests/stages/test_search.py runs whole searches."""

from __future__ import annotations

from pathlib import Path

import pytest

from pathfinder.core.io import DataError
from pathfinder.core.params import Params, load_params
from pathfinder.policy.evaluate import search_preset


def params(root: Path, preset: str, strategy: str) -> Params:
    read = load_params(root / "params.yaml")
    score = read.score.model_copy(update={"preset": preset})
    return read.model_copy(update={"score": score, "search": read.search.model_copy(update={"strategy": strategy})})


def test_only_the_published_search_preset_is_official(root: Path) -> None:
    found = {preset: search_preset(params(root, preset, "greedy")) for preset in ("default", "official-search")}
    assert found == {"default": "repaired", "official-search": "official"}
    assert search_preset(params(root, "official-prmbench", "beam")) == "repaired"


def test_the_published_search_has_no_beam(root: Path) -> None:
    with pytest.raises(DataError, match=r"search\.strategy is beam, expected greedy"):
        search_preset(params(root, "official-search", "beam"))
