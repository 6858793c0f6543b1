"""The scores of the published PRMs on generated solutions, computed by the authors' procedure, for tiny seeded weights.

Run     python -m tests.baselines.golden     writes tests/baselines/golden.json with the installed transformers
"""

from __future__ import annotations

import json
import random
import tempfile
from pathlib import Path

from ground.io import write_text
from pathfinder.core.steps import Solution
from tests.baselines.authors_scripts import METHODS
from tests.baselines.model_folders import FOLDERS

GOLDEN = Path(__file__).with_name("golden.json")


def solutions() -> list[Solution]:
    """Twenty solutions of one to four steps, without a step token and with one line for each step."""
    rng = random.Random(0)
    return [_solution(str(number), rng) for number in range(20)]


def _solution(name: str, rng: random.Random) -> Solution:
    total = rng.randrange(2, 100)
    problem, steps = f"Tom has {total} pens. He buys some.\nHow many has he?", []
    for number in range(1, rng.randrange(2, 6)):
        more = rng.randrange(2, 50)
        steps.append(
            rng.choice((f"Step {number}: {total} + {more} = ", f"We add {more}, which gives ")) + f"{total + more}."
        )
        total += more
    return Solution(name, problem, tuple(steps))


def scores(name: str, folder: Path) -> list[list[float]]:
    """The score of each step of each solution by the script of a system's authors."""
    return [METHODS[name]["authors"](folder, solution) for solution in solutions()]


def main() -> None:
    """Write the scores with seven decimals, a line for each solution."""
    found = {}
    with tempfile.TemporaryDirectory() as temporary:
        for name, write in FOLDERS.items():
            write(Path(temporary, name))
            rows = [json.dumps([round(score, 7) for score in row]) for row in scores(name, Path(temporary, name))]
            found[name] = ",\n  ".join(rows)
    parts = [f'"{name}": [\n  {rows}\n]' for name, rows in found.items()]
    write_text(GOLDEN, "{" + ", ".join(parts) + "}\n")


if __name__ == "__main__":
    main()
