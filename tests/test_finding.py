"""docs/tools/readings.py: predictions by the oracle have the figures that the two readings must have."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from docs.tools import readings
from docs.tools.readings import System, contrast, curves
from extras.experiment.figures import Judged, weighted_f1, weights_at
from ground.io import DataError, write_jsonl
from pathfinder.benchmarks.readers import ProcessBenchItem, read_prmbench, read_processbench
from pathfinder.core.prompts import VARIANTS
from pathfinder.core.runs import parse_run
from world.oracle import assess_all
from world.story import read_story

RUNS = ("full", "plain_error", "no_subtasks")


def judged(number: int, label: int, idle: Sequence[int] = ()) -> Judged:
    item = ProcessBenchItem("gsm8k", f"gsm8k-{number}", "P", ("s",) * 4, label, None, "g")
    return Judged(item, label if label >= 0 else 4, frozenset(idle))


ITEMS = [judged(0, -1), judged(1, 2), judged(2, -1, [1]), judged(3, 3, [0])]
NONE = (False,) * 4
QUALITY = System(
    parse_run("full"), "quality", (NONE, (False, False, True, False), (False, True, False, False), (True,) * 4)
)
SOUNDNESS = System(parse_run("full"), "soundness", (NONE, (False, False, True, False), NONE, None))


def test_flags_on_steps_that_are_not_optimal_are_counted_apart_and_can_be_excused() -> None:
    assert QUALITY.table(ITEMS).hit.tolist() == [True, True, False, False]
    assert QUALITY.table(ITEMS, excused=True).hit.tolist() == [True, True, True, False], "step 1 of item 3 is flagged"
    assert QUALITY.false_alarms(ITEMS, idle=True) == (2, 2)
    assert QUALITY.false_alarms(ITEMS, idle=False) == (2, 11)
    assert SOUNDNESS.table(ITEMS).hit.tolist() == [True, True, True, False], "an item without scores is missed"
    assert SOUNDNESS.false_alarms(ITEMS, idle=True) == (0, 1)


@pytest.mark.parametrize("percent", [0, 1, 10])
def test_weights_give_the_share(percent: float) -> None:
    weights = weights_at(ITEMS, percent)
    idle = sum(w * len(j.idle) for w, j in zip(weights, ITEMS, strict=True))
    correct = sum(w * j.correct for w, j in zip(weights, ITEMS, strict=True))
    assert 100 * idle / correct == pytest.approx(percent)
    assert weights[:2].tolist() == [1, 1]
    with pytest.raises(DataError, match="no weighting of the items makes 90 %"):
        weights_at(ITEMS, 90)


def test_equal_weights_give_the_plain_f1_and_a_curve_begins_without_these_steps() -> None:
    table = QUALITY.table(ITEMS)
    assert weighted_f1(table, np.ones(4)) == pytest.approx(table.mean_f1(np.arange(4)))
    curve = curves([QUALITY], ITEMS)["full", "quality"]
    assert curve[0] == 100
    assert sorted(curve, reverse=True) == curve


def test_a_contrast_needs_a_pair_and_is_zero_against_itself() -> None:
    other = System(parse_run("plain_error"), "soundness", SOUNDNESS.flagged)
    found = contrast([SOUNDNESS, other], ITEMS, "full", "plain_error", "soundness")
    assert found is not None
    assert (found.value, found.low, found.high) == (0, 0, 0)
    assert contrast([SOUNDNESS], ITEMS, "full", "plain_error", "soundness") is None
    late = System(parse_run("plain_error-s2"), "soundness", SOUNDNESS.flagged)
    assert contrast([SOUNDNESS, late], ITEMS, "full", "plain_error", "soundness") is None, "other seeds are no pair"


def test_a_reading_is_what_the_labels_of_the_variant_cover() -> None:
    found = {name: readings.readings_of(name) for name in VARIANTS}
    both = ("soundness", "quality")
    assert found == dict.fromkeys(VARIANTS, both) | {"plain_error": ("soundness",), "no_subtasks": ("quality",)}


@pytest.fixture
def project(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Predictions of a perfect system for some runs, on the shipped benchmarks."""
    monkeypatch.chdir(tmp_path)
    for name in ("processbench", "prmbench"):
        shutil.copytree(root / "data" / name, readings.RAW / name)
    text = (root / "params.yaml").read_text(encoding="utf-8")
    line = next(line for line in text.splitlines() if line.startswith("runs: "))
    Path("params.yaml").write_text(text.replace(line, f"runs: [{', '.join(RUNS)}]"), encoding="utf-8")
    items = read_processbench(readings.RAW / "processbench").items
    rated = {
        item.key: [v.rating if v else -1 for v in assess_all(read_story(item.problem), item.steps)] for item in items
    }
    for run in RUNS:
        rows = [
            {"subset": item.subset, "id": item.id, "steps": [step_of(run, r >= 0, r == 1) for r in rated[item.key]]}
            for item in items
        ]
        write_jsonl(readings.PREDICTIONS / "processbench" / f"{run}.jsonl", rows)
        write_jsonl(
            readings.PREDICTIONS / "prmbench" / f"{run}.jsonl",
            [
                {
                    "idx": item.idx,
                    "steps": [
                        step_of(run, place not in item.error_steps, place not in item.error_steps)
                        for place in range(1, len(item.steps) + 1)
                    ],
                }
                for item in read_prmbench(readings.RAW / "prmbench").items
            ],
        )
    return tmp_path


def step_of(run: str, sound: bool, good: bool) -> dict[str, float]:
    labels = {"full": {"math": float(sound), "consistency": 1.0}, "plain_error": {"error_free": float(sound)}}
    return labels.get(run, {}) | {"reward": float(sound if run == "plain_error" else good)}


def test_a_perfect_system_is_right_by_soundness_and_flags_every_step_that_is_not_optimal(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    readings.main([])
    lines = capsys.readouterr().out.splitlines()
    assert "Of 2,074 correct steps, 80 are not optimal (3.9 %)." in lines[0]
    assert "| full | soundness | 100.0 | 100.0 | 0 | 0 |" in lines
    assert "| plain_error | soundness | 100.0 | 100.0 | 0 | 0 |" in lines
    quality = [line.split(" | ") for line in lines if line.startswith(("| full | quality", "| no_subtasks | quality"))]
    assert [row[3:5] for row in quality[:2]] == [["100.0", "80"]] * 2
    assert [float(row[2]) for row in quality[:2]] == [pytest.approx(93, abs=2)] * 2
    assert "| full - plain_error | soundness | +0.0 [0.0, 0.0] | 1.000 |" in lines
    assert "| full | redundancy labels | 100.0 | 100.0 | 100.0 | 100.0 |" in lines


def test_the_command_writes_the_picture_and_the_tables_of_the_page(project: Path) -> None:
    readings.PAGE.parent.mkdir()
    readings.PAGE.write_text(f"# Readings\n\n{readings.START}{readings.END}", encoding="utf-8")
    readings.main(["--write"])
    page, picture = (path.read_text(encoding="utf-8") for path in (readings.PAGE, readings.PICTURE))
    assert "| plain_error | correctness labels by soundness |" in page
    assert picture.startswith("<svg ")
    assert picture.count("<polyline") == 2 * 4, "a line and its entry in the legend for each variant and reading"
    (readings.PREDICTIONS / "processbench/full.jsonl").unlink()
    with pytest.raises(DataError, match=r"full\.jsonl does not exist; run `dvc repro processbench@full`"):
        readings.main([])
