"""Draw the README's picture: the solution of the demo, with the typed score of every step.

Run     python -m docs.tools.picture           prints the SVG
        python -m docs.tools.picture --write   writes docs/step-scores.svg
        python -m docs.tools.picture --model   makes pathfinder/demo_model, the PRM of the demo, from models/full
"""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Sequence
from html import escape
from pathlib import Path

from ground.io import write_text
from ground.text import errors_without_traceback, printable
from pathfinder.demo import MODEL, scored
from pathfinder.library import PRM
from pathfinder.pages.picture import Picture, is_low, picture_of, shown

LEGEND = "Probabilities of a tiny trained model; a value below one half is red."
_STYLE = """:root{background:#fff}text{font:15px system-ui,-apple-system,"Segoe UI",sans-serif;fill:#1b1f24}
.dim{fill:#57606a;font-size:13px}.low{fill:#b42318;font-weight:700}.line{stroke:#d0d7de}.edge{fill:#1b7f4b}.edge.bad,.first{fill:#b42318}
@media (prefers-color-scheme:dark){:root{background:#14171c}text{fill:#e6e9ee}.dim{fill:#a3adb9}
.low,.first{fill:#ff8a7d}.line{stroke:#3a424d}.edge{fill:#6fd69b}.edge.bad{fill:#ff8a7d}}"""
_RIGHT, _COLUMN, _ROW, _TOP = 650, 100, 34, 92
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


def as_svg(picture: Picture) -> str:
    """The picture as a file of its own, which follows the reader's light or dark theme."""
    places = [_RIGHT - _COLUMN * back for back in range(len(picture.columns))][::-1]
    height = _TOP + _ROW * len(picture.rows) + 40
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 880 {height}" role="img">',
        "<title>Typed scores of the steps of a solution</title>",
        f"<style>{_STYLE}</style>",
        _text(16, 24, " ".join(picture.problem.split()), 'class="dim"'),
        *(_text(x, 64, name, 'class="dim" text-anchor="end"') for x, name in zip(places, picture.columns, strict=True)),
        '<line x1="8" y1="74" x2="872" y2="74" class="line"/>',
    ]
    for place, row in enumerate(picture.rows):
        y = _TOP + _ROW * place
        parts.append(f'<rect x="8" y="{y - 12}" width="4" height="24" rx="2" class="edge{" bad" * row.is_wrong}"/>')
        parts.append(_text(22, y + 5, row.text))
        for x, figure in zip(places, row.figures, strict=True):
            parts.append(_text(x, y + 5, shown(figure), 'text-anchor="end"' + ' class="low"' * is_low(figure)))
        parts += [_text(_RIGHT + 18, y + 5, ", ".join(row.badges), 'class="first"')] if row.badges else []
    return "\n".join([*parts, _text(16, height - 14, LEGEND, 'class="dim"'), "</svg>"]) + "\n"


def _text(x: float, y: float, text: str, attributes: str = "") -> str:
    return f'<text x="{x}" y="{y}"{" " * bool(attributes)}{attributes}>{escape(printable(text))}</text>'


def main(argv: Sequence[str] | None = None) -> None:
    """Print or write the picture, or make the model; that raises ``DataError`` if the pipeline has not run."""
    parser = argparse.ArgumentParser(prog="python -m docs.tools.picture", description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--write", action="store_true", help=f"write {PICTURE}")
    parser.add_argument("--model", action="store_true", help=f"make {MODEL.name} from {TRAINED}")
    given = parser.parse_args(argv)
    if given.model:
        PRM.load(TRAINED)
        rounded(TRAINED, MODEL)
        return
    solution = scored()
    picture = as_svg(picture_of(solution.problem, solution.steps))
    if given.write:
        write_text(PICTURE, picture)
    else:
        print(picture, end="")


if __name__ == "__main__":
    with errors_without_traceback():
        main()
