"""The tables and the picture of the experiment, from the cells and attacks in ``infra/experiment``.

Run     python -m docs.tools.experiment           prints the tables
        python -m docs.tools.experiment --write   writes them into infra/experiment/answers.md, and docs/attacks.svg
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from docs.tools.readings import END, START, standalone
from docs.tools.readme import between
from extras.experiment import answers, attacks
from extras.experiment.figures import read_judged
from extras.experiment.material import MATERIAL
from extras.experiment.plan import CELLS, FOLDER, Cell
from ground.io import read_json, write_text
from ground.text import errors_without_traceback
from pathfinder.core.prompts import VARIANTS
from pathfinder.pages.page import markdown_table
from pathfinder.pages.svg import line_chart

PAGE, PICTURE = FOLDER / "answers.md", Path("docs/attacks.svg")
_WINDOW = 10
"""Steps of a policy whose mean is one point of a line."""


def tables() -> str:
    """The answers of the block ``main``, dressed faults, and best of n and the policies, as Markdown."""
    found = answers.answers(answers.read_cells(CELLS / "main"), read_judged(MATERIAL / "processbench"))
    parts = [
        markdown_table(answers.HEADS, answers.rows_of(found)),
        markdown_table(attacks.DRESSED, attacks.dressed_rows(FOLDER / "attacks")),
        markdown_table(attacks.HEADS, attacks.rows_of(FOLDER / "attacks")),
    ]
    return "\n\n".join(parts) + "\n"


def draw() -> str:
    """Reward and truth of the policies that learn to please a PRM, by step, as SVG."""
    series = {}
    for path in sorted((FOLDER / "attacks").glob("*/*-min.json")):
        rows, variant = read_json(path), VARIANTS[Cell.parse(path.parent.name).variant].title
        whole = len(rows) // _WINDOW * _WINDOW
        for key, scale, shown in (("reward", 100.0, "reward"), ("sound", 1.0, "sound")):
            means = np.array([scale * row[key] for row in rows[:whole]]).reshape(-1, _WINDOW).mean(1)
            points = [(_WINDOW * (place + 0.5), float(mean)) for place, mean in enumerate(means)]
            series[f"{shown}: {variant}, {path.stem.removesuffix('-min')}"] = points
    title = "Reward and share of sound solutions of policies that learn to please a PRM"
    return standalone(line_chart(series, "steps of the policy", "percent"), title)


def main(argv: Sequence[str] | None = None) -> None:
    """Print the tables, or write them and the picture."""
    parser = argparse.ArgumentParser(
        prog="python -m docs.tools.experiment", description=(__doc__ or "").split("\n", 1)[0]
    )
    parser.add_argument("--write", action="store_true", help=f"write {PICTURE} and {PAGE}")
    if not parser.parse_args(argv).write:
        print(tables(), end="")
        return
    write_text(PICTURE, draw())
    write_text(PAGE, between(PAGE.read_text(encoding="utf-8"), START, tables(), END, PAGE))


if __name__ == "__main__":
    with errors_without_traceback():
        main()
