"""The beginning of the report on a small generated world: sentence, verdicts, picture, faults against flags, marks."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from ground.io import write_json, write_jsonl
from pathfinder.reporting.names import TEXTS
from pathfinder.reporting.page.faults import FLAGS
from stages.report import main
from tests.support.report_inputs import write_everything, write_project
from world.oracle import CONSISTENCY_FAULTS, MATH_FAULTS, SUBOPTIMAL

STORY = "Eve has 7 apples.\n1) Eve finds 6.\n2) Eve uses 5.\nHow many apples does Eve have?"
STEPS = [
    "1) finds 6, so 7 + 6 = 13 apples.",
    "2) uses 5, so 13 - 5 = 9 pens.",  # an arithmetic fault, and the unit
    "The answer is \\boxed{9}.",
]
SCORES = [(0.9, 0.9, 0.9), (0.1, 0.2, 0.1), (0.9, 0.4, 0.6)]


@pytest.fixture
def tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, root: Path) -> dict[str, list[dict[str, Any]]]:
    """The report's tables on a benchmark of one story."""
    monkeypatch.chdir(tmp_path)
    write_project(root, "quickstart", ["full"])
    write_everything(["full"])
    item = {"id": "gsm8k-0", "generator": "g", "problem": STORY, "steps": STEPS, "final_answer_correct": False}
    write_json(Path("artifacts/raw/processbench/gsm8k.json"), [item | {"label": 1}])
    Path("artifacts/raw/processbench/math.json").unlink()
    rows = {"subset": "gsm8k", "id": "gsm8k-0", "prediction": 1, "prediction_quality": 1, "label": 1}
    steps = [{"math": math, "consistency": fits, "error_free": None, "reward": r} for math, fits, r in SCORES]
    write_jsonl(Path("artifacts/predictions/processbench/full.jsonl"), [rows | {"steps": steps}])
    (changed,) = (Path("artifacts/raw/prmbench")).glob("*.jsonl")
    content = [json.loads(line) for line in changed.read_text().splitlines()]
    write_jsonl(changed, [row | {"modified_question": STORY, "original_question": STORY} for row in content])
    main([])
    found: dict[str, list[dict[str, Any]]] = json.loads(Path("reports/tables.json").read_text())["tables"]
    return found


def test_each_true_fault_has_the_flags_that_were_raised(tables: dict[str, list[dict[str, Any]]]) -> None:
    table, alarms = tables["What the flags catch"]
    assert alarms["rows"] == [[f"full, {reading}", "–", "0 of 0", "0 of 1"] for reading in ("soundness", "quality")]
    assert table["headers"] == [
        "true fault",
        "steps",
        *FLAGS.values(),
        "reward below one half",
    ]
    assert table["rows"] == [
        ["arithmetic (mathematics): the result is wrong", "1", "0.0", "0.0", "100.0", "0.0", "100.0"],
        ["unit (consistency): another noun than in the problem", "1", "0.0", "0.0", "100.0", "0.0", "100.0"],
        ["no fault", "2", "0.0", "50.0", "0.0", "50.0", "0.0"],
    ]
    assert {*MATH_FAULTS, *CONSISTENCY_FAULTS, *SUBOPTIMAL} == TEXTS["faults"].keys()
    assert len(TEXTS["faults"]) == 19
    page = Path("reports/report.html").read_text()
    assert page.count('<td class="h5" title="count of S') == 2
    assert page.count('<td class="h3" title="count of S') == 2


def test_the_page_begins_with_the_answer_the_verdicts_and_a_scored_solution(
    tables: dict[str, list[dict[str, Any]]],
) -> None:
    page = Path("reports/report.html").read_text()
    main_part = page[page.index("<h1>") :]
    sentence = re.search(r"<p[^>]*>PathFinder-PRM reaches a ProcessBench mean F1 of [\d.]+ .* on toy sets\.</p>", page)
    assert sentence
    assert main_part.index("A process reward model (PRM) judges each step") < main_part.index("PathFinder-PRM reaches")
    places = [
        main_part.index(part) for part in ("PathFinder-PRM reaches", '<ul class="chips">', 'class="picture"', "<h2>")
    ]
    assert places == sorted(places)
    assert "2) uses 5, so 13 - 5 = 9 pens. <b>first error</b> <b>math error</b> <b>consistency error</b>" in main_part
    assert re.search(r"Profile quickstart, \d+ files, sha256 of their list [0-9a-f]{16}\.", page)


@pytest.mark.usefixtures("tables")
def test_a_solution_whose_labels_and_reward_name_different_steps_is_not_the_picture() -> None:
    file = Path("artifacts/predictions/processbench/full.jsonl")
    row = json.loads(file.read_text())
    row["steps"][0]["consistency"] = 0.4  # the badge "first error" would be on this step
    write_jsonl(file, [row])
    main([])
    page = Path("reports/report.html").read_text()
    assert 'class="picture"' not in page[: page.index("<h2>")]


def test_rows_of_generated_sets_are_marked_and_have_no_difference_from_the_paper(
    tables: dict[str, list[dict[str, Any]]],
) -> None:
    rows = [
        row for title in ("Results", "ProcessBench", "PRMBench", "Search") for t in tables[title] for row in t["rows"]
    ]
    assert len(rows) > 10
    assert all(row[0].startswith("toy: ") for row in rows)
    paper = [row[0] for table in tables["The paper's tables and ours"] for row in table["rows"]]
    assert "PathFinder-PRM-7B" in paper
    assert "difference" not in paper
    assert {name for name in paper if "ours" in name} >= {"toy: ours: PathFinder-PRM, as published"}


def test_flags_on_correct_steps_that_are_not_optimal_are_counted_by_reading(
    tables: dict[str, list[dict[str, Any]]],
) -> None:
    """Quality flags a restatement, which is no error; steps from the first error on do not count."""
    assert tables
    steps = [STEPS[0], "So far that is 13 apples.", "2) uses 5, so 13 - 5 = 9 apples.", "So far that is 9 apples."]
    item = {"id": "gsm8k-0", "generator": "g", "problem": STORY, "steps": steps, "final_answer_correct": False}
    write_json(Path("artifacts/raw/processbench/gsm8k.json"), [item | {"label": 2}])
    row = {"subset": "gsm8k", "id": "gsm8k-0", "prediction": 2, "prediction_quality": 1, "label": 2}
    scores = [(0.9, 0.9, 0.9), (0.9, 0.9, 0.1), (0.1, 0.9, 0.1), (0.9, 0.9, 0.1)]
    found = [{"math": math, "consistency": fits, "reward": reward} for math, fits, reward in scores]
    write_jsonl(Path("artifacts/predictions/processbench/full.jsonl"), [row | {"steps": found}])
    main([])
    _, alarms = json.loads(Path("reports/tables.json").read_text())["tables"]["What the flags catch"]
    assert alarms["rows"] == [
        ["full, soundness", "0.0", "0 of 1", "0 of 1"],
        ["full, quality", "100.0", "1 of 1", "0 of 1"],
    ]
    summary = json.loads(Path("metrics/summary.json").read_text())
    assert summary["false_alarms_on_not_optimal"] == {"soundness": 0.0, "quality": 100.0}
