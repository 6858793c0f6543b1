"""Labels and errors of a step score; the types load no model code."""

from __future__ import annotations

import subprocess
import sys

from pathfinder.core.steps import StepScore


def test_errors_and_labels() -> None:
    assert StepScore({"math": 0.9, "consistency": 0.4}, 0.9).has_error
    accepted = StepScore({"math": 0.9, "consistency": 0.5}, 0.1)
    assert accepted.labels == {"math": True, "consistency": True}
    assert not accepted.has_error
    assert StepScore({"error_free": 0.2}, 0.9).has_error
    assert StepScore({}, 0.4).has_error
    assert not StepScore({}, 0.6).has_error


def test_a_row_has_every_label_of_any_variant() -> None:
    rows = [StepScore(first, 0.5).row() for first in ({"error_free": 0.2}, {})]
    assert rows[0] == {"math": None, "consistency": None, "error_free": 0.2, "reward": 0.5}
    assert [list(row) for row in rows] == [["math", "consistency", "error_free", "reward"]] * 2


def test_the_types_load_no_model_code() -> None:
    code = "import sys, pathfinder.core.steps; print(*{'torch', 'transformers', 'numpy'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
