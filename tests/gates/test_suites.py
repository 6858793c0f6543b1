"""Each planted fault is detected by its gate, and clean data pass."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest

from pathfinder.core.records import CLEAN, DROPS
from pathfinder.data.conversion import Batch, convert_batch
from pathfinder.gates.checker import Checker
from pathfinder.gates.suites import contents, structure
from tests.support.gate_tables import BOUNDS, Fault, clean_tables, reverse, set_first, set_values

_SCORES = ("math", "consistency", "optimality")
_RATED = pl.col("origin") == "rating"
_JUDGED = pl.col("origin") == "judge"
FAULTS = [
    Fault("labels lost", "labels", lambda t: t.head(len(t) - 3), "labels", "one label per step"),
    Fault("labels empty", "labels", lambda t: t.clear(), "labels", "one label per step"),
    Fault(
        "label twice", "labels", lambda t: pl.concat([t.tail(len(t) - 1), t.tail(1)]), "labels", "id does not repeat"
    ),
    Fault("math is 2", "labels", set_values("math", 2, _JUDGED), "labels", "math is 0 or 1"),
    Fault(
        "all scores null",
        "labels",
        set_values("math", None, pl.lit(True)),
        "labels",
        "math is given where origin == 'judge'",
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
    Fault("rating 1 not all ones", "labels", set_values("consistency", 0, _RATED), "labels", "consistency is 1 where"),
    Fault("rating 0 optimal", "labels", set_values("optimality", 1, _RATED), "labels", "optimality is 0 where"),
    Fault(
        "score without a parse",
        "labels",
        set_values("outcome", "unparsed", _JUDGED),
        "labels",
        "outcome is parsed where",
    ),
    Fault("outcome invented", "labels", set_first("outcome", "perhaps"), "labels", "outcome is given or parsed"),
    Fault(
        "failure became a score",
        "labels",
        set_values("math", 0, pl.col("outcome") == "unparsed"),
        "labels",
        "math is null",
    ),
    Fault("judge without answers", "labels", set_values("attempts", 0, _JUDGED), "labels", "attempts is at least 1"),
    Fault("answer lost", "answers", lambda t: t.tail(len(t) - 1), "labels", "attempts_right"),
    Fault("answer of nobody", "answers", set_first("id", "nobody"), "answers", "label_found"),
    Fault("answer digest cut", "answers", set_first("prompt_digest", "abc"), "answers", "prompt_digest is a sha256"),
    Fault("label of no step", "labels", set_first("id", "nobody"), "labels", "step_found"),
    Fault("step twice", "steps", lambda t: pl.concat([t, t.head(1)]), "steps", "id does not repeat"),
    Fault("rating 5", "steps", set_first("rating", 5), "steps", "rating is -1 or 0 or 1"),
    Fault("Monte-Carlo 0", "steps", set_values("rating", 0, pl.col("source") != "prm800k"), "steps", "rating is not 0"),
    Fault("orphan step", "steps", set_first("trajectory_id", "nobody"), "steps", "trajectory_found"),
    Fault("step past the trunk", "steps", set_first("step_index", 9), "steps", "prefix_right"),
    Fault("negative place", "steps", set_first("step_index", -1), "steps", "step_index is at least 0"),
    Fault("ids of other places", "steps", set_values("step_index", 2, pl.col("step_index") == 1), "steps", "id_right"),
    Fault("ids of other lines", "steps", set_first("trajectory_id", "prm800k-0123abcd-3"), "steps", "id_right"),
    Fault("text too long", "steps", set_first("step", "x" * 1001), "steps", "step_chars"),
    Fault("null step", "steps", set_first("step", None), "steps", "step_chars is given"),
    Fault("problems shuffled", "trajectories", reverse("problem"), "trajectories", "problem_id_right"),
    Fault("problem empty", "trajectories", set_first("problem", ""), "trajectories", "problem_chars"),
    Fault("source invented", "trajectories", set_first("source", "web"), "trajectories", "source is prm800k"),
    Fault("clean lost", "clean", lambda t: t.tail(len(t) - 1), "clean", "every label is kept or dropped"),
    Fault(
        "reward against rating",
        "clean",
        set_values("correctness", 1, pl.lit(True)),
        "clean",
        "correctness is 0 where rating == -1",
    ),
    Fault(
        "reward against labels",
        "clean",
        set_values("correctness", 1, pl.col("math") == 0),
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
    Fault("drop reason invented", "drops", set_first("reason", "why not"), "drops", "reason is disagrees"),
    Fault("drop reason untrue", "drops", set_first("reason", "too_long"), "drops", "reason_right"),
    Fault(
        "judge mute", "answers", set_values("outcome", "unparsed", pl.lit(True)), "shares", "share of answers parsed"
    ),
    Fault(
        "nearly all dropped",
        "drops",
        lambda t: _all_dropped(),
        "shares",
        "share dropped",
    ),
    Fault("one class only", "clean", set_values("correctness", 0, pl.lit(True)), "shares", "share of <+>"),
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


def test_clean_data_pass_every_gate(tmp_path: Path) -> None:
    tables = clean_tables()
    checker = Checker()
    results = checker.run(structure(tables)) + checker.run(contents(tables, BOUNDS))
    checker.write_docs(tmp_path)
    assert [str(r) for r in results if not r.passed] == []
    assert len(results) > 100
    assert {r.suite for r in results} >= {"trajectories", "steps", "labels", "answers", "clean", "drops", "shares"}
    assert any(tmp_path.rglob("index.html"))


def test_a_step_left_out_of_the_trunk_keeps_the_places_of_later_ones() -> None:
    steps = [
        {"completions": [{"text": text, "rating": rating}], "chosen_completion": chosen}
        for text, rating, chosen in (("a", 1, 0), ("b", -1, None), ("c", 1, 0))
    ]
    line = json.dumps({"question": {"problem": "p"}, "label": {"steps": steps}}).encode()
    made = convert_batch(Batch("prm800k", "prm800k/x.jsonl", "0" * 64, "official", 0, [(1, line)], len(line)))
    tables = {name: pl.DataFrame(pl.from_arrow(table)) for name, table in made.tables.items()}
    assert tables["steps"]["step_index"].to_list() == [0, 1, 1]
    suite = next(suite for suite in contents(clean_tables() | tables, BOUNDS) if suite.name == "steps")
    assert [str(result) for result in Checker().run([suite]) if not result.passed] == []


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_every_planted_fault_is_detected_by_its_gate(fault: Fault) -> None:
    tables = clean_tables()
    tables[fault.table] = fault.spoil(tables[fault.table])
    suites = structure(tables) if fault.suite.endswith("_structure") else list(contents(tables, BOUNDS))
    caught = [r for r in Checker().run([fault.its_gates(suites)]) if not r.passed]
    assert any(fault.says in r.says for r in caught), [str(r) for r in caught]


def test_fault_names_are_unique() -> None:
    assert len({fault.name for fault in FAULTS}) == len(FAULTS) >= 36
