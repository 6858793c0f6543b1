"""Write the corpora, the benchmarks and the index of a level.

Reads   artifacts/pretraining/<level>/models (the policy solves problems of the ProcessBench-like subsets)
Writes  artifacts/pretraining/<level>/{prm800k,mistral,processbench,prmbench,search}/…, …/world.json
Run     python -m world.corpus LEVEL, or the whole pipeline with `make world`
        With LEVEL ship it writes artifacts/pretraining/<level>/shipped instead: the same files, as shipped in data/

The models learn the ids of tokens, not how the files write them. So a change of the tokenizer's files that keeps every
id takes seconds with ship, without training again.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Annotated, Literal

from tokenizers import Tokenizer

from evidence.record.stage import stage
from ground.io import DataError, atomic_folder, read_json, write_json
from pathfinder.engines.generate import Generator
from pathfinder.models.tokens import save_tokenizer
from world.abilities import sample_solutions
from world.formats import files_of, write_corpus
from world.recipes import PRETRAINING, load_recipe
from world.story import NARROW, Language, Problem
from world.tiny import build_tokenizer

_PARTS = ("mistral", "models", "prm800k", "prmbench", "processbench", "search")


@stage
def main(
    level: Annotated[str, "a level of infra/pretraining/params.yaml"],
    task: Annotated[Literal["make", "ship"], "ship: only collect what data/ ships"] = "make",
) -> None:
    """Run the stage."""
    recipe, folder = load_recipe(level), PRETRAINING / level
    if task == "ship":
        collect(folder, recipe.language)
        return
    policy = Generator(folder / "models" / "base")

    def solver(problems: list[Problem], purpose: str) -> list[list[str]]:
        print(f"corpus: the policy solves {len(problems)} problems ({purpose})", flush=True)
        return sample_solutions(policy, problems, [f"{recipe.seed}/{purpose}/{i}" for i in range(len(problems))])

    write_corpus(folder, recipe.corpus, solver, recipe.levels)


def collect(level: Path, language: Language = NARROW) -> None:
    """Copy the files of a level, with the tokenizer as the current code saves it, to ``shipped`` in its folder."""
    index = read_json(level / "world.json")
    with atomic_folder(level / "shipped") as folder:
        for part in _PARTS:
            shutil.copytree(level / part, folder / part)
        for model in sorted((folder / "models").iterdir()):
            renew_tokenizer(model, language)
        write_json(folder / "world.json", index | {"files": files_of(folder, index["files"])})


def renew_tokenizer(model: Path, language: Language = NARROW) -> None:
    """Save the tokenizer of a tiny model again; raises ``DataError`` if the text of a token would change."""
    before = _texts(model)
    save_tokenizer(build_tokenizer(language), model)
    for file in model.iterdir():
        file.chmod(0o644)
    if _texts(model) != before:
        raise DataError(f"{model}: the present code gives its tokens different texts; train it again with `make world`")


def _texts(model: Path) -> list[str]:
    tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))
    size = tokenizer.get_vocab_size()
    return [tokenizer.decode([place], skip_special_tokens=False) for place in range(size)]


if __name__ == "__main__":
    main()
