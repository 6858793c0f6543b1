"""Runs without scores after the first incorrect step."""

from __future__ import annotations

from pathlib import Path

from pathfinder.core.io import read_json, read_jsonl, write_json, write_jsonl
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
