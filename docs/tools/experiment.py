"""The tables and the picture of the experiment, from the cells and attacks in ``infra/experiment``.

Run     python -m docs.tools.experiment           prints the tables
        python -m docs.tools.experiment --write   writes them into infra/experiment/answers.md, the answers of `tuned`
                                                  into answers.json for the report, and docs/attacks.svg
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np

from docs.tools.readings import END, START, standalone
from docs.tools.readme import between
from extras.experiment import answers, attacks
from extras.experiment import tables as more
from extras.experiment.figures import read_judged
from extras.experiment.material import MATERIAL
from extras.experiment.plan import CELLS, FOLDER, Cell, load_plan
from ground.io import read_json, write_json, write_text
from ground.text import errors_without_traceback
from pathfinder.core.prompts import VARIANTS
from pathfinder.pages.page import markdown_table
from pathfinder.pages.svg import line_chart
from pathfinder.reporting.page.decided import ANSWERS

PAGE, PICTURE = FOLDER / "answers.md", Path("docs/attacks.svg")
_ENDS = {"none": "", "estimated": "-estimated", "true": "-true"}
"""How the name of a block of wrong labels ends, by the correction of its loss."""
_SECOND = "second-"
"""How the names of the blocks of `tuned`'s second look begin."""
_WINDOW = 10
"""Steps of a policy whose mean is one point of a line."""


@cache
def cells_of(block: str) -> dict[Cell, answers.Figures]:
    """The finished cells of a block of the plan; those of `tuned` with each block of its second look that is whole."""
    found = answers.read_cells(CELLS / block)
    for name, more_of in load_plan().blocks.items():
        if block == "tuned" and name.startswith(_SECOND):
            second = answers.read_cells(CELLS / name)
            found |= second if len(second) == len(more_of.cells) else {}
    return found


@cache
def found() -> dict[str, list[answers.Answer]]:
    """The answers of the blocks that compare variants."""
    plan, items = load_plan(), read_judged(MATERIAL / "processbench")
    blocks = {name: plan.block(name) for name in ("tuned", "main")}
    return {name: answers.answers(cells_of(name), items, of.looks, of.readings) for name, of in blocks.items()}


def tables() -> str:
    """The tables of all blocks that have cells, dressed faults, and best of n and the policies, as Markdown."""
    plan, items = load_plan(), read_judged(MATERIAL / "processbench")
    cells = {name: cells_of(name) for name in plan.blocks}
    sizes = sorted({*plan.block("tuned").sizes, *plan.block("curves").sizes})
    curved, said = more.curve_rows(cells["tuned"] | cells["curves"], sizes)
    noisy = {
        level: {correction: cells[f"{level}-noise{end}"] for correction, end in _ENDS.items()}
        for level in ("little", "much")
    }
    around = [
        (more.RATES, more.rate_rows([(plan.block(name).rates, cells[name]) for name in ("fast", "slow")])),
        (more.CURVES, curved),
        (more.NOISE, more.noise_rows(noisy, items)),
    ]
    parts = [
        *(
            f"`{name}`:\n\n{markdown_table(answers.HEADS, answers.rows_of(each))}"
            for name, each in found().items()
            if each
        ),
        *(markdown_table(heads, rows) for heads, rows in around if rows),
        *said,
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
    parser.add_argument("--write", action="store_true", help=f"write {PICTURE}, {PAGE} and {ANSWERS}")
    if not parser.parse_args(argv).write:
        print(tables(), end="")
        return
    write_text(PICTURE, draw())
    write_json(ANSWERS, [answers.as_json(each) for each in found()["tuned"]])
    write_text(PAGE, between(PAGE.read_text(encoding="utf-8"), START, tables(), END, PAGE))


if __name__ == "__main__":
    with errors_without_traceback():
        main()
