"""The stage on the small world with an untrained PRM: its rows, graded, give the figures of its metrics."""

from __future__ import annotations

from pathlib import Path

import pytest

from ground.io import read_json
from pathfinder.benchmarks.grade import grade
from pathfinder.core.prompts import VARIANTS
from pathfinder.core.steps import StepScore, Verdicts
from pathfinder.prm.evaluate import readings_on, verdicts
from stages.prmbench import main
from tests.support.evaluation_inputs import evaluation_project, rows_of


def test_stage(world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    evaluation_project(tmp_path, world)
    monkeypatch.chdir(tmp_path)
    for file in Path("artifacts/raw/prmbench").iterdir():
        file.write_text("".join(file.read_text().splitlines(keepends=True)[:6]))
    main(["full"])
    predictions, data = Path("artifacts/predictions/prmbench/full.jsonl"), Path("artifacts/raw/prmbench")
    metrics = read_json(Path("metrics/prmbench/full.json"))
    rows = rows_of(predictions)
    assert len(rows) == metrics["kept"]
    assert metrics["read"] == metrics["kept"] + sum(metrics["dropped"].values())
    assert len(metrics["classes"]) == 9
    assert all(len(row["scores"]["step_level_validity_labels"]) == len(row["steps"]) for row in rows)
    graded = grade("prmbench", predictions, data)
    assert graded["classes"] == metrics["classes"]
    assert graded["overall"] == metrics["overall"]
    assert graded["categories"] == metrics["categories"]
    assert set(metrics["baselines"]) == {"chance", "coin", "majority"}
    low, high = metrics["interval"]
    assert low <= metrics["overall"] <= high


def test_the_official_preset_makes_the_published_reading_the_main_one(
    world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fails if one prompt serves both readings, or if the preset of another benchmark decides."""
    found = {}
    for preset, main_rule in (("default", "definition"), ("official", "official")):
        evaluation_project(tmp_path / preset, world, prmbench={"preset": preset, "limit": 3})
        monkeypatch.chdir(tmp_path / preset)
        main(["full"])
        metrics = read_json(Path("metrics/prmbench/full.json"))
        assert metrics["overall"] == metrics["readings"][main_rule]["overall"]
        assert metrics["official"]["overall"] == metrics["readings"]["official"]["overall"], "no class is degenerate"
        assert metrics["reading"] == ("definition" if preset == "default" else "soundness")
        found[preset] = metrics["readings"], rows_of(Path("artifacts/predictions/prmbench/full.jsonl"))
    assert found["default"][0] == found["official"][0], "each run writes every reading"
    for row, same in zip(found["default"][1], found["official"][1], strict=True):
        assert row["steps"] == same["steps"]
        labels = [all(p >= 0.5 for p in step.values()) for step in row["steps_official"]]
        assert row["scores"]["step_level_validity_labels_official"] == labels
        assert same["scores"]["step_level_validity_labels"] == labels
    first = [row["steps"][0]["math"] for row in found["default"][1]]
    assert first != [row["steps_official"][0]["math"] for row in found["default"][1]]


def test_readings() -> None:
    step, bare = StepScore({"math": 0.6, "consistency": 0.8}, 0.3), StepScore({}, 0.6)
    for rule, threshold, correct in (
        ("soundness", 0.5, True),
        ("soundness", 0.7, False),
        ("official", 0.7, False),
        ("quality", 0.5, False),
    ):
        assert verdicts([[step]], rule, threshold) == [Verdicts([correct])]
    assert verdicts([[step]], "definition") == [Verdicts([True], [True])], "quality decides on redundancy"
    for rule in ("quality", "soundness", "official"):
        assert verdicts([[bare]], rule) == [Verdicts([True])]


def test_each_variant_is_read_by_what_it_has() -> None:
    found = {name: readings_on("prmbench", variant) for name, variant in VARIANTS.items()}
    assert found["full"] == found["no_error_categories"] == ("definition", "soundness", "quality")
    assert found["typed_three"] == found["full"]
    assert (found["no_subtasks"], found["plain_error"]) == (("quality",), ("soundness",))
    assert readings_on("processbench", VARIANTS["full"]) == ("soundness", "quality")
    assert readings_on("processbench", VARIANTS["no_subtasks"]) == ("quality",)
