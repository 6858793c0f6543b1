"""Each fault planted in the training set is detected by its gate, and a clean set passes."""

from __future__ import annotations

from collections.abc import Callable

import polars as pl
import pytest

from pathfinder.core.params import Mix
from pathfinder.core.records import TREES
from pathfinder.gates.checker import Checker
from pathfinder.gates.suites import structure
from pathfinder.gates.train_suites import TRAIN_SCHEMAS, train_contents
from tests.support.gate_tables import BOUNDS, Fault, kept_records, reverse, set_first, train_tables


def _branches(**fields: pl.Expr) -> Callable[[pl.DataFrame], pl.DataFrame]:
    spoilt = pl.element().struct.with_fields(**fields)
    return lambda table: table.with_columns(pl.col("branches").list.eval(spoilt)).cast({"branches": TREES["branches"]})


def _column(name: str, value: pl.Expr) -> Callable[[pl.DataFrame], pl.DataFrame]:
    return lambda table: table.with_columns(value.alias(name))


FAULTS = [
    Fault("no test set", "test", lambda t: t.clear(), "test_trees", "at least one row"),
    Fault("branches lost", "train", lambda t: t.drop("branches"), "train_structure", "the columns are"),
    Fault("branches as text", "train", _column("branches", pl.lit("x")), "train_structure", "branches is"),
    Fault("tree twice", "train", lambda t: pl.concat([t, t.head(1)]), "train_trees", "tree_id does not repeat"),
    Fault("tree lost", "train", lambda t: t.tail(7), "train_counts", "train and test hold what build kept"),
    Fault("a problem on both sides", "test", reverse("problem_id"), "test_trees", "problem_id_right is 1"),
    Fault("tree on both sides", "test", lambda t: t, "test_trees", "on_other_side is 0"),
    Fault("record on both sides", "train", lambda t: t, "train_records", "on_other_side is 0"),
    Fault("tree of nobody", "train", set_first("tree_id", "nobody"), "train_trees", "trajectory_found is 1"),
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
    Fault("problem too long", "train", set_first("problem", "x" * 1001), "train_trees", "problem_chars"),
    Fault("source of nobody", "train", set_first("source", "web"), "train_trees", "source is prm800k"),
    Fault("digest cut", "train", set_first("problem_id", "abc"), "train_trees", "problem_id is 16 hexadecimal digits"),
    Fault("label is 2", "train", _branches(math=pl.lit(2, pl.Int8)), "train_records", "math is 0 or 1"),
    Fault("label lost", "train", _branches(consistency=pl.lit(None, pl.Int8)), "train_records", "consistency is given"),
    Fault(
        "reward despite an error",
        "train",
        _branches(math=pl.lit(0, pl.Int8), correctness=pl.lit(1, pl.Int8)),
        "train_records",
        "math is 1 where correctness == 1",
    ),
    Fault("record twice", "train", _branches(id=pl.lit("again")), "train_records", "id does not repeat"),
    Fault("record of nobody", "test", _branches(id=pl.lit("nobody")), "test_records", "record_found is 1"),
    Fault("another's record", "train", reverse("branches"), "train_records", "tree_right is 1"),
    Fault("step text changed", "train", _branches(step=pl.lit("another")), "train_records", "record_right is 1"),
    Fault("step text endless", "train", _branches(step=pl.lit("x" * 1001)), "train_records", "step_chars"),
    Fault("place negative", "train", _branches(step_index=pl.lit(-1, pl.Int64)), "train_records", "step_index is at"),
    Fault("nothing right to learn", "train", _branches(correctness=pl.lit(0, pl.Int8)), "train_shares", "share of <+>"),
]
MOVED = {"tree on both sides", "record on both sides"}


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_every_planted_fault_is_detected_by_its_gate(fault: Fault) -> None:
    tables = train_tables()
    kept = kept_records(tables)
    tables[fault.table] = fault.spoil(tables[fault.table])
    if fault.name in MOVED:
        tables["test"] = pl.concat([tables["test"], tables["train"].head(1)])
    if fault.suite.endswith("_structure"):
        suites = structure(tables, TRAIN_SCHEMAS)
    else:
        suites = list(train_contents(tables, kept, BOUNDS))
    caught = [r for r in Checker().run([fault.its_gates(suites)]) if not r.passed]
    assert any(fault.says in r.says for r in caught), [str(r) for r in caught]


def test_a_clean_training_set_passes_every_gate() -> None:
    tables = train_tables()
    suites = [*structure(tables, TRAIN_SCHEMAS), *train_contents(tables, kept_records(tables), BOUNDS)]
    results = Checker().run(suites)
    assert [str(r) for r in results if not r.passed] == []
    assert len(results) > 60


@pytest.mark.parametrize(
    ("name", "tolerance", "passes"), [("1k", 0.1, False), ("1k", 0.99, True), ("prm800k", 0.1, None)]
)
def test_a_mix_with_another_number_of_records_than_its_name_says_is_named(
    name: str, tolerance: float, passes: bool | None
) -> None:
    """All rated completions under the name of a mix of 400k is such a fault. A name without a number is not checked."""
    tables = train_tables()
    bounds = BOUNDS.model_copy(update={"mix_tolerance": tolerance})
    suites = train_contents(tables, kept_records(tables), bounds, [Mix(name=name, share=1.0)])
    results = Checker().run([suite for suite in suites if suite.name == "train_mixes"])
    assert [result.passed for result in results] == ([] if passes is None else [passes])
    if passes is False:
        assert f"1k: {kept_records(tables)} records" in str(results[0])
        assert "label.mistral_per_rating" in str(results[0])


def test_fault_names_are_unique() -> None:
    assert len({fault.name for fault in FAULTS}) == len(FAULTS) >= 24
