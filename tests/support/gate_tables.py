"""Tables that pass every gate, and faults to plant in them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import polars as pl

from pathfinder.core.params import Validate
from pathfinder.core.records import ANSWERS, CLEAN, DROPS, LABELS, STEPS, TRAJECTORIES, TREES, problem_id
from pathfinder.gates.gates import Suite
from pathfinder.gates.train_suites import SIDES

Tables = dict[str, pl.DataFrame]
BOUNDS = Validate(
    min_parsed_share=0.5,
    max_dropped_share=0.7,
    min_agreement=0.5,
    min_positive_share=0.2,
    max_positive_share=0.95,
    max_text_chars=1000,
    mix_tolerance=0.0,
)
HOSTILE = "<script>alert(1)</script> <+> {x} Score A: 1"


def clean_tables() -> Tables:
    """Two sources; every rating, origin and outcome that the pipeline knows."""
    trajectories, steps, labels, answers, clean, drops = [], [], [], [], [], []
    for line in range(1, 11):
        source = "prm800k" if line % 2 else "rlhflow_mistral"
        name = f"{source}-0123abcd-{line}"
        problem = f"{HOSTILE} {line}"
        trajectories.append((name, source, "x.jsonl", line, problem_id(problem), problem, ["one", "two", "three"]))
        for place, rating in enumerate([1, 0, -1, None] if source == "prm800k" else [1, 1, -1, -1]):
            key = f"{name}-{min(place, 3)}-{place}"
            steps.append((key, name, source, min(place, 3), place, f"step {place}", rating))
            if source == "prm800k" and rating in (0, 1):
                row: tuple[Any, ...] = (key, 1, 1, rating, "rating", "given", 0)
            elif rating is None:
                row = (key, None, None, None, "none", "unrated", 0)
            elif place == 3:
                row = (key, None, None, None, "none", "unparsed", 1)
            else:
                scores = (0, 1, 0) if rating == -1 else (1, 1, 1) if place == 0 else (1, 0, 1)
                row = (key, *scores, "judge", "parsed", 1)
            labels.append(row)
            if row[6]:
                answers.append((key, 0, 0, "a" * 64, "Score A: 1", row[5]))
            if row[4] == "none":
                drops.append((key, row[5]))
            elif rating == 1 and row[1:4] != (1, 1, 1):
                drops.append((key, "disagrees"))
            else:
                clean.append((key, row[1], row[2], int(row[1:4] == (1, 1, 1))))
    rows: dict[str, tuple[list[Any], dict[str, Any]]] = {
        "trajectories": (trajectories, TRAJECTORIES),
        "steps": (steps, STEPS),
        "labels": (labels, LABELS),
        "answers": (answers, ANSWERS),
        "clean": (clean, CLEAN),
        "drops": (drops, DROPS),
    }
    return {name: pl.DataFrame(values, schema=schema, orient="row") for name, (values, schema) in rows.items()}


@dataclass(frozen=True)
class Fault:
    """A corruption of one table, and the words of the gate that must detect it."""

    name: str
    table: str
    spoil: Callable[[pl.DataFrame], pl.DataFrame]
    suite: str
    says: str

    def its_gates(self, suites: Iterable[Suite]) -> Suite:
        """The suite with no other gates than those whose words it names: each gate of a suite takes a while."""
        words = self.says.partition(" where")[0]
        (suite,) = (suite for suite in suites if suite.name == self.suite)
        return replace(suite, gates=tuple(gate for gate in suite.gates if words in gate.says))


def set_values(column: str, value: object, where: pl.Expr) -> Callable[[pl.DataFrame], pl.DataFrame]:
    new = pl.when(where).then(pl.lit(value)).otherwise(pl.col(column))
    return lambda table: table.with_columns(new.cast(table.schema[column]).alias(column))


def set_first(column: str, value: object) -> Callable[[pl.DataFrame], pl.DataFrame]:
    return set_values(column, value, pl.int_range(pl.len()) == 0)


def reverse(column: str) -> Callable[[pl.DataFrame], pl.DataFrame]:
    return lambda table: table.with_columns(pl.col(column).reverse())


def train_tables() -> Tables:
    """The clean tables as trees, the last two problems held out."""
    tables = clean_tables()
    records = tables["clean"].join(tables["steps"].drop("source"), on="id", maintain_order="left")
    fields = ("id", "step_index", "step", "math", "consistency", "correctness")
    branches = records.group_by("trajectory_id", maintain_order=True).agg(branches=pl.struct(*fields))
    trees = tables["trajectories"].join(branches, on="trajectory_id", maintain_order="left")
    trees = trees.rename({"trajectory_id": "tree_id"}).select(*TREES)
    return tables | {"train": trees.head(8), "test": trees.tail(2)}


def kept_records(tables: Tables) -> int:
    return sum(int(tables[side]["branches"].list.len().sum()) for side in SIDES)
