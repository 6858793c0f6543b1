"""The registered predictions: each follows from prediction files, holds or fails by its bound, and is on the page."""

from __future__ import annotations

import random
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from ground.io import read_json, read_jsonl, write_jsonl
from pathfinder.benchmarks.prmbench import trivial_predictors
from pathfinder.benchmarks.readers import read_prmbench, read_processbench
from pathfinder.core.params import load_params
from pathfinder.pages.page import Table
from pathfinder.reporting.evidence import Evidence
from pathfinder.reporting.names import PUBLISHED
from pathfinder.reporting.page.contents import REGISTERED
from pathfinder.reporting.page.registered import AUTHORS, QWEN, registered
from pathfinder.reporting.results import load_results
from stages.report import main
from tests.support.report_inputs import write_project
from world.oracle import assess_all
from world.story import read_story

PREDICTIONS, RAW = Path("artifacts/predictions"), Path("artifacts/raw")


@pytest.fixture
def folder(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    write_project(root, "evaluate-published", runs=())
    for name in ("processbench", "prmbench"):
        shutil.copytree(root / "data" / name, RAW / name)
    return tmp_path


def write_steps(name: str, sound: Callable[[int], bool], good: Callable[[int], bool]) -> None:
    """Scores by the true rating of each step: -1 for an error, 0 for a correct step that is not optimal, else 1."""

    def scores(ratings: list[int]) -> list[dict[str, float]]:
        return [{"math": float(sound(r)), "consistency": 1.0, "reward": 0.2 + 0.6 * good(r)} for r in ratings]

    items = read_processbench(RAW / "processbench").items
    rated = [[v.rating if v else -1 for v in assess_all(read_story(i.problem), i.steps)] for i in items]
    rows = [{"subset": i.subset, "id": i.id, "steps": scores(r)} for i, r in zip(items, rated, strict=True)]
    write_jsonl(PREDICTIONS / f"processbench/{name}.jsonl", rows)
    others = read_prmbench(RAW / "prmbench").items
    wrong = [(i, {"redundency": 0, "circular": 0}.get(i.classification, -1)) for i in others]
    rows = [
        {"idx": i.idx, "steps": scores([rating if n in i.error_steps else 1 for n in range(1, len(i.steps) + 1)])}
        for i, rating in wrong
    ]
    write_jsonl(PREDICTIONS / f"prmbench/{name}.jsonl", rows)


def found() -> dict[str, tuple[str, str]]:
    """What was found and the verdict, by the number of the prediction."""
    params = load_params()
    results = load_results(Path("metrics"), (), [*params.baselines])
    blocks = registered(Evidence(results, PREDICTIONS, RAW, params.report))
    return {row[0][:2]: (row[1], row[2]) for table in blocks if isinstance(table, Table) for row in table.rows}


def test_nothing_is_said_about_systems_that_were_not_measured(folder: Path) -> None:
    assert found() == {}


def test_a_checkpoint_with_two_meanings_confirms_the_predictions(folder: Path) -> None:
    write_steps(AUTHORS, sound=lambda rating: rating >= 0, good=lambda rating: rating == 1)
    by_number = found()
    assert [*by_number] == ["P1", "P2", "P3"]
    assert {verdict for _, verdict in by_number.values()} == {"holds"}
    assert re.fullmatch(r"100\.0 by the labels, 9\d\.\d by the reward", by_number["P1"][0])
    assert by_number["P2"][0] == "80 of 80 flagged correct steps"
    assert by_number["P3"][0] == "PRMScore 100.0, simplicity 100.0, soundness 100.0, sensitivity 100.0"


def test_a_checkpoint_with_one_meaning_refutes_them(folder: Path) -> None:
    write_steps(AUTHORS, sound=lambda rating: rating >= 0, good=lambda rating: rating >= 0)
    by_number = found()
    assert [*by_number] == ["P1", "P3"], "the second says nothing without a flagged correct step"
    assert {verdict for _, verdict in by_number.values()} == {"fails"}


@pytest.mark.parametrize(("sees_redundancy", "verdict"), [(False, "holds"), (True, "fails")])
def test_chance_on_redundancy_is_judged_at_the_best_threshold(
    folder: Path, sees_redundancy: bool, verdict: str
) -> None:
    rng = random.Random(0)
    write_steps(QWEN, lambda _: True, lambda rating: rating == 1 if sees_redundancy else rng.random() < 0.5)
    assert found()["P4"][1] == verdict


def keep_every_fifth(file: Path) -> set[str]:
    """Leave out the other rows of a file of predictions, as a limit does; the ids of those that are left."""
    rows = [row for _, row in read_jsonl(file)][::5]
    write_jsonl(file, rows)
    return {row.get("idx", "") for row in rows}


def test_a_prediction_is_about_the_items_that_were_measured(folder: Path) -> None:
    """Fails if the other items count as missed, or towards chance."""
    write_steps(AUTHORS, sound=lambda rating: rating >= 0, good=lambda rating: rating == 1)
    keep_every_fifth(PREDICTIONS / f"processbench/{AUTHORS}.jsonl")
    write_steps(QWEN, lambda _: True, lambda rating: rating == 1)
    left = keep_every_fifth(PREDICTIONS / f"prmbench/{QWEN}.jsonl")
    by_number = found()
    assert by_number["P1"][0].startswith("100.0 by the labels, ")
    assert by_number["P1"][1] == "holds"
    items = [item for item in read_prmbench(RAW / "prmbench").items if item.idx in left]
    trivial = trivial_predictors(items, load_params().report).values()
    chance = max(figures["categories"]["simplicity"] for figures in trivial)
    assert by_number["P4"][0].endswith(f", {chance:.1f} without a model")


def test_the_page_of_published_systems_has_them(folder: Path) -> None:
    write_steps(AUTHORS, sound=lambda rating: rating >= 0, good=lambda rating: rating == 1)
    main(["published"])
    assert "P2. Most correct steps that the reward flags" in Path("reports/published.md").read_text(encoding="utf-8")
    (table,) = read_json(PUBLISHED)["tables"][REGISTERED]
    assert [row[2] for row in table["rows"]] == ["holds"] * 3
