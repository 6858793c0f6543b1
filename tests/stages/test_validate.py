"""Planted faults: each is caught by the gate that should catch it, and clean data by none."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from pathfinder.core.io import DataError, write_json, write_parquet
from pathfinder.core.params import Validate
from pathfinder.core.records import ANSWERS, CLEAN, DROPS, LABELS, STEPS, TRAJECTORIES, TREES, problem_id
from pathfinder.gates import gates
from pathfinder.gates.gates import Checker, check
from pathfinder.gates.suites import contents, file_of, structure
from pathfinder.gates.train_suites import SIDES, TRAIN_SCHEMAS, train_contents
from stages.validate import main

Tables = dict[str, pl.DataFrame]
BOUNDS = Validate(
    min_parsed_share=0.5,
    max_dropped_share=0.7,
    min_agreement=0.5,
    min_positive_share=0.2,
    max_positive_share=0.95,
    max_text_chars=1000,
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
    """A corruption of one table and words of the gate that must catch it."""

    name: str
    table: str
    spoil: Callable[[pl.DataFrame], pl.DataFrame]
    suite: str
    says: str


def _set(column: str, value: object, where: pl.Expr) -> Callable[[pl.DataFrame], pl.DataFrame]:
    new = pl.when(where).then(pl.lit(value)).otherwise(pl.col(column))
    return lambda table: table.with_columns(new.cast(table.schema[column]).alias(column))


def _first(column: str, value: object) -> Callable[[pl.DataFrame], pl.DataFrame]:
    return _set(column, value, pl.int_range(pl.len()) == 0)


def _shuffled(column: str) -> Callable[[pl.DataFrame], pl.DataFrame]:
    return lambda table: table.with_columns(pl.col(column).reverse())


_SCORES = ("math", "consistency", "optimality")
_RATED = pl.col("origin") == "rating"
_JUDGED = pl.col("origin") == "judge"
FAULTS = [
    Fault("labels lost", "labels", lambda t: t.head(len(t) - 3), "labels", "one label a step"),
    Fault("labels empty", "labels", lambda t: t.clear(), "labels", "one label a step"),
    Fault(
        "label twice", "labels", lambda t: pl.concat([t.tail(len(t) - 1), t.tail(1)]), "labels", "id does not repeat"
    ),
    Fault("math is 2", "labels", _set("math", 2, _JUDGED), "labels", "math is 0 or 1"),
    Fault(
        "all scores null", "labels", _set("math", None, pl.lit(True)), "labels", "math is given where origin == 'judge'"
    ),
    Fault("score as float", "labels", lambda t: t.cast({"math": pl.Float64}), "labels_structure", "math is Int8"),
    Fault("score as bool", "clean", lambda t: t.cast({"math": pl.Boolean}), "clean_structure", "math is Int8"),
    Fault("column lost", "clean", lambda t: t.drop("consistency"), "clean_structure", "the columns are"),
    Fault(
        "steps as text",
        "trajectories",
        lambda t: t.with_columns(steps=pl.lit("x")),
        "trajectories_structure",
        "steps is",
    ),
    Fault("rating 1 not all ones", "labels", _set("consistency", 0, _RATED), "labels", "consistency is 1 where"),
    Fault("rating 0 optimal", "labels", _set("optimality", 1, _RATED), "labels", "optimality is 0 where"),
    Fault("score without a parse", "labels", _set("outcome", "unparsed", _JUDGED), "labels", "outcome is parsed where"),
    Fault("outcome invented", "labels", _first("outcome", "perhaps"), "labels", "outcome is given or parsed"),
    Fault(
        "failure became a score", "labels", _set("math", 0, pl.col("outcome") == "unparsed"), "labels", "math is null"
    ),
    Fault("judge without answers", "labels", _set("attempts", 0, _JUDGED), "labels", "attempts is at least 1"),
    Fault("answer lost", "answers", lambda t: t.tail(len(t) - 1), "labels", "attempts_right"),
    Fault("answer of nobody", "answers", _first("id", "nobody"), "answers", "label_found"),
    Fault("answer digest cut", "answers", _first("prompt_digest", "abc"), "answers", "prompt_digest is a sha256"),
    Fault("label of no step", "labels", _first("id", "nobody"), "labels", "step_found"),
    Fault("step twice", "steps", lambda t: pl.concat([t, t.head(1)]), "steps", "id does not repeat"),
    Fault("rating 5", "steps", _first("rating", 5), "steps", "rating is -1 or 0 or 1"),
    Fault("Monte-Carlo 0", "steps", _set("rating", 0, pl.col("source") != "prm800k"), "steps", "rating is not 0"),
    Fault("orphan step", "steps", _first("trajectory_id", "nobody"), "steps", "trajectory_found"),
    Fault("step past the trunk", "steps", _first("step_index", 9), "steps", "prefix_right"),
    Fault("negative place", "steps", _first("step_index", -1), "steps", "step_index is at least 0"),
    Fault("text too long", "steps", _first("step", "x" * 1001), "steps", "step_chars"),
    Fault("null step", "steps", _first("step", None), "steps", "step_chars is given"),
    Fault("problems shuffled", "trajectories", _shuffled("problem"), "trajectories", "problem_id_right"),
    Fault("problem empty", "trajectories", _first("problem", ""), "trajectories", "problem_chars"),
    Fault("source invented", "trajectories", _first("source", "web"), "trajectories", "source is prm800k"),
    Fault("clean lost", "clean", lambda t: t.tail(len(t) - 1), "clean", "every label is kept or dropped"),
    Fault(
        "reward against rating",
        "clean",
        _set("correctness", 1, pl.lit(True)),
        "clean",
        "correctness is 0 where rating == -1",
    ),
    Fault(
        "reward against labels",
        "clean",
        _set("correctness", 1, pl.col("math") == 0),
        "clean",
        "math is 1 where correctness",
    ),
    Fault(
        "labels swapped",
        "clean",
        lambda t: t.rename({"math": "consistency", "consistency": "math"}).select(*CLEAN),
        "clean",
        "labels_right",
    ),
    Fault(
        "kept and dropped",
        "drops",
        lambda t: t.with_columns(id=pl.lit("prm800k-0123abcd-1-0-0")),
        "clean",
        "is_dropped",
    ),
    Fault("drop reason invented", "drops", _first("reason", "why not"), "drops", "reason is disagrees"),
    Fault("drop reason untrue", "drops", _first("reason", "too_long"), "drops", "reason_right"),
    Fault("judge mute", "answers", _set("outcome", "unparsed", pl.lit(True)), "shares", "share of answers parsed"),
    Fault(
        "nearly all dropped",
        "drops",
        lambda t: _all_dropped(),
        "shares",
        "share dropped",
    ),
    Fault("one class only", "clean", _set("correctness", 0, pl.lit(True)), "shares", "share of <+>"),
    Fault(
        "judge against ratings",
        "labels",
        lambda t: t.with_columns(pl.when(_JUDGED).then(1).otherwise(pl.col(c)).cast(pl.Int8).alias(c) for c in _SCORES),
        "agreement",
        "the judge agrees with the rating",
    ),
]


def _all_dropped() -> pl.DataFrame:
    ids = clean_tables()["labels"].filter(pl.col("origin") != "none")["id"]
    return pl.DataFrame({"id": ids, "reason": ["disagrees"] * len(ids)}, schema=DROPS)


def train_tables() -> Tables:
    """The clean tables as trees, the last two problems held out."""
    tables = clean_tables()
    records = tables["clean"].join(tables["steps"].drop("source"), on="id", maintain_order="left")
    fields = ("id", "step_index", "step", "math", "consistency", "correctness")
    branches = records.group_by("trajectory_id", maintain_order=True).agg(branches=pl.struct(*fields))
    trees = tables["trajectories"].join(branches, on="trajectory_id", maintain_order="left")
    trees = trees.rename({"trajectory_id": "tree_id"}).select(*TREES)
    return tables | {"train": trees.head(8), "test": trees.tail(2)}


def _branches(**fields: pl.Expr) -> Callable[[pl.DataFrame], pl.DataFrame]:
    spoilt = pl.element().struct.with_fields(**fields)
    return lambda table: table.with_columns(pl.col("branches").list.eval(spoilt)).cast({"branches": TREES["branches"]})


def _column(name: str, value: pl.Expr) -> Callable[[pl.DataFrame], pl.DataFrame]:
    return lambda table: table.with_columns(value.alias(name))


TRAIN_FAULTS = [
    Fault("no test set", "test", lambda t: t.clear(), "test_trees", "at least one row"),
    Fault("branches lost", "train", lambda t: t.drop("branches"), "train_structure", "the columns are"),
    Fault("branches as text", "train", _column("branches", pl.lit("x")), "train_structure", "branches is"),
    Fault("tree twice", "train", lambda t: pl.concat([t, t.head(1)]), "train_trees", "tree_id does not repeat"),
    Fault("tree lost", "train", lambda t: t.tail(7), "train_counts", "train and test hold what build kept"),
    Fault("a problem on both sides", "test", _shuffled("problem_id"), "test_trees", "problem_id_right is 1"),
    Fault("tree on both sides", "test", lambda t: t, "test_trees", "on_other_side is 0"),
    Fault("record on both sides", "train", lambda t: t, "train_records", "on_other_side is 0"),
    Fault("tree of nobody", "train", _first("tree_id", "nobody"), "train_trees", "trajectory_found is 1"),
    Fault("trunk changed", "train", _column("steps", pl.lit(["a", "b", "c"])), "train_trees", "trajectory_right is 1"),
    Fault("trunk cut", "train", _column("steps", pl.col("steps").list.head(0)), "train_trees", "prefix_right is 1"),
    Fault("null in a trunk", "train", _column("steps", pl.lit([None, "b"])), "train_trees", "null_steps"),
    Fault(
        "tree without records",
        "train",
        _column("branches", pl.col("branches").list.head(0)),
        "train_trees",
        "records is",
    ),
    Fault("problem too long", "train", _first("problem", "x" * 1001), "train_trees", "problem_chars"),
    Fault("source of nobody", "train", _first("source", "web"), "train_trees", "source is prm800k"),
    Fault("digest cut", "train", _first("problem_id", "abc"), "train_trees", "problem_id is 16 hexadecimal digits"),
    Fault("label is 2", "train", _branches(math=pl.lit(2, pl.Int8)), "train_records", "math is 0 or 1"),
    Fault("label lost", "train", _branches(consistency=pl.lit(None, pl.Int8)), "train_records", "consistency is given"),
    Fault(
        "reward beside an error",
        "train",
        _branches(math=pl.lit(0, pl.Int8), correctness=pl.lit(1, pl.Int8)),
        "train_records",
        "math is 1 where correctness == 1",
    ),
    Fault("record twice", "train", _branches(id=pl.lit("again")), "train_records", "id does not repeat"),
    Fault("record of nobody", "test", _branches(id=pl.lit("nobody")), "test_records", "record_found is 1"),
    Fault("another's record", "train", _shuffled("branches"), "train_records", "tree_right is 1"),
    Fault("step text changed", "train", _branches(step=pl.lit("another")), "train_records", "record_right is 1"),
    Fault("step text endless", "train", _branches(step=pl.lit("x" * 1001)), "train_records", "step_chars"),
    Fault("place negative", "train", _branches(step_index=pl.lit(-1, pl.Int64)), "train_records", "step_index is at"),
    Fault("nothing right to learn", "train", _branches(correctness=pl.lit(0, pl.Int8)), "train_shares", "share of <+>"),
]
MOVED = {"tree on both sides", "record on both sides"}


def _kept(tables: Tables) -> int:
    return sum(int(tables[side]["branches"].list.len().sum()) for side in SIDES)


@pytest.mark.parametrize("fault", TRAIN_FAULTS, ids=lambda fault: fault.name)
def test_every_fault_of_the_training_set_is_caught_by_its_gate(fault: Fault) -> None:
    tables = train_tables()
    kept = _kept(tables)
    tables[fault.table] = fault.spoil(tables[fault.table])
    if fault.name in MOVED:
        tables["test"] = pl.concat([tables["test"], tables["train"].head(1)])
    if fault.suite.endswith("_structure"):
        suites = structure(tables, TRAIN_SCHEMAS)
    else:
        suites = train_contents(tables, tables, kept, BOUNDS)
    caught = [r for r in check([suite for suite in suites if suite.name == fault.suite]) if not r.passed]
    assert any(fault.says in r.says for r in caught), [str(r) for r in caught]


def test_a_clean_training_set_passes_every_gate() -> None:
    tables = train_tables()
    results = check(structure(tables, TRAIN_SCHEMAS) + train_contents(tables, tables, _kept(tables), BOUNDS))
    assert [str(r) for r in results if not r.passed] == []
    assert len(results) > 60
    assert len({fault.name for fault in [*FAULTS, *TRAIN_FAULTS]}) == len(FAULTS) + len(TRAIN_FAULTS) >= 60


def test_the_gate_before_training_blocks_and_says_how_many(
    tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = train_tables()
    _project(tmp_path, root, tables)
    monkeypatch.chdir(tmp_path)
    write_json(Path("metrics/build.json"), {"kept": _kept(tables)})
    main(["train"])
    figures = json.loads(Path("metrics/validate_train.json").read_text())
    assert figures["read"] == figures["kept"] == _kept(tables)
    write_json(Path("metrics/build.json"), {"kept": _kept(tables) + 1})
    with pytest.raises(DataError, match="train and test hold what build kept"):
        main(["train"])
    assert Path("reports/validation_train/index.html").exists()


def test_clean_data_passes_every_gate(tmp_path: Path) -> None:
    tables = clean_tables()
    checker = Checker()
    results = checker.run(structure(tables)) + checker.run(contents(tables, BOUNDS))
    checker.write_docs(tmp_path)
    assert [str(r) for r in results if not r.passed] == []
    assert len(results) > 100
    assert {r.suite for r in results} >= {"trajectories", "steps", "labels", "answers", "clean", "drops", "shares"}
    assert any(tmp_path.rglob("index.html"))


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_every_planted_fault_is_caught_by_its_gate(fault: Fault) -> None:
    tables = clean_tables()
    tables[fault.table] = fault.spoil(tables[fault.table])
    suites = structure(tables) if fault.suite.endswith("_structure") else list(contents(tables, BOUNDS))
    caught = [r for r in check([suite for suite in suites if suite.name == fault.suite]) if not r.passed]
    assert any(fault.says in r.says for r in caught), [str(r) for r in caught]


def test_a_big_table_is_judged_by_its_distinct_values_with_the_same_outcome(monkeypatch: pytest.MonkeyPatch) -> None:
    tables = clean_tables()
    for fault in FAULTS[:5] + FAULTS[-12:]:
        if not fault.suite.endswith("_structure"):
            tables[fault.table] = fault.spoil(tables[fault.table])
    whole = check(contents(tables, BOUNDS))
    monkeypatch.setattr(gates, "_WHOLE", 0)
    monkeypatch.setattr(gates, "_NARROW", 4)
    assert check(contents(tables, BOUNDS)) == whole
    assert {True, False} == {result.passed for result in whole}


def _project(folder: Path, root: Path, tables: Tables) -> None:
    for name, table in tables.items():
        write_parquet(folder / file_of(name), table)
    params = (root / "params.yaml").read_text().replace("min_parsed_share: 0.9", "min_parsed_share: 0.5")
    (folder / "params.yaml").write_text(params)


def test_the_stage_blocks_and_names_gate_file_rows_and_examples(
    tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = clean_tables()
    tables["labels"] = _set("math", 2, _JUDGED)(tables["labels"])
    _project(tmp_path, root, tables)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError) as caught:
        main([])
    message = str(caught.value)
    assert "artifacts/labels/labels.parquet: ExpectColumnValuesToBeInSet" in message
    assert "20 of 40 rows break it" in message
    assert "prm800k-0123abcd-1-2-2" in message
    assert json.loads(Path("metrics/validate.json").read_text())["success"] is False


def test_the_stage_writes_the_same_bytes_twice_and_no_markup_from_the_data(
    tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _project(tmp_path, root, clean_tables())
    monkeypatch.chdir(tmp_path)
    main([])
    files = [Path("reports/validation") / name for name in ("validation.json", "index.html")]
    first = [file.read_bytes() for file in files]
    main([])
    assert [file.read_bytes() for file in files] == first
    page = first[1].decode()
    assert "<script" not in page
    assert "http" not in page.replace("http-equiv", "")
    metrics = json.loads(Path("metrics/validate.json").read_text())
    assert metrics["success"] is True
    assert metrics["read"] == metrics["kept"] == len(clean_tables()["clean"])
    assert any(Path(".pathfinder/data_docs").rglob("index.html"))
