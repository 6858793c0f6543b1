"""Draw the README's picture: a solution of the quickstart's world, with the typed score of every step.

Run     python -m infra.picture           prints the SVG
        python -m infra.picture --write   writes docs/step-scores.svg
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from html import escape
from pathlib import Path

from pathfinder.core.io import write_text
from pathfinder.core.text import errors_without_traceback
from pathfinder.library import PRM
from pathfinder.prm.results import ScoredSolution

PICTURE, MODEL = Path("docs/step-scores.svg"), Path("models/full")
PROBLEM = "Eve has 7 apples.\n1) Eve finds 6.\n2) Eve uses 5.\n3) Eve sells 2.\nHow many apples does Eve have?"
STEPS = (
    "1) finds 6, so 7 + 6 = 13 apples.",
    "2) uses 5, so 13 - 5 = 9 apples.",
    "3) sells 2, so 9 - 2 = 7 pens.",
    r"The answer is \boxed{7}.",
)
_STYLE = """text{font:15px system-ui,-apple-system,"Segoe UI",sans-serif;fill:#1b1f24}
.dim{fill:#57606a;font-size:13px}.low{fill:#b42318;font-weight:700}.line{stroke:#d0d7de}.edge{fill:#1b7f4b}.edge.bad,.first{fill:#b42318}
@media (prefers-color-scheme:dark){text{fill:#e6e9ee}.dim{fill:#a3adb9}.low,.first{fill:#ff8a7d}.line{stroke:#3a424d}
.edge{fill:#6fd69b}.edge.bad{fill:#ff8a7d}}"""
_COLUMNS = (("no math error", 450), ("consistent", 560), ("reward", 650))
_ROW, _TOP = 34, 92


def draw(solution: ScoredSolution) -> str:
    """The scored solution as SVG: per step the two labels, the reward and the predicted kinds of error."""
    height = _TOP + _ROW * len(solution.steps) + 40
    problem = escape(" ".join(solution.problem.split()))
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 820 {height}" role="img">',
        "<title>Typed scores of the steps of a solution</title>",
        f"<style>{_STYLE}</style>",
        f'<text x="16" y="24" class="dim">{problem}</text>',
        *(f'<text x="{x}" y="64" class="dim" text-anchor="end">{name}</text>' for name, x in _COLUMNS),
        '<line x1="8" y1="74" x2="812" y2="74" class="line"/>',
    ]
    for place, step in enumerate(solution.steps):
        y = _TOP + _ROW * place
        kind = "edge" if step.correct else "edge bad"
        parts += [f'<rect x="8" y="{y - 12}" width="4" height="24" rx="2" class="{kind}"/>']
        parts += [f'<text x="22" y="{y + 5}">{escape(step.text)}</text>']
        for (_, x), value in zip(_COLUMNS, (step.math, step.consistency, step.reward), strict=True):
            shown = "–" if value is None else f"{value:.2f}"
            low = ' class="low"' if value is not None and value < 0.5 else ""
            parts += [f'<text x="{x}" y="{y + 5}" text-anchor="end"{low}>{shown}</text>']
        note = ", ".join(step.findings) + (" (first)" if place == solution.first_error else "")
        parts += [f'<text x="668" y="{y + 5}" class="first">{note}</text>'] if step.findings else []
    legend = "Probabilities of a tiny trained model; a value below one half is red."
    return "\n".join([*parts, f'<text x="16" y="{height - 14}" class="dim">{legend}</text>', "</svg>"]) + "\n"


def main(argv: Sequence[str] | None = None) -> None:
    """Print or write the picture; raises ``DataError`` if the pipeline has not run."""
    parser = argparse.ArgumentParser(prog="python -m infra.picture", description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--write", action="store_true", help=f"write {PICTURE}")
    write = parser.parse_args(argv).write
    picture = draw(PRM.load(MODEL).score(PROBLEM, STEPS))
    if write:
        write_text(PICTURE, picture)
    else:
        print(picture, end="")


if __name__ == "__main__":
    with errors_without_traceback():
        main()
