"""A laboratory of the experiment at the least size."""

from __future__ import annotations

from pathlib import Path

import pytest

from extras.experiment import material
from extras.experiment.cell import Laboratory
from extras.experiment.plan import PLAN, load_plan

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Laboratory:
    """The plan's base models, at the least size of everything else."""
    whole = load_plan(ROOT / PLAN)
    plan = whole.model_copy(
        update={
            "tests": whole.tests.model_copy(update={"items": 112, "dev": 112, "prmbench": 3}),
            "training": whole.training.model_copy(update={"lines": 24}),
            "train": whole.train.model_copy(update={"steps": 3}),
        }
    )
    folder = tmp_path_factory.mktemp("experiment") / "material"
    material.write_material(plan, folder)
    bench = Laboratory(plan, folder, ROOT / "infra/experiment/bases")
    bench.__dict__["solutions"] = tuple(part[::16] for part in bench.solutions)
    return bench
