from __future__ import annotations

from pathlib import Path

import pytest

from ground.io import DataError, write_json
from pathfinder.data.export import stepwise_rows
from pathfinder.models.folders import special_texts
from pathfinder.models.tokens import load_tokenizer, special_strings
from tests.support.export_trees import HOSTILE, branch, tree


def test_stepwise_rows_follow_the_trunk_to_the_first_incorrect_step() -> None:
    rows = [(completions, labels) for _, completions, labels in stepwise_rows(tree(1))]
    assert rows == [(["one", HOSTILE], [True, False]), (["bad"], [False])]
    unlabelled = tree(1) | {"branches": [branch(1, HOSTILE, 1, 1, 1)]}
    assert list(stepwise_rows(unlabelled)) == [], "a step without a label breaks the chain"
    whole = tree(1) | {"branches": [branch(i, s, 1, 1, 1) for i, s in enumerate(tree(1)["steps"])]}
    assert [labels for _, _, labels in stepwise_rows(whole)] == [[True, True, True]]


def test_the_special_tokens_are_those_of_the_tokenizer(world: Path) -> None:
    model = world / "models" / "base"
    assert special_texts(model) == special_strings(load_tokenizer(model))


def test_a_model_without_a_tokenizer_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no list of added_tokens"):
        special_texts(tmp_path)
    write_json(tmp_path / "tokenizer.json", {})
    with pytest.raises(DataError, match="no list of added_tokens"):
        special_texts(tmp_path)
