"""Write the small world's corpora, benchmarks and index for a level of the pretraining pipeline.

Reads   artifacts/pretraining/<level>/models (the policy solves the ProcessBench-like problems)
Writes  artifacts/pretraining/<level>/{prm800k,mistral,processbench,prmbench,search}/…, …/world.json
Run     python -m stages.corpus LEVEL, or the whole pipeline with `make world`
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from stages.core.generate import Generator
from stages.core.recipes import Recipe, load_recipe
from stages.core.world import Problem
from stages.core.world_formats import write_corpus
from stages.core.world_measure import sample_solutions
from stages.lineage.record import recorded

PRETRAINING = Path("artifacts/pretraining")


def write_world(recipe: Recipe, folder: Path) -> None:
    """Write the corpora beside ``folder/models``; half of the ProcessBench-like solutions are the policy's own."""
    policy = Generator(folder / "models" / "base")

    def solver(problems: list[Problem], purpose: str) -> list[list[str]]:
        print(f"corpus: the policy solves {len(problems)} problems ({purpose})", flush=True)
        return sample_solutions(policy, problems, [f"{recipe.seed}/{purpose}/{i}" for i in range(len(problems))])

    write_corpus(folder, recipe.config, solver, recipe.levels)


def main(argv: Sequence[str] | None = None) -> None:
    """Run the stage."""
    parser = argparse.ArgumentParser(
        prog="python -m stages.corpus", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("level", help="a level of infra/pretraining/params.yaml")
    level = parser.parse_args(argv).level
    recipe = load_recipe(level)
    with recorded("corpus", level):
        write_world(recipe, PRETRAINING / level)


if __name__ == "__main__":
    main()
