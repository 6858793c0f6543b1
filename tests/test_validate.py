"""Planted faults: each is caught by the gate that should catch it, and clean data by none."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from stages.core.gates import check
from stages.core.io import DataError, write_parquet
from stages.core.params import Validate
from stages.core.records import ANSWERS, CLEAN, DROPS, LABELS, STEPS, TRAJECTORIES, problem_id
from stages.core.suites import contents, file_of, structure
from stages.validate import main

Tables = dict[str, pl.DataFrame]
BOUNDS = Validate(
    min_parsed_share=0.5,
    max_dropped_share=0.7,
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
]


def _all_dropped() -> pl.DataFrame:
    ids = clean_tables()["labels"].filter(pl.col("origin") != "none")["id"]
    return pl.DataFrame({"id": ids, "reason": ["disagrees"] * len(ids)}, schema=DROPS)


def test_clean_data_passes_every_gate(tmp_path: Path) -> None:
    tables = clean_tables()
    results = check(structure(tables)) + check(contents(tables, BOUNDS), tmp_path)
    assert [str(r) for r in results if not r.passed] == []
    assert len(results) > 100
    assert {r.suite for r in results} >= {"trajectories", "steps", "labels", "answers", "clean", "drops", "shares"}
    assert any(tmp_path.rglob("index.html"))


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_every_planted_fault_is_caught_by_its_gate(fault: Fault) -> None:
    tables = clean_tables()
    tables[fault.table] = fault.spoil(tables[fault.table])
    suites = structure(tables) if fault.suite.endswith("_structure") else contents(tables, BOUNDS)
    caught = [r for r in check([suite for suite in suites if suite.name == fault.suite]) if not r.passed]
    assert any(fault.says in r.says for r in caught), [str(r) for r in caught]


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
