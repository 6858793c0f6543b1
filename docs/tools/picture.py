"""Draw the README's picture: a solution of the quickstart's world, with the typed score of every step.

Run     python -m docs.tools.picture           prints the SVG
        python -m docs.tools.picture --write   writes docs/step-scores.svg
        python -m docs.tools.picture --model   makes pathfinder/demo_model, the PRM of the demo, from models/full
"""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Sequence
from pathlib import Path

from ground.io import write_text
from ground.text import errors_without_traceback
from pathfinder.demo import MODEL
from pathfinder.library import PRM
from pathfinder.pages.picture import EXAMPLE_PROBLEM, EXAMPLE_STEPS, as_svg, picture_of

LEGEND = "Probabilities of a tiny trained model; a value below one half is red."
PICTURE, TRAINED = Path("docs/step-scores.svg"), Path("models/full")
_COPIED = ("chat_template.jinja", "config.json", "pathfinder.json", "tokenizer.json", "tokenizer_config.json")


def rounded(source: Path, target: Path) -> None:
    """Copy a trained model's folder with weights rounded to bfloat16, which halves its size.

    Its config.json names the dtype of the original, so every command scores in that.
    """
    import torch
    from safetensors.torch import load_file, save_file

    weights = load_file(source / "model.safetensors")
    halved = {name: tensor.to(torch.bfloat16).contiguous() for name, tensor in weights.items()}
    save_file(halved, target / "model.safetensors", metadata={"format": "pt"})
    (target / "model.safetensors").chmod(0o644)
    for name in _COPIED:
        shutil.copyfile(source / name, target / name)


def main(argv: Sequence[str] | None = None) -> None:
    """Print or write the picture; raises ``DataError`` if the pipeline has not run."""
    parser = argparse.ArgumentParser(prog="python -m docs.tools.picture", description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--write", action="store_true", help=f"write {PICTURE}")
    parser.add_argument("--model", action="store_true", help=f"make {MODEL.name} from {TRAINED}")
    given = parser.parse_args(argv)
    model = PRM.load(TRAINED)
    if given.model:
        rounded(TRAINED, MODEL)
        return
    scored = model.score(EXAMPLE_PROBLEM, EXAMPLE_STEPS)
    picture = as_svg(picture_of(scored.problem, scored.steps), LEGEND)
    if given.write:
        write_text(PICTURE, picture)
    else:
        print(picture, end="")


if __name__ == "__main__":
    with errors_without_traceback():
        main()
