"""The path of every record, and the check that the counts balance."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ground.io import write_json
from stages.report import main
from tests.support.report_inputs import write_data_stages, write_project


def test_every_record_is_counted_from_line_to_sample(folder: Path, root: Path) -> None:
    write_project(root, "sample")
    write_data_stages()
    main([])
    page = Path("reports/report.html").read_text()
    assert "The counts balance: each stage accounts for all records that the previous one kept" in page
    assert "30 upstream lines were read and 2 of them quarantined" in page
    assert "labelled (rating or judge): 96" in page
    assert "− 6 disagrees" in page
    assert "for training: 60" in page
    assert "120 samples, 2 per record" in page
    assert "disagrees: the judge contradicted the rating on every attempt" in page
    tables = json.loads(Path("reports/tables.json").read_text())["tables"]
    books, split = tables["Where every record went"]
    assert ["filter", "RLHFlow-Mistral", "30", "24", "6", "0", "disagrees 6"] in books["rows"]
    assert split["rows"][0] == ["train", "9", "9", "60", "120", "PRM800K 50, RLHFlow-Mistral 10"]
    assert tables["Overlap with the benchmarks"][0]["rows"] == [
        ["processbench/math", "10", "2", "1", "40", "4", "3", "17.5"]
    ]
    assert "Removed: processbench/math 3 problems, 10 records" in page
    assert tables["Overlap with the benchmarks"][1]["rows"][1][-1] == "10.0"  # only the Mistral steps


@pytest.mark.parametrize(
    ("stage", "key", "expected"),
    [
        ("label", "dropped", "The counts do not balance at: label."),
        ("label", "read", "prepare kept and label read (100 and 101)"),
        ("filter", "kept", "filter kept and validate read (91 and 90)"),
        ("validate", "kept", "validate kept and build read (91 and 90)"),
        ("validate_train", "read", "build kept and validate_train read (80 and 81)"),
        ("build", "kept", "build kept and its two sides contain (81 and 80)"),
    ],
)
def test_counts_that_do_not_balance_are_reported(folder: Path, root: Path, stage: str, key: str, expected: str) -> None:
    write_project(root, "sample")
    write_data_stages()
    path = Path(f"metrics/{stage}.json")
    metrics = json.loads(path.read_text())
    metrics[key] = {"unrated": 3} if key == "dropped" else metrics[key] + 1
    write_json(path, metrics)
    main([])
    page = Path("reports/report.html").read_text()
    assert expected in page
    assert "The counts balance" not in page
    assert "The accuracies are meaningless" in page
