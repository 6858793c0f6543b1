"""The gates of steps, labels, answers, clean and drops, and of the shares between them.

Each suite checks one file joined with the tables that it refers to, so a rule about two tables is a rule about one row.
Texts are replaced by their lengths. The label algebra is section 3.3 of the paper.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import polars as pl

from pathfinder.core.labels import (
    CORRECTNESS,
    CRITERIA,
    DISAGREES,
    ERROR_TYPES,
    HUMAN,
    MONTE_CARLO,
    OUTCOMES,
    PREDICTED,
    STEP_LABELS,
    UNASKED,
    drop_reason,
)
from pathfinder.core.params import Validate
from pathfinder.core.records import ANSWERS, CLEAN, DROPS, LABELS, STEPS, TRAJECTORIES, problem_id
from pathfinder.gates import gates
from pathfinder.gates.gates import Gate, Suite, one_of, present, unique, within

SCHEMAS: dict[str, dict[str, Any]] = {
    "trajectories": TRAJECTORIES,
    "steps": STEPS,
    "labels": LABELS,
    "answers": ANSWERS,
    "clean": CLEAN,
    "drops": DROPS,
}
_FOLDERS = {"trajectories": "steps", "answers": "labels", "drops": "clean", "train": "train", "test": "train"}
_JUDGED = tuple(kind.name for kind in ERROR_TYPES if not kind.caption)
"""The criteria without a label in the training data."""
_ASKED = tuple(outcome for outcome in OUTCOMES if outcome not in ("given", *UNASKED))

Tables = Mapping[str, pl.DataFrame]


def file_of(name: str) -> str:
    """The file of a table, relative to the root of the project."""
    return f"artifacts/{_FOLDERS.get(name, name)}/{name}.parquet"


def without_answers(answers: pl.LazyFrame) -> pl.LazyFrame:
    """The judge's answers with empty texts: at the paper's size, the texts fill gigabytes, and no gate reads them."""
    if answers.collect_schema().get("answer") != pl.String():
        return answers  # the suites of structure report it
    return answers.with_columns(answer=pl.when(pl.col("answer").is_not_null()).then(pl.lit("")))


def structure(tables: Tables, schemas: Mapping[str, Mapping[str, Any]] = SCHEMAS) -> list[Suite]:
    """Columns and types of every table. The other suites require that these pass."""
    suites = []
    for name, schema in schemas.items():
        table = tables[name]
        lists = [column for column, dtype in schema.items() if isinstance(dtype, pl.List)]
        # pandas has no type for lists, so such a column contains the name of its type
        named = [pl.lit(str(table.schema[column])).alias(column) for column in lists if column in table.columns]
        flat = gates.columns({**schema, **dict.fromkeys(lists, pl.String())})
        typed = (one_of(column, [str(schema[column])]) for column in lists)
        shown = table.head(1).with_columns(named)
        suites.append(Suite(f"{name}_structure", file_of(name), "", shown, (*flat, *typed)))
    return suites


def contents(tables: Tables, bounds: Validate) -> Iterator[Suite]:
    """Every rule about rows; ``tables`` have passed ``structure``. The joined tables are made one at a time."""
    yield _trajectories(tables, bounds)
    yield _steps(tables, bounds)
    yield _labels(tables)
    yield _answers(tables)
    yield _clean(tables)
    yield _drops(tables)
    figures = shares(tables)
    row = pl.DataFrame([figures], schema=dict.fromkeys(figures, pl.Float64()))
    low, high = bounds.min_parsed_share, bounds.max_dropped_share
    share_gates = (
        within("parsed", low, None, f"share of answers parsed >= {low}"),
        within("dropped", None, high, f"share dropped <= {high}"),
        positive_gate(bounds),
    )
    yield Suite("shares", file_of("clean"), "", row, share_gates)
    low = bounds.min_agreement
    says = f"the judge agrees with the rating in at least {low} of the labels of each source and rating"
    agreement_gates = (present("agreement"), within("agreement", low, None, says))
    yield Suite("agreement", file_of("labels"), "rating", agreement(tables), agreement_gates)


def shares(tables: Tables) -> dict[str, float | None]:
    """The shares of parsed answers, dropped labels and correct steps; ``None`` if there are no records.

    ``dropped`` excludes steps that were left unlabelled on purpose (``not_sampled``, ``unrated``).
    """
    labels = tables["labels"].filter(~pl.col("outcome").is_in(UNASKED))
    dropped = tables["drops"].join(labels, on="id", how="semi")
    parts = {
        "parsed": (int((tables["answers"]["outcome"] == "parsed").sum()), len(tables["answers"])),
        "dropped": (len(dropped), len(labels)),
        "positive": (int((tables["clean"]["correctness"] == 1).sum()), len(tables["clean"])),
    }
    return {name: part / whole if whole else None for name, (part, whole) in parts.items()}


def agreement(tables: Tables) -> pl.DataFrame:
    """The number of labels by the judge, by source and rating, and the share that agrees with the rating."""
    judged = tables["labels"].filter(pl.col("origin") == "judge").drop("origin")
    rated = tables["steps"].select("id", "source", "rating").join(judged, on="id", maintain_order="left")
    return (
        rated.group_by("source", "rating")
        .agg(judged=pl.len(), agreement=(drop_reason().is_null()).mean())
        .sort("source", "rating")
        .select(pl.format("{} {}", "source", "rating").alias("rating"), pl.col("judged").cast(pl.Int64), "agreement")
    )


# Each table is joined with the tables that it names. A column ``…_found`` or ``…_right`` is 1 if the name is valid.


def _trajectories(tables: Tables, bounds: Validate) -> Suite:
    table = tables["trajectories"]
    return _suite(
        "trajectories",
        table.select(pl.exclude("problem", "steps"), **text_measures(table)),
        gates.some_rows(),
        unique("trajectory_id"),
        *(present(name) for name in ("trajectory_id", "source", "file", "line", "problem_id", "problem_chars")),
        one_of("source", (HUMAN, *MONTE_CARLO)),
        within("line", 1, None),
        gates.matches("problem_id", "^[0-9a-f]{16}$", "problem_id is 16 hexadecimal digits"),
        *flagged("problem_id_right"),
        *text_gates(bounds),
        key="trajectory_id",
    )


def _steps(tables: Tables, bounds: Validate) -> Suite:
    parents = tables["trajectories"].unique("trajectory_id")
    trunks = parents.select("trajectory_id", parent_source="source", trunk=pl.col("steps").list.len())
    place = pl.col("id").str.extract(r"-(\d+)-\d+$").cast(pl.Int64, strict=False)  # in the upstream line
    name = pl.format("{}-{}-{}", "trajectory_id", place, "completion")
    return _suite(
        "steps",
        left_join(tables["steps"], trunks, on="trajectory_id").select(
            pl.exclude("step", "trunk", "parent_source"),
            step_chars=length("step"),
            trajectory_found=flag(pl.col("trunk").is_not_null()),
            source_right=flag(pl.col("parent_source") == pl.col("source")),
            prefix_right=flag(pl.col("step_index") <= pl.col("trunk")),
            # the preset official leaves steps without a choice out of the trunk
            id_right=flag((pl.col("id") == name) & (pl.col("step_index") <= place)),
        ),
        gates.some_rows(),
        unique("id"),
        *(present(name) for name in STEPS if name not in ("step", "rating")),
        present("step_chars"),
        one_of("source", (HUMAN, *MONTE_CARLO)),
        within("step_index", 0, None),
        within("completion", 0, None),
        within("step_chars", 0, bounds.max_text_chars),
        one_of("rating", [-1, 0, 1]),
        *(gates.none_of("rating", [0], source=source) for source in MONTE_CARLO),
        *flagged("trajectory_found", "source_right", "prefix_right", "id_right"),
    )


def _labels(tables: Tables) -> Suite:
    asked = tables["answers"].group_by("id").agg(asked=pl.len())
    return _suite(
        "labels",
        left_join(tables["labels"], _rated(tables), asked).select(
            pl.exclude("asked"),
            step_found=flag(pl.col("step_source").is_not_null()),
            attempts_right=flag(pl.col("attempts") == pl.col("asked").fill_null(0)),
        ),
        gates.row_count(len(tables["steps"]), "one label per step"),
        unique("id"),
        *(present(name) for name in ("id", "origin", "outcome", "attempts")),
        *flagged("step_found"),
        *(one_of(name, [0, 1]) for name in CRITERIA),
        one_of("origin", ["rating", "judge", "none"]),
        one_of("outcome", OUTCOMES),
        within("attempts", 0, None),
        *(one_of(name, [1], step_source=HUMAN, rating=1) for name in CRITERIA),
        *(one_of(kind.name, [kind.neutral], step_source=HUMAN, rating=0) for kind in ERROR_TYPES),
        *(one_of("origin", ["rating"], step_source=HUMAN, rating=rating) for rating in (1, 0)),
        *(present(name, origin=origin) for origin in ("rating", "judge") for name in CRITERIA),
        *(gates.absent(name, origin="none") for name in CRITERIA),
        one_of("step_source", [HUMAN], origin="rating"),
        one_of("outcome", ["given"], origin="rating"),
        one_of("outcome", ["parsed"], origin="judge"),
        gates.none_of("outcome", ["given", "parsed"], origin="none"),
        one_of("outcome", ["unrated"], rating=None),
        within("attempts", 1, None, origin="judge"),
        one_of("attempts", [0], origin="rating"),
        *flagged("attempts_right"),
    )


def _answers(tables: Tables) -> Suite:
    return _suite(
        "answers",
        left_join(tables["answers"], _ids(tables["labels"], "label_found")).select(
            pl.exclude("answer", "label_found"),
            answer_chars=length("answer"),
            label_found=pl.col("label_found").fill_null(0),
            attempt_of=pl.format("{} attempt {}", "id", "attempt"),
        ),
        unique("attempt_of"),
        *(present(name) for name in ("id", "attempt", "round", "prompt_digest", "outcome")),
        *flagged("label_found"),
        one_of("outcome", _ASKED),
        within("attempt", 0, None),
        within("round", 0, None),
        gates.matches("prompt_digest", "^[0-9a-f]{64}$", "prompt_digest is a sha256"),
        present("answer_chars", outcome="parsed"),
    )


def _clean(tables: Tables) -> Suite:
    given = tables["labels"].unique("id").select("id", pl.col(CRITERIA).name.prefix("label_"))
    lengths = tables["steps"].unique("id").select("id", step_chars=length("step"))
    copies = {f"label_{kind.name}": kind.name for kind in PREDICTED}
    right = pl.all_horizontal(pl.col(copy) == pl.col(name) for copy, name in copies.items())
    table = left_join(tables["clean"], _rated(tables), given, _ids(tables["drops"], "is_dropped"), lengths).select(
        pl.exclude("is_dropped", *copies),
        label_found=flag(pl.col("step_source").is_not_null() & pl.col(f"label_{CRITERIA[0]}").is_not_null()),
        labels_right=flag(right),
        is_dropped=pl.col("is_dropped").fill_null(0),
    )
    criteria = (*copies.values(), *(f"label_{name}" for name in _JUDGED))
    return _suite(
        "clean",
        table,
        gates.some_rows(),
        gates.row_count(len(tables["labels"]) - len(tables["drops"]), "every label is kept or dropped"),
        unique("id"),
        *(present(name) for name in CLEAN),
        *flagged("label_found"),
        *(one_of(name, [0, 1]) for name in STEP_LABELS),
        *flagged("labels_right"),
        *(one_of(name, [1], correctness=1) for name in criteria),
        one_of(CORRECTNESS, [1], **dict.fromkeys(criteria, 1)),
        present("rating"),
        *(one_of("correctness", [int(rating == 1)], rating=rating) for rating in (-1, 0, 1)),
        one_of("is_dropped", [0]),
        within("step_chars", 0, None),
    )


def _drops(tables: Tables) -> Suite:
    known = tables["labels"].select("id", CRITERIA[0], "outcome").unique("id")
    return _suite(
        "drops",
        left_join(tables["drops"], known, _ids(tables["clean"], "is_kept")).select(
            "id",
            "reason",
            CRITERIA[0],
            label_found=flag(pl.col("outcome").is_not_null()),
            reason_right=flag((pl.col("reason") == DISAGREES) | (pl.col("reason") == pl.col("outcome"))),
            is_kept=pl.col("is_kept").fill_null(0),
        ),
        gates.row_count(len(tables["labels"]) - len(tables["clean"]), "every label is kept or dropped"),
        unique("id"),
        *(present(name) for name in DROPS),
        one_of("reason", (DISAGREES, *OUTCOMES)),
        *flagged("label_found", "reason_right"),
        present(CRITERIA[0], reason=DISAGREES),
        one_of("is_kept", [0]),
    )


def _suite(name: str, table: pl.DataFrame, *rules: Gate, key: str = "id") -> Suite:
    return Suite(name, file_of(name), key, table, rules)


def _rated(tables: Tables) -> pl.DataFrame:
    return tables["steps"].select("id", pl.col("source").alias("step_source"), "rating").unique("id")


def _ids(table: pl.DataFrame, name: str) -> pl.DataFrame:
    """The ids of a table, with a column of ones."""
    return table.select("id", pl.lit(1, pl.Int64).alias(name)).unique("id")


def left_join(table: pl.DataFrame, *others: pl.DataFrame, on: str = "id") -> pl.DataFrame:
    """``table`` with the columns of ``others``, null if they have no such id."""
    for other in others:
        table = table.join(other, on=on, how="left", maintain_order="left")
    return table


def text_measures(table: pl.DataFrame) -> dict[str, pl.Expr]:
    """Columns about the texts of trajectories or trees: the check of ``problem_id``, lengths and null steps."""
    expected = {text: problem_id(text) for text in table["problem"].drop_nulls().unique()}
    named = pl.col("problem").replace_strict(expected, default=None, return_dtype=pl.String)
    steps = pl.col("steps").list
    return {
        "problem_id_right": flag(named == pl.col("problem_id")),
        "problem_chars": length("problem"),
        "longest_step": steps.eval(pl.element().str.len_chars()).list.max().cast(pl.Int64),
        "null_steps": steps.eval(pl.element().is_null()).list.sum().cast(pl.Int64),
    }


def text_gates(bounds: Validate) -> tuple[Gate, ...]:
    """The gates of the lengths in ``text_measures``."""
    limit = bounds.max_text_chars
    return (within("problem_chars", 1, limit), within("longest_step", None, limit), within("null_steps", None, 0))


def positive_gate(bounds: Validate) -> Gate:
    """The share of correct steps is within its bounds."""
    low, high = bounds.min_positive_share, bounds.max_positive_share
    return within("positive", low, high, f"share of <+> within {low} and {high}")


def flagged(*columns: str) -> tuple[Gate, ...]:
    """Each of these flags is 1."""
    return tuple(one_of(column, [1]) for column in columns)


def flag(holds: pl.Expr) -> pl.Expr:
    """1 if a condition holds, else 0."""
    return holds.fill_null(False).cast(pl.Int64)


def length(column: str) -> pl.Expr:
    """The number of characters of a text."""
    return pl.col(column).str.len_chars().cast(pl.Int64)
