"""Runs without scores after the first incorrect step, and solutions without any."""

from __future__ import annotations

from pathlib import Path

from ground.io import read_json, read_jsonl, write_json, write_jsonl
from pathfinder.reporting.paper_tables import _with_ours
from stages.report import main
from tests.support.report_inputs import write_everything, write_project


def test_a_run_that_stopped_early_is_named_in_place_of_its_figures(folder: Path, root: Path) -> None:
    write_project(root, "quickstart")
    write_everything()
    path, lines = Path("metrics/processbench/full.json"), Path("artifacts/predictions/processbench/full.jsonl")
    metrics = read_json(path)
    del metrics["thresholds"]
    write_json(path, metrics | {"early_stop": {"steps": 9, "scored": 5}})
    rows = [row for _, row in read_jsonl(lines)]
    write_jsonl(lines, [row | {"steps": row["steps"][: max(row["prediction"], 0) + 1]} for row in rows])
    main([])
    page = Path("reports/report.html").read_text()
    assert page.count("full: no scores after the first incorrect step (processbench.early_stop); no") == 2
    assert "<td>–</td><td>–</td><td>–</td>" in page, "steps after the first incorrect one are not scored"
    assert "no_subtasks, fixed" in page
    assert "full, fixed" not in page
    assert {row["system"] for row in read_json(Path("reports/plots/roc_prmbench.json"))} - {
        row["system"] for row in read_json(Path("reports/plots/roc_processbench.json"))
    } == {"PathFinder-PRM"}


def test_a_difference_below_a_twentieth_is_not_minus_zero() -> None:
    table = _with_ours("", ("system", "Avg."), [], [(("ours",), [9.96], [10.0])])
    assert [*map(tuple, table.rows)] == [("ours", "10.0"), ("difference", "+0.0")]


def test_the_published_similarity_is_called_a_gap(folder: Path, root: Path) -> None:
    """It is 0 for equal verdicts."""
    write_project(root, "quickstart")
    write_everything()
    main([])
    found = read_json(Path("reports/tables.json"))["tables"]["PRMBench"]
    (table,) = (table for table in found if "kinds of steps" in table["caption"])
    assert table["headers"][-1] == "gap to the correct counterpart"
    assert "“similarity”; larger is less alike" in table["caption"]


def test_a_solution_longer_than_the_context_is_counted_and_stops_no_report(folder: Path, root: Path) -> None:
    write_project(root, "quickstart")
    write_everything()
    lines = Path("artifacts/predictions/processbench/full.jsonl")
    first, *rows = (row for _, row in read_jsonl(lines))
    write_jsonl(lines, [first | {"prediction": None, "prediction_quality": None, "steps": []}, *rows])
    lines = Path("artifacts/predictions/prmbench/full.jsonl")
    first, *rows = (row for _, row in read_jsonl(lines))
    write_jsonl(lines, [first | {"scores": {}, "validity": False, "steps": []}, *rows])
    for path in (Path("metrics/processbench/full.json"), Path("metrics/prmbench/full.json")):
        write_json(path, read_json(path) | {"too_long": 1})
    main([])
    page = Path("reports/report.html").read_text()
    assert "longer than the model&#39;s context, which count as missed: full 1." in page
    assert "longer than the model&#39;s context, which count as invalid: full 1." in page
