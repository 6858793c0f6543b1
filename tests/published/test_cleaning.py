"""Preset ``official``: what training reads of the Mistral conversations, from the upstream file on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from ground.io import read_parquet, write_parquet
from pathfinder.core.records import CLEAN, STEPS
from pathfinder.data.export import paper_rows
from pathfinder.data.trainset import gather_trees
from stages import prepare
from tests.published.cleaning import SCORES
from tests.published.kept import cases, differences
from tests.support.stage_inputs import write_params


def test_training_texts_are_the_published_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_params(tmp_path, prepare={"preset": "official"}, download={"sources": [MISTRAL]})
    found = cases("cleaning", "clean_prev_and_curr_steps")
    upstream = Path("artifacts/raw/mistral/data.json")
    upstream.parent.mkdir(parents=True)
    upstream.write_text(json.dumps([case.input for case in found]), encoding="utf-8")
    prepare.main([])
    steps, clean = Path("artifacts/steps"), Path("artifacts/clean/clean.parquet")
    rated = read_parquet(steps / "steps.parquet", STEPS).select("id", "rating").iter_rows()
    labels = [(name, *SCORES[max(rating, 0)][:2], int(rating == 1)) for name, rating in rated]
    write_parquet(clean, pl.DataFrame(labels, schema=CLEAN, orient="row"))
    trees = gather_trees(steps, clean, "official").to_dicts()
    by_line = {int(tree["tree_id"].rpartition("-")[2]): tree for tree in trees}
    assert len(by_line) == len(found) > 50
    ours = {json.dumps(case.input): texts_of(by_line[line]) for line, case in enumerate(found, start=1)}
    assert not differences(found, lambda turns: ours[json.dumps(turns)])


def texts_of(tree: dict[str, Any]) -> list[Any]:
    """For each record the assistant turns of its two samples: what is asked, and what is wanted."""
    texts = [[inputs[1]["content"], labels[1]["content"]] for inputs, labels, _ in paper_rows(tree)]
    return [list(pair) for pair in zip(texts[::2], texts[1::2], strict=True)]


MISTRAL: dict[str, Any] = {
    "name": "mistral", "kind": "hub", "location": "datasets/RLHFlow/Mistral-PRM-Data", "revision": None,
    "licence": "unknown", "files": {},
}  # fmt: skip
