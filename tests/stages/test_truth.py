from __future__ import annotations

import re
from pathlib import Path

import polars as pl
import pytest

from ground.io import read_json, write_parquet
from pathfinder.core.records import CLEAN, LABELS, STEPS, TRAJECTORIES
from pathfinder.data.metrics import Truth
from pathfinder.reporting.page.account import truth_lines
from stages.truth import main
from tests.support.stage_inputs import write_params

STORY = "Ann has 4 books.\n1) Ann buys 9.\n2) Ann sells 3.\nHow many books does Ann have?"
FIRST, SECOND = "1) buys 9, so 4 + 9 = 13 books.", "2) sells 3, so 13 - 3 = 10 books."
SUM, CARRIED = "2) sells 3, so 13 - 3 = 11 books.", "2) sells 3, so 12 - 3 = 9 books."

# problem, its steps, the judged step and its place, rating, the judge's scores, whether the filter keeps it
CASES = [
    (STORY, [FIRST, SUM], SUM, 1, -1, (0, 1, 1), True),  # a wrong sum: found, by the correct score
    (STORY, [FIRST, SUM], SUM, 1, -1, (1, 0, 1), True),  # found by the incorrect score
    (STORY, [FIRST, CARRIED], CARRIED, 1, -1, (1, 1, 1), False),  # a different value carried: missed, and dropped
    (STORY, [FIRST, SECOND], FIRST, 0, 1, (1, 1, 1), True),
    (STORY, [FIRST, SECOND], SECOND, 1, 1, (0, 1, 1), False),  # a correct step flagged, and dropped
    (STORY, ["No step of the grammar.", SECOND], SECOND, 1, 1, (1, 1, 1), True),  # the state before it is unknown
    ("What is 1 + x?", [FIRST], FIRST, 0, -1, (0, 0, 0), True),  # not a story of a generated world
]


def write_inputs() -> None:
    steps, trajectories, labels, clean = [], [], [], []
    for n, (problem, chain, step, place, rating, scores, kept) in enumerate(CASES):
        source = "prm800k" if rating < 0 else "rlhflow_mistral"
        steps.append((f"r{n}", f"t{n}", source, place, 0, step, rating))
        trajectories.append((f"t{n}", source, "f", n, f"p{n % 4}", problem, chain))
        labels.append((f"r{n}", *scores, "judge", "parsed", 1))
        clean += [(f"r{n}", *scores[:2], int(all(scores)))] if kept else []
    steps.append(("given", "t0", "prm800k", 0, 1, FIRST, 1))
    labels.append(("given", 1, 1, 1, "rating", "given", 0))
    for name, rows, schema in (
        ("steps/steps", steps, STEPS),
        ("steps/trajectories", trajectories, TRAJECTORIES),
        ("labels/labels", labels, LABELS),
    ):
        write_parquet(Path(f"artifacts/{name}.parquet"), pl.DataFrame(rows, schema=schema, orient="row"))
    kept_rows = [dict(zip(("id", "math", "consistency", "correctness"), row, strict=True)) for row in clean]
    write_parquet(Path("artifacts/clean/clean.parquet"), pl.DataFrame(kept_rows, schema=CLEAN))


def test_the_judge_and_the_filter_against_the_oracle_by_hand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_params(tmp_path)
    write_inputs()
    main([])
    found = read_json(Path("metrics/truth.json"))
    assert found["judged"] == 7
    every = found["all"]
    assert (every["steps"], every["kept"]) == (5, 3)
    values = {name: figure["value"] for name, figure in every.items() if isinstance(figure, dict)}
    assert values == pytest.approx(
        {
            "wrong": 60,
            "error_recall": 200 / 3,
            "error_precision": 200 / 3,
            "false_alarms": 50,
            "labels_right": 40,
            "labels_right_kept": 200 / 3,
            "labels_right_dropped": 0,
        }
    )
    low, high = every["error_recall"]["interval"]
    assert 0 <= low < values["error_recall"] <= high <= 100
    assert sorted(found["groups"]) == ["prm800k:-1", "rlhflow_mistral:+1"]
    human = found["groups"]["prm800k:-1"]
    assert human["false_alarms"] == {"value": None, "interval": None}, "no correct step was judged there"
    first, second = truth_lines(Truth(**found))
    assert first.startswith("On 5 steps with known ground truth, ")
    assert "the judge finds 66.7 [" in first
    assert re.search(r": 66\.7 \[.*\] % of the 3 that the consistency filter kept", second)


def test_a_correct_step_that_is_rated_as_the_instructions_say_is_not_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rating is -1, the judge's labels and the truth say correct, and the filter drops the record."""
    step = FIRST.replace(", so ", ", so clearly ")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("tests.stages.test_truth.CASES", [(STORY, [step], step, 0, -1, (1, 1, 1), False)])
    write_params(tmp_path)
    write_inputs()
    main([])
    (group,) = read_json(Path("metrics/truth.json"))["groups"].values()
    assert (group["steps"], group["kept"]) == (1, 0)
    assert {group[name]["value"] for name in ("wrong", "false_alarms")} == {0}
    assert {group[name]["value"] for name in ("labels_right", "labels_right_dropped")} == {100}


def test_sources_without_a_known_truth_have_no_figures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("tests.stages.test_truth.CASES", CASES[-1:])
    write_params(tmp_path)
    write_inputs()
    main([])
    found = read_json(Path("metrics/truth.json"))
    assert (found["judged"], found["all"]["steps"], found["groups"]) == (1, 0, {})
    assert truth_lines(Truth(**found)) == truth_lines(None) == []
