"""Stages over several processes write the bytes of one, and models with few positions stop no stage."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ground.io import read_json
from stages import processbench, sample, search
from tests.support.evaluation_inputs import evaluation_project, rows_of

CHANGES = {
    "processbench": {"limit": 20, "early_stop": True},
    "search": {"limit": 1, "batch_size": 2, "max_rounds": 3, "n": 4, "solution_tokens": 128},
}


def outputs() -> dict[str, bytes]:
    files = (path for folder in ("artifacts/predictions", "metrics") for path in Path(folder).rglob("*.json*"))
    return {str(path): path.read_bytes() for path in files}


def limit(model: Path, positions: int) -> None:
    """Give the model's context another size."""
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps(config | {"max_position_embeddings": positions}))


@pytest.mark.slow
@pytest.mark.usefixtures("warm_starts")
def test_two_processes_write_the_bytes_of_one(world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two chunks of ProcessBench, and three of the samples, of best of n and of the search."""
    found = {}
    for processes in (1, 2):
        folder = tmp_path / str(processes)
        evaluation_project(folder, world, **CHANGES, score={"processes": processes})
        monkeypatch.chdir(folder)
        sample.main([])
        processbench.main(["full"])
        search.main(["full"])
        found[processes] = outputs()
        assert not list(Path(".pathfinder").rglob("*.json*")), "kept only until the results are written"
    assert len(found[1]) == 7
    assert found[1] == found[2]


def test_models_with_few_positions_end_paths_and_solutions_but_no_stage(
    world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fails if a search path or a solution longer than the model's positions blocks a stage."""
    evaluation_project(tmp_path, world, search=CHANGES["search"], processbench={"limit": 3})
    monkeypatch.chdir(tmp_path)
    limit(Path("artifacts/raw/models/policy"), 240)
    limit(Path("models/full"), 120)
    sample.main([])
    processbench.main(["full"])
    limit(Path("models/full"), 90)
    search.main(["full"])
    metrics = read_json(Path("metrics/processbench/full.json"))
    rows = rows_of(Path("artifacts/predictions/processbench/full.jsonl"))
    missed = [row for row in rows if row["prediction"] is None]
    assert 0 < len(missed) == metrics["too_long"] < len(rows) == 12
    assert all(row["steps"] == [] for row in missed)
    details = read_json(Path("metrics/search/full.json"))["details"]
    long = [row for row in rows_of(Path("artifacts/predictions/search/full.jsonl")) if "too_long" in row]
    assert 0 < details["too_long"] == len(long) <= 6
    assert not any(row["finished"] for row in long)
    assert read_json(Path("metrics/search/full.json"))["best_of_n"]["too_long"] > 0
