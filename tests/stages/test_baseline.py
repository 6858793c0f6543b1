"""The authors' checkpoint is evaluated under ``baselines`` exactly as a run of ours is."""

from __future__ import annotations

from pathlib import Path

import pytest

from ground.io import DataError, read_json
from pathfinder.prm.opening import CHECKPOINTS, model_of
from stages import baseline, prmbench, processbench
from tests.support.evaluation_inputs import evaluation_project

NAME = "pathfinder-prm-7b"


@pytest.mark.parametrize("benchmark", ["processbench", "prmbench"])
def test_the_checkpoint_has_the_figures_of_a_run_with_the_same_weights(
    world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, benchmark: str
) -> None:
    evaluation_project(tmp_path, world, processbench={"limit": 3}, prmbench={"limit": 2})
    monkeypatch.chdir(tmp_path)
    {"processbench": processbench, "prmbench": prmbench}[benchmark].main(["full"])
    Path("artifacts/raw/models").mkdir(parents=True, exist_ok=True)
    Path("models/full").rename(f"artifacts/raw/models/{NAME}")
    Path(f"artifacts/raw/models/{NAME}/pathfinder.json").unlink()  # the authors' folder has no description of ours
    baseline.main([NAME, benchmark])
    run, checkpoint = (read_json(Path(f"metrics/{benchmark}/{name}.json")) for name in ("full", NAME))
    assert checkpoint == run | {"titles": ["PathFinder-PRM-7B"]}
    rows = [Path(f"artifacts/predictions/{benchmark}/{name}.jsonl").read_bytes() for name in ("full", NAME)]
    assert rows[0] == rows[1]


def test_every_name_has_one_folder() -> None:
    assert model_of("full-550k-s2") == Path("models/full-550k-s2")
    assert {name: model_of(name) for name in CHECKPOINTS} == {NAME: Path(f"artifacts/raw/models/{NAME}")}
    with pytest.raises(DataError, match="expected VARIANT"):
        model_of("pathfinder-prm-8b")
