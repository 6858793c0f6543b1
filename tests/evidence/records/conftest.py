"""A small project that the real stages ran, from prepare to the index, and its tables."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from ground.io import write_json
from pathfinder.reporting.index import schema
from tests.support.record_stages import run_stages, write_project

LOCK = """
schema: '2.0'
stages:
  build:
    cmd: python -m stages.build
    deps: [{path: exclusions.jsonl, md5: d41d8cd98f00b204e9800998ecf8427e}]
    outs:
    - {path: artifacts/train, md5: d41d8cd98f00b204e9800998ecf8427e}
    - {path: artifacts/decisions.parquet, md5: d41d8cd98f00b204e9800998ecf8427e}
  train@full:
    cmd: python -m stages.train full
    deps: [{path: artifacts/train, md5: d41d8cd98f00b204e9800998ecf8427e}]
    outs: [{path: models/full, md5: d41d8cd98f00b204e9800998ecf8427e}]
  processbench@full:
    cmd: python -m stages.processbench full
    deps: [{path: models/full, md5: d41d8cd98f00b204e9800998ecf8427e}]
    outs: [{path: metrics/processbench/full.json, md5: d41d8cd98f00b204e9800998ecf8427e}]
  index:
    cmd: python -m stages.report index
    deps: [{path: artifacts/decisions.parquet, md5: d41d8cd98f00b204e9800998ecf8427e}]
    outs: [{path: artifacts/index, md5: d41d8cd98f00b204e9800998ecf8427e}]
  sample:
    cmd: python -m stages.sample
    deps: [{path: artifacts/raw/search, md5: d41d8cd98f00b204e9800998ecf8427e}]
    outs: [{path: metrics/sample.json, md5: d41d8cd98f00b204e9800998ecf8427e}]
"""


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The small project after a run, with a report of two figures: one of the run, one of the policy."""
    folder = tmp_path_factory.mktemp("records")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        write_project(folder)
        run_stages()
    (folder / "dvc.lock").write_text(LOCK)
    origins = {"processbench": {"how": "copy", "of": ["metrics/processbench/full.json#/mean_f1"]}}
    origins["sample"] = {"how": "copy", "of": ["metrics/sample.json#/pass_at_1"]}
    write_json(folder / "reports/tables.json", {"results": [{"origins": origins}]})
    return folder


@pytest.fixture
def project(finished: Path, working_copy: Callable[[Path], Path]) -> Path:
    """A copy of the small project as the working directory."""
    return working_copy(finished)


def index(name: str) -> pl.DataFrame:
    """A table of the index in the working directory."""
    return pl.read_parquet(schema.INDEX / f"{name}.parquet")


def trained(rater: str = "") -> dict[str, Any]:
    """A record that the run trained on."""
    steps = index("steps").filter(pl.col("stage").is_null(), side="train", rating=1)
    lines = index("lines").filter(pl.col("rater") == rater if rater else pl.col("rater").is_not_null())
    return steps.join(lines.select(line_id="id"), on="line_id", how="semi").row(0, named=True)
