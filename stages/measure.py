"""Measure what a level's pretrained policy and judge can do on held-out stories.

Reads   artifacts/pretraining/<level>/models
Writes  infra/pretraining/metrics/<level>.json
Run     python -m stages.measure LEVEL, or the whole pipeline with `make world`
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from stages.core.generate import Generator
from stages.core.io import write_json
from stages.core.recipes import load_recipe
from stages.core.world_measure import measure_judge, measure_policy
from stages.lineage.record import recorded

PRETRAINING = Path("artifacts/pretraining")
METRICS = Path("infra/pretraining/metrics")


def main(argv: Sequence[str] | None = None) -> None:
    """Run the stage."""
    parser = argparse.ArgumentParser(
        prog="python -m stages.measure", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("level", help="a level of infra/pretraining/params.yaml")
    level = parser.parse_args(argv).level
    recipe = load_recipe(level)
    with recorded("measure", level):
        models = PRETRAINING / level / "models"
        policy = measure_policy(Generator(models / "base"), recipe.measure.policy, recipe.levels)
        print(f"measure: the policy, {recipe.measure.policy} held-out stories: done", flush=True)
        judge = measure_judge(Generator(models / "judge"), recipe.measure.judge, recipe.levels)
        write_json(METRICS / f"{level}.json", {"policy": policy, "judge": judge})
    print(f"measure: judge's error recall {judge['error_recall']:.3f}, precision {judge['error_precision']:.3f}")


if __name__ == "__main__":
    main()
