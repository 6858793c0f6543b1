"""A system that lacks a benchmark's reading is named with its own where a table or chart has both readings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ground.io import read_json, write_json
from stages.report import main
from tests.support.report_inputs import write_best_of_n, write_everything, write_project

RUNS = ("full", "no_subtasks", "plain_error")


@pytest.fixture
def tables(folder: Path, root: Path) -> Any:
    """The tables of three variants with best of n, by section."""
    write_project(root, "quickstart", RUNS)
    write_everything(RUNS)
    for run in RUNS:
        write_best_of_n(run)
    for run in ("full", "plain_error"):
        path = Path(f"metrics/search/{run}.json")
        found = read_json(path)
        write_json(path, found | {"best_of_n": found["best_of_n"] | {"soundness": {"average": {"min": 52.0}}}})
    main([])
    return json.loads(Path("reports/tables.json").read_text())["tables"]


def names(table: Any, column: int = 0) -> list[str]:
    return [row[column] for row in table["rows"]]


def test_in_the_search_table_once(tables: Any) -> None:
    found = names(tables["Search"][0])
    assert {"PathFinder-PRM, best of n by min", "PathFinder-PRM, best of n by min of soundness"} <= {*found}
    alone = [name for name in found if name.startswith("with one label of errors")]
    assert alone[0] == "with one label of errors by soundness, guided search"
    assert all(name.startswith("with one label of errors by soundness, ") for name in alone)
    assert not any(name.endswith("of soundness") for name in alone), "they are the rows above"
    assert "rows “by soundness”" in tables["Search"][0]["caption"]


def test_in_the_ranking_and_its_curves(tables: Any) -> None:
    processbench, prmbench = tables["How good the rewards are"]
    assert {*names(processbench)} == {
        "PathFinder-PRM",
        "without separate subtasks by quality",
        "with one label of errors",
    }
    assert {*names(prmbench)} == {
        "PathFinder-PRM",
        "without separate subtasks by quality",
        "with one label of errors by soundness",
    }
    assert {row["system"] for row in read_json(Path("reports/plots/roc_prmbench.json"))} == {*names(prmbench)}


def test_in_the_details_of_the_benchmarks(tables: Any) -> None:
    (accuracies,) = (table for table in tables["ProcessBench"] if "flagged step" in table["caption"])
    assert names(accuracies)[1:] == ["without separate subtasks by quality", "with one label of errors"]
    (generators,) = (table for table in tables["ProcessBench"] if "generator's solutions" in table["caption"])
    assert generators["headers"][2:] == names(accuracies)
    (auxiliary,) = (table for table in tables["PRMBench"] if "kinds of steps" in table["caption"])
    assert names(auxiliary)[2] == "with one label of errors by soundness"


def test_in_the_paper_s_table_of_searches(tables: Any) -> None:
    """What has no PRM, or a PRM with one score, has no reading."""
    read_by = dict(row[:2] for row in tables["The paper's tables and ours"][3]["rows"])
    ours = {name: by for name, by in read_by.items() if "with one label" in name}
    assert [*ours.values()] == ["soundness"] * 2
    assert read_by["ours: without separate subtasks, repaired"] == read_by["PathFinder-PRM-7B"] == "quality"
    assert {read_by[name] for name in ("pass@1", "major@8", "pass@8", "Math-Shepherd-7B")} == {"–"}
