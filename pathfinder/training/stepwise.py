"""A user's labelled steps, in the form of TRL's stepwise supervision, become the trees that training reads.

A row has a problem (``prompt``), the steps of one solution (``completions``) and a label for each step (``labels``):
true or 1; false, 0 or -1; or null for a step that is not trained on. If a file has both 0 and -1, 0 is a neutral step,
and only the caller knows its meaning; false is always wrong. Rows with the lists ``math``, ``consistency`` and
``correct`` have typed labels.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import polars as pl

from ground import io
from ground.show import counted
from ground.text import UsageError
from pathfinder.core.given import rows_of
from pathfinder.core.labels import CORRECTNESS, PREDICTED, STEP_LABELS
from pathfinder.core.layouts import MATH_SHEPHERD, WrongError, question_in
from pathfinder.core.mixes import draw
from pathfinder.core.prompts import VARIANTS
from pathfinder.core.records import SOFT_TREES, TREES, problem_id, record_id, trajectory_id
from pathfinder.models.tokens import neutralise

Neutral = Literal["positive", "negative", "drop", "third"]
Labels = tuple[int, ...]
"""The values of ``STEP_LABELS`` of one step."""
SOURCE = "own"
"""The source of every tree in the tables."""
_CORRECT = ("correct", CORRECTNESS, "labels")
_TYPED = tuple(kind.name for kind in PREDICTED)
_LISTS = ("completions", "steps", *_CORRECT, *_TYPED, "mc_value")
_NEUTRAL: dict[str, Labels] = {"positive": (1, 1, 1), "negative": (0, 0, 0), "third": (1, 1, 0), "drop": ()}
MEANINGS = {
    "positive": "a neutral step (0) counts as correct",
    "negative": "a neutral step (0) counts as incorrect",
    "third": "a neutral step (0) has no error and is not correct",
    "drop": "neutral steps (0) are left out",
}
"""The meaning of each ``Neutral`` in words."""


@dataclass(frozen=True, slots=True)
class Row:
    """One solution. ``name`` is its place for messages; ``values`` and the ``labels`` follow the steps."""

    name: str
    number: int
    problem: str
    steps: tuple[str, ...]
    labels: Mapping[str, Sequence[int | None]]
    values: Sequence[float | None]


@dataclass(frozen=True, slots=True)
class Supervision:
    """The rows of a file, and how their labels are read: as typed or not, and the meaning of a neutral step."""

    file: Path
    sha256: str
    rows: Sequence[Row]
    is_typed: bool
    neutral: Neutral | None
    """None if no step is neutral."""

    def variant(self, asked: str | None, soft: bool = False) -> str:
        """The ``asked`` variant or, by default, the variant that learns most from the labels.

        Raises ``DataError`` if the labels do not allow it, and ``UsageError`` if it cannot learn shares (``soft``).
        """
        name = self._variant(asked)
        if soft and name in ("plain_error", "typed_three"):
            raise UsageError(f"--soft: {name} has no label for the shares in mc_value; name another --variant")
        return name

    def _variant(self, asked: str | None) -> str:
        if self.is_typed:
            allowed, given = tuple(VARIANTS), ""
        elif self.neutral == "third":
            allowed, given = ("no_error_categories",), "one label per step with a neutral value"
        else:
            allowed, given = ("no_subtasks", "plain_error"), "one label per step"
            allowed = allowed[::-1] if self.neutral == "positive" else allowed
        if asked is None or asked in allowed:
            return asked or allowed[0]
        raise io.DataError(
            f"{self.file}: {given} can train {' or '.join(allowed)}, not {asked}; no_error_categories needs --neutral "
            "third, and full, autoregressive and typed_three need the lists math, consistency and correct in each row"
        )

    def trees(self, soft: bool = False) -> pl.DataFrame:
        """The labelled steps as ``records.TREES``, with their shares (``SOFT_TREES``) if ``soft``.

        Raises ``DataError`` if no step has a label or, if ``soft``, no row has a share.
        """
        if soft and all(value is None for row in self.rows for value in row.values):
            raise io.DataError(f"{self.file}: no row has a share in mc_value; leave --soft out, or add the shares")
        if not (found := gather(((row, list(self._labels(row))) for row in self.rows), self.sha256, soft)):
            raise io.DataError(f"{self.file}: no step has a label, so there is nothing to learn; add labels")
        return pl.DataFrame(found, schema=SOFT_TREES if soft else TREES)

    def _labels(self, row: Row) -> Iterator[Labels | None]:
        """The labels of each step of a row, or None for a step that is not trained on."""
        for place, values in enumerate(zip(*row.labels.values(), strict=True), start=1):
            step = dict(zip(row.labels, values, strict=True))
            value = step[CORRECTNESS]
            meant = (int(value == 1),) * len(STEP_LABELS)
            if _is_zero(value) and self.neutral is not None:
                meant = _NEUTRAL[self.neutral]
            if None in values or not meant:
                yield None
                continue
            labels = (*(int(step.get(name, meant[0])) for name in _TYPED), meant[-1])
            if labels[-1] and not all(labels):
                raise io.DataError(
                    f"{row.name}, step {place}: correct, but {_TYPED[labels.index(0)]} is 0; a correct step has no "
                    "error, so change one of the two labels"
                )
            yield labels


def read(file: Path, neutral: Neutral | None = None) -> Supervision:
    """Read a file of JSON, CSV or Parquet.

    Raises ``DataError`` with the file and the row if a row is not stepwise supervision, if ``neutral`` does not give
    the meaning of neutral steps, and if it does although the labels have 0 but no -1.
    """
    if not file.is_file():
        problem = "a folder" if file.is_dir() else "no such file"
        raise io.DataError(f"{file}: {problem}; give a file of JSON, CSV or Parquet, not standard input")
    _, found = rows_of(str(file), _LISTS)
    rows = [_row(name, number, row) for number, (name, row) in enumerate(found if isinstance(found, list) else (), 1)]
    if not rows:
        raise io.DataError(f"{file}: no rows; expected one JSON object per solution, or a Parquet file")
    if other := next((row for row in rows if row.labels.keys() != rows[0].labels.keys()), None):
        raise io.DataError(f"{other.name}: its lists of labels differ from the first row's; give all rows the same")
    values = [value for row in rows for value in row.labels[CORRECTNESS]]
    has_neutral = -1 in values and any(map(_is_zero, values))
    if has_neutral and neutral is None:
        choices = "; ".join(f"{name}: {meaning}" for name, meaning in MEANINGS.items())
        raise io.DataError(
            f"{file}: labels have the values -1, 0 and 1, and nothing says what 0 means; choose with --neutral "
            f"({choices}). docs/readings.md explains the difference"
        )
    if neutral and 0 in values and -1 not in values:
        raise io.DataError(
            f"{file}: labels have no -1, so 0 means wrong and no step is neutral; leave --neutral out, or write -1 "
            "for wrong"
        )
    return Supervision(file, io.sha256_file(file), rows, len(rows[0].labels) > 1, neutral if has_neutral else None)


def _row(name: str, number: int, row: Any) -> Row:
    """Check one row; refuse a step without text and lists of different lengths."""
    try:
        fields = _fields(row)
        problem = None if (asked := fields.get("prompt", fields.get("problem"))) is None else question_in(asked)
    except WrongError as error:
        raise io.DataError(f"{name}: {error}; correct or remove the row") from error
    steps = fields.get("completions", fields.get("steps"))
    given = [key for key in _CORRECT if key in fields]
    if len(given) > 1:
        raise io.DataError(f"{name}: found {' and '.join(given)}, which say the same; keep one of them")
    correct = given[0] if given else None
    typed = [key for key in _TYPED if key in fields]
    missing = [key for key in _TYPED if key not in typed] + ["correct"] * (correct is None)
    if typed and missing:
        raise io.DataError(f"{name}: no list {missing[0]}; typed labels need {', '.join(_TYPED)} and correct")
    if problem is None or not isinstance(steps, list) or correct is None:
        found = ", ".join(map(str, fields)) or "no object"
        raise io.DataError(
            f"{name}: found {found:.200}; expected prompt (a text), completions (a list of steps) and labels (a list "
            "with a value for each step)"
        )
    if not steps:
        raise io.DataError(f"{name}: completions is empty; remove the row, or add its steps")
    for place, step in enumerate(steps, start=1):
        if not isinstance(step, str) or not step.strip():
            raise io.DataError(f"{name}, step {place}: {step!r:.40} is no text; remove the step and its label")
    columns = {key: key for key in typed} | {CORRECTNESS: correct}
    labels = {label: _checked(name, key, fields[key], len(steps)) for label, key in columns.items()}
    shares = fields.get("mc_value") or []
    is_share = isinstance(shares, list) and [v is None or (isinstance(v, int | float) and 0 <= v <= 1) for v in shares]
    if shares and is_share != [True] * len(steps):
        raise io.DataError(f"{name}: mc_value is {shares!r:.40}; give a share from 0 to 1, or null, for each step")
    values = [None if value is None else float(value) for value in shares]  # JSON may have 1 for 1.0
    problem, *texts = (neutralise(text, ()) for text in (problem, *steps))  # no lone surrogates
    return Row(name, number, problem, tuple(texts), labels, values)


def _fields(row: Any) -> Mapping[str, Any]:
    """The fields of a row with a value; a row of Math-Shepherd gets the names of stepwise supervision."""
    if not isinstance(row, dict) or not MATH_SHEPHERD.fits(row):
        return {key: value for key, value in row.items() if value is not None} if isinstance(row, dict) else {}
    taken = MATH_SHEPHERD.take(row)
    return {"prompt": taken.problem, "completions": list(*taken.solutions), "labels": list(taken.labels or ())}


def _checked(name: str, key: str, values: Any, steps: int) -> list[int | None]:
    """The labels in a column as numbers; false stays, because it is never a neutral step."""
    if not isinstance(values, list) or len(values) != steps:
        given = counted(len(values), "value") if isinstance(values, list) else f"{values!r:.40}"
        wanted = f"{counted(steps, 'step')}; give one value for each step, null for none"
        raise io.DataError(f"{name}: {key} has {given} for {wanted}")
    known = (-1, 0, 1) if key in _CORRECT else (0, 1)
    for place, value in enumerate(values, start=1):
        if value is not None and (isinstance(value, str) or value not in known):
            expected = ", ".join(map(str, known))
            raise io.DataError(
                f"{name}, step {place}: {key} is {value!r:.40}; expected true, false, {expected} or null"
            )
    return [value if value is None or value is False else int(value) for value in values]


def _is_zero(label: int | None) -> bool:
    return label == 0 and label is not False


@dataclass(slots=True)
class _Tree:
    id: str
    problem: str
    steps: tuple[str, ...]
    branches: list[dict[str, Any]]


def gather(
    rows: Iterable[tuple[Row, Sequence[Labels | None]]], sha256: str, soft: bool = False
) -> list[dict[str, Any]]:
    """Rows of ``records.TREES``: solutions with the same problem and first steps share a tree, like alternatives.

    A step with the same labels after the same steps counts once, even if several rows repeat it. If ``soft``, its share
    is one of these labels, and the rows are ``SOFT_TREES``.
    """
    children: dict[tuple[int, str], int] = {}  # the number of a text after the texts before it
    owners: dict[int, _Tree] = {}  # the tree whose steps lead there
    ends: dict[int, _Tree] = {}
    seen: set[tuple[int, Labels, float | None]] = set()
    trees: list[_Tree] = []
    for row, labels in rows:
        labelled = [(place, values) for place, values in enumerate(labels) if values is not None]
        if not labelled:
            continue
        path = [-1]
        for text in (row.problem, *row.steps):
            path.append(children.setdefault((path[-1], text), len(children)))
        last, name = labelled[-1][0] + 1, trajectory_id(SOURCE, sha256, row.number)
        tree = owners.get(path[last])
        if tree is None:
            end = next((node for node in reversed(path[2:last]) if node in ends), None)
            if end is None:
                trees.append(_Tree(name, row.problem, (), []))
            tree = trees[-1] if end is None else ends.pop(end)
            tree.steps = row.steps
            ends[path[-1]] = tree
            for node in path[1:]:
                owners.setdefault(node, tree)
        for place, values in labelled:
            share = row.values[place] if soft and row.values else None
            if (key := (path[place + 2], values, share)) not in seen:
                seen.add(key)
                more = {**dict(zip(STEP_LABELS, values, strict=True)), **({"mc_value": share} if soft else {})}
                record = {"id": record_id(name, place, 0), "step_index": place, "step": row.steps[place], **more}
                tree.branches.append(record)
    return [
        {
            "tree_id": tree.id,
            "problem_id": problem_id(tree.problem),
            "source": SOURCE,
            "problem": tree.problem,
            "steps": list(tree.steps),
            "branches": tree.branches,
        }
        for tree in trees
        if tree.branches
    ]


def split(trees: pl.DataFrame, share: float, seed: int) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The trees to learn from, and the held-out trees: about a ``share`` of the problems, at least one unless it is 0.

    Raises ``DataError`` if a side would be empty.
    """
    problems = sorted(set(trees["problem_id"]), key=lambda problem: draw(seed, problem))
    held = problems[: max(1, round(share * len(problems)))] if share else []
    if len(held) == len(problems):
        raise io.DataError(
            f"--held-out {share:g} of {counted(len(problems), 'problem')} leaves none to learn from; add problems, or "
            "give --held-out 0"
        )
    is_held = pl.col("problem_id").is_in(held)
    return trees.filter(~is_held), trees.filter(is_held)
