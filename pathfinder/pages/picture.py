"""The picture of typed step scores: one content, drawn as text for a terminal and by the page's template.

Per step: its text, the probability of no error of each kind, the reward, and what is wrong with it.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ground.text import printable
from pathfinder.core.labels import OPTIMALITY, PREDICTED
from pathfinder.core.prompts import ERROR_FREE
from pathfinder.core.steps import ScoredStep
from pathfinder.pages.origins import Origin

NAMES = {kind.name: kind.title for kind in PREDICTED} | {ERROR_FREE: "no error", OPTIMALITY: "optimal"}
"""The heading of each label's column."""
SOUND, USEFUL, REWARD = "sound", "useful", "reward"
LEGEND = (
    f"All values are probabilities: that the step {', that it '.join(kind.meaning for kind in PREDICTED)}, that it has "
    "no error at all (sound: the smallest of these), and that it is sound and helps (useful: the reward). A value "
    "below one half is red."
)
_COLOURS = {"wrong": "\x1b[31m", "right": "\x1b[32m", "dim": "\x1b[2m"}
_PLAIN = "\x1b[0m"
EXAMPLE_PROBLEM = "Eve has 7 apples.\n1) Eve finds 6.\n2) Eve uses 5.\n3) Eve sells 2.\nHow many apples does Eve have?"
EXAMPLE_STEPS = (
    "1) finds 6, so 7 + 6 = 13 apples.",
    "2) uses 5, so 13 - 5 = 9 apples.",
    "3) sells 2, so 9 - 2 = 7 pens.",
    r"The answer is \boxed{7}.",
)
"""A solution in the quickstart's world with a consistency error, for the demo and the server's page."""


@dataclass(frozen=True, slots=True)
class Row:
    """A step: its text, a figure per column (``None`` for one that it does not have) and its badges."""

    text: str
    figures: tuple[float | None, ...]
    badges: tuple[str, ...]
    is_wrong: bool


@dataclass(frozen=True, slots=True)
class Picture:
    """A problem and its scored steps; ``columns`` name the figures, and ``origin`` is where they come from."""

    problem: str
    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    origin: Origin | None = None


def picture_of(
    problem: str,
    steps: Sequence[ScoredStep],
    notes: Mapping[int, Sequence[str]] | None = None,
    origin: Origin | None = None,
) -> Picture:
    """The picture of a scored solution; ``notes`` are the first badges of steps, counted from 0.

    The columns are those that some step has; "sound" needs several labels, and "reward" is a score that is not known to
    mean "useful". Without ``notes``, the first step with an error is marked "first error".
    """
    kinds = [name for name in NAMES if any(name in step.probabilities for step in steps)]
    is_sound = len(kinds) > 1 and any(step.soundness is not None for step in steps)
    is_useful = any(step.quality is not None for step in steps)
    has_reward = not is_useful and any(step.reward not in (None, step.soundness) for step in steps)
    if notes is None:
        first = next((place for place, step in enumerate(steps) if step.has_error), None)
        notes = {} if first is None else {first: ["first error"]}
    rows = []
    for place, step in enumerate(steps):
        figures = [step.probabilities.get(kind) for kind in kinds]
        figures += [step.soundness] * is_sound + [step.quality] * is_useful + [step.reward] * has_reward
        badges = (*notes.get(place, ()), *step.findings)
        rows.append(Row(step.text, tuple(figures), badges, bool(step.findings)))
    titles = [SOUND] * is_sound + [USEFUL] * is_useful + [REWARD] * has_reward
    return Picture(problem, (*(NAMES[kind] for kind in kinds), *titles), tuple(rows), origin)


def shown(figure: float | None) -> str:
    """A figure as it is printed."""
    return "–" if figure is None else f"{figure:.2f}"


def is_low(figure: float | None) -> bool:
    """True if a figure is printed in red."""
    return figure is not None and figure < 0.5


def as_text(picture: Picture, has_colour: bool = False, columns: int = sys.maxsize) -> str:
    """The picture for a terminal: text from outside cannot control it, and colours are added only if asked for.

    If a line would be longer than ``columns``, the figures of every step are below its text.
    """

    def dyed(text: str, kind: str) -> str:
        return f"{_COLOURS[kind]}{text}{_PLAIN}" if has_colour else text

    texts = [f"{number:3d}  {printable(row.text)}" for number, row in enumerate(picture.rows, start=1)]
    texts = [text.replace("\n", "\n     ") for text in texts]
    width = min(72, max((len(line) for text in texts for line in text.split("\n")), default=0))
    titles = "  ".join(picture.columns)
    verdicts = [", ".join(row.badges) or "ok" for row in picture.rows]
    if len("  ".join((" " * width, titles, max(verdicts, key=len, default="")))) > columns:
        width = 3
    lines = [dyed(printable(picture.problem), "dim"), "", dyed(f"{'':{width}}  {titles}", "dim")]
    for text, row, verdict in zip(texts, picture.rows, verdicts, strict=True):
        *above, last = text.split("\n")
        above, last = ([*above, last], "") if len(last) > width else (above, last)
        cells = [
            dyed(f"{shown(figure):>{len(title)}}", "wrong") if is_low(figure) else f"{shown(figure):>{len(title)}}"
            for title, figure in zip(picture.columns, row.figures, strict=True)
        ]
        shade = "wrong" if row.is_wrong else "right"
        lines += [*above, "  ".join([f"{last:{width}}", *cells, dyed(verdict, shade)])]
    return "\n".join(lines)
