"""Measure the pretrained policy and judge of a level on held-out stories.

Reads   artifacts/pretraining/<level>/models
Writes  infra/pretraining/metrics/<level>.json
Run     python -m world.measure LEVEL, or the whole pipeline with `make world`
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from evidence.record.stage import stage
from ground.io import write_json
from pathfinder.engines.generate import Generator
from world.abilities import measure_judge, measure_policy
from world.recipes import PRETRAINING, load_recipe

METRICS = Path("infra/pretraining/metrics")


@stage
def main(level: Annotated[str, "a level of infra/pretraining/params.yaml"]) -> None:
    """Run the stage."""
    recipe, models = load_recipe(level), PRETRAINING / level / "models"
    policy = measure_policy(Generator(models / "base"), recipe.measure.policy, recipe.levels)
    print(f"measure: policy done on {recipe.measure.policy} held-out stories", flush=True)
    judge = measure_judge(Generator(models / "judge"), recipe.measure.judge, recipe.levels)
    write_json(METRICS / f"{level}.json", {"policy": policy, "judge": judge})
    print(f"measure: the judge's error recall is {judge['error_recall']:.3f}, precision {judge['error_precision']:.3f}")


if __name__ == "__main__":
    main()
