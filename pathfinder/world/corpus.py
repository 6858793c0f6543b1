"""Write the corpora, the benchmarks and the index of a level.

Reads   artifacts/pretraining/<level>/models (the policy solves problems of the ProcessBench-like subsets)
Writes  artifacts/pretraining/<level>/{prm800k,mistral,processbench,prmbench,search}/…, …/world.json
Run     python -m pathfinder.world.corpus LEVEL, or the whole pipeline with `make world`
"""

from __future__ import annotations

from typing import Annotated

from pathfinder.engines.generate import Generator
from pathfinder.provenance.stage import stage
from pathfinder.world.abilities import sample_solutions
from pathfinder.world.formats import write_corpus
from pathfinder.world.recipes import PRETRAINING, load_recipe
from pathfinder.world.story import Problem


@stage
def main(level: Annotated[str, "a level of infra/pretraining/params.yaml"]) -> None:
    """Run the stage."""
    recipe, folder = load_recipe(level), PRETRAINING / level
    policy = Generator(folder / "models" / "base")

    def solver(problems: list[Problem], purpose: str) -> list[list[str]]:
        print(f"corpus: the policy solves {len(problems)} problems ({purpose})", flush=True)
        return sample_solutions(policy, problems, [f"{recipe.seed}/{purpose}/{i}" for i in range(len(problems))])

    write_corpus(folder, recipe.corpus, solver, recipe.levels)


if __name__ == "__main__":
    main()
