"""Collect the files that data/ ships, with the tokenizer as the present code saves it.

Reads   artifacts/pretraining/quickstart
Writes  artifacts/pretraining/quickstart/shipped
Run     python -m pathfinder.world.ship, or the whole pipeline with `make world`

The models learn the ids of tokens, not how the files write them. So a change of the tokenizer's files that keeps every
id takes seconds here, without training again.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from tokenizers import Tokenizer

from pathfinder.core.io import DataError, atomic_folder, read_json, write_json
from pathfinder.models.tokens import save_tokenizer
from pathfinder.provenance.stage import stage
from pathfinder.world.formats import files_of
from pathfinder.world.recipes import PRETRAINING
from pathfinder.world.tiny import build_tokenizer

LEVEL = PRETRAINING / "quickstart"
SHIPPED = "shipped"
_PARTS = ("mistral", "models", "prm800k", "prmbench", "processbench", "search")


@stage
def main() -> None:
    """Run the stage."""
    index = read_json(LEVEL / "world.json")
    with atomic_folder(LEVEL / SHIPPED) as folder:
        for part in _PARTS:
            shutil.copytree(LEVEL / part, folder / part)
        for model in sorted((folder / "models").iterdir()):
            renew_tokenizer(model)
        write_json(folder / "world.json", index | {"files": files_of(folder, index["files"])})


def renew_tokenizer(model: Path) -> None:
    """Save the tokenizer of a tiny model anew; raises ``DataError`` if the text of a token would change."""
    before = _texts(model)
    save_tokenizer(build_tokenizer(), model)
    for file in model.iterdir():
        file.chmod(0o644)
    if _texts(model) != before:
        raise DataError(f"{model}: the present code gives its tokens other texts; train it again with `make world`")


def _texts(model: Path) -> list[str]:
    tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))
    size = tokenizer.get_vocab_size()
    return [tokenizer.decode([place], skip_special_tokens=False) for place in range(size)]


if __name__ == "__main__":
    main()
