"""Labels and errors of a step score; the types load no model code."""

from __future__ import annotations

import subprocess
import sys
from math import nan

import pytest

from pathfinder.core.readings import are_comparable, reading_for
from pathfinder.core.steps import StepScore


def test_errors_and_labels() -> None:
    assert StepScore({"math": 0.9, "consistency": 0.4}, 0.9).has_error
    accepted = StepScore({"math": 0.9, "consistency": 0.5}, 0.1)
    assert accepted.labels == {"math": True, "consistency": True}
    assert not accepted.has_error
    assert StepScore({"error_free": 0.2}, 0.9).has_error
    assert StepScore({}, 0.4).has_error
    assert not StepScore({}, 0.6).has_error


def test_the_readings_of_a_score() -> None:
    two = StepScore({"math": 0.9, "consistency": 0.6}, 0.2)
    assert (two.soundness, two.quality, two.optimality) == (0.6, 0.2, 0.2)
    wrong = StepScore({"math": 0.9, "consistency": 0.4}, 0.2)
    assert (wrong.soundness, wrong.optimality) == (0.4, None), "optimality is defined for sound steps alone"
    one = StepScore({}, 0.7)
    assert (one.soundness, one.quality, one.optimality, one.read("soundness")) == (None, 0.7, None, 0.7)
    labels = StepScore({"math": 0.9}, nan)
    assert (labels.soundness, labels.quality, labels.read("quality")) == (0.9, None, 0.9)
    assert labels.row()["reward"] is None
    own = StepScore({}, 0.7, means=None)
    assert (own.soundness, own.quality, own.read("quality")) == (None, None, 0.7)
    neutral = StepScore({}, 0.8, redundancy=0.2, means=None)
    assert (neutral.soundness, neutral.quality, neutral.optimality) == pytest.approx((0.8, 0.6, 0.75))


def test_one_pass_of_typed_labels() -> None:
    typed = StepScore({"math": 0.9, "consistency": 0.8, "optimality": 0.1}, 0.07)
    assert (typed.soundness, typed.quality, typed.optimality, typed.has_error) == (0.8, 0.07, 0.1, False)
    plain = StepScore({"error_free": 0.4}, 0.4, means="soundness")
    assert (plain.soundness, plain.quality, plain.read("quality"), plain.has_error) == (0.4, None, 0.4, True)
    for score in (typed, plain, StepScore({}, 0.3), StepScore({"error_free": 0.4}, 0.2)):
        assert StepScore.of_row(score.row()) == score


def test_a_system_is_read_by_what_it_has() -> None:
    assert reading_for("definition", ("soundness", "quality")) == "definition"
    assert reading_for("definition", ("soundness",)) == "soundness"
    assert reading_for("soundness", ("quality",)) == "quality"
    assert not are_comparable("soundness", "quality")
    assert are_comparable("soundness", "own score"), "the only score answers the benchmark's question"


def test_a_row_has_every_label_of_any_variant() -> None:
    rows = [StepScore(first, 0.5).row() for first in ({"error_free": 0.2}, {})]
    assert rows[0] == {"math": None, "consistency": None, "error_free": 0.2, "reward": 0.5}
    assert [list(row) for row in rows] == [["math", "consistency", "error_free", "reward"]] * 2


def test_the_types_load_no_model_code() -> None:
    code = "import sys, pathfinder.core.steps; print(*{'torch', 'transformers', 'numpy'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
