"""Learning curves, and the names and figures of single runs."""

from __future__ import annotations

import json
from pathlib import Path

from ground.io import write_json
from pathfinder.training.run import _CURVE_TREES
from stages.report import main
from tests.support.report_inputs import SEEDED, write_everything, write_project


def test_learning_curves_are_drawn_from_the_logs(folder: Path, root: Path) -> None:
    write_project(root, "quickstart")
    write_everything()
    for run, labels in {
        "full": ("math", "consistency"),
        "no_error_categories": (),
        "no_subtasks": ("correctness",),
    }.items():
        held_out = {f"held_out_{figure}_{name}": 0.5 for name in labels for figure in ("loss", "accuracy")}
        log = [{"step": step, "loss": 0.4, "learning_rate": 0.1} for step in range(1, 9)]
        write_json(Path(f"metrics/train/{run}_log.json"), [*log[:3], log[3] | held_out, *log[4:7], log[7] | held_out])
    main([])
    rows = json.loads(Path("reports/plots/held_out.json").read_text())
    assert [(row["system"], row["step"]) for row in rows] == [
        ("PathFinder-PRM: math", 4),
        ("PathFinder-PRM: consistency", 4),
        ("PathFinder-PRM: math", 8),
        ("PathFinder-PRM: consistency", 8),
        ("without separate subtasks: correctness", 4),
        ("without separate subtasks: correctness", 8),
    ]
    page = Path("reports/report.md").read_text()
    assert "PathFinder-PRM: from 0.500 to 0.500; without separate subtasks: from 0.500 to 0.500." in page
    part = f"on up to {_CURVE_TREES} of the held-out trees"
    assert f"Learning curves: loss per label {part}" in page
    assert f"PathFinder-PRM: accuracy of each label {part}" in page


def test_runs_are_named_with_their_systems_and_accuracies_are_percentages_everywhere(folder: Path, root: Path) -> None:
    write_project(root, "seeds", SEEDED)
    write_everything(SEEDED)
    main([])
    page = Path("reports/report.md").read_text()
    assert "| full-s2 (PathFinder-PRM) |" in page.replace("toy: ", "")
    assert "| accuracy, % | majority accuracy, % | area under ROC |" in page
    assert "| full | math | 9 | 50.0 | 40.0 | 0.750 |" in page
