"""Write the small world's corpora, benchmarks and index for a level of the pretraining pipeline.

Reads   artifacts/pretraining/<level>/models (the policy solves the ProcessBench-like problems)
Writes  artifacts/pretraining/<level>/{prm800k,mistral,processbench,prmbench,search}/…, …/world.json
Run     python -m pathfinder.world.corpus LEVEL, or the whole pipeline with `make world`
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pathfinder.engines.generate import Generator
from pathfinder.provenance.stage import stage
from pathfinder.world.abilities import sample_solutions
from pathfinder.world.formats import write_corpus
from pathfinder.world.recipes import Recipe, load_recipe
from pathfinder.world.story import Problem

PRETRAINING = Path("artifacts/pretraining")


def write_world(recipe: Recipe, folder: Path) -> None:
    """Write the corpora beside ``folder/models``; half of the ProcessBench-like solutions are the policy's own."""
    policy = Generator(folder / "models" / "base")

    def solver(problems: list[Problem], purpose: str) -> list[list[str]]:
        print(f"corpus: the policy solves {len(problems)} problems ({purpose})", flush=True)
        return sample_solutions(policy, problems, [f"{recipe.seed}/{purpose}/{i}" for i in range(len(problems))])

    write_corpus(folder, recipe.config, solver, recipe.levels)


@stage
def main(level: Annotated[str, "a level of infra/pretraining/params.yaml"]) -> None:
    """Run the stage."""
    recipe = load_recipe(level)
    write_world(recipe, PRETRAINING / level)


if __name__ == "__main__":
    main()
