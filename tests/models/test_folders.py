from __future__ import annotations

from pathlib import Path

import pytest

from ground.io import DataError, write_json
from pathfinder.models.folders import MODEL_FILE, variant_of


def test_a_description_names_the_variant(tmp_path: Path) -> None:
    write_json(tmp_path / MODEL_FILE, {"variant": "no_subtasks"})
    assert variant_of(tmp_path).name == "no_subtasks"


def test_a_published_checkpoint_without_a_description_is_the_full_variant(tmp_path: Path) -> None:
    assert variant_of(tmp_path).name == "full"


@pytest.mark.parametrize("content", [{"variant": "odd"}, {}])
def test_an_unknown_variant_is_refused(content: dict[str, str], tmp_path: Path) -> None:
    write_json(tmp_path / MODEL_FILE, content)
    with pytest.raises(DataError, match=r"pathfinder\.json: unknown variant .*; expected one of full"):
        variant_of(tmp_path)
