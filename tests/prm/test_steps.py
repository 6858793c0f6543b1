"""Labels and errors of a step score; the types load no model code."""

from __future__ import annotations

import subprocess
import sys

from pathfinder.prm.steps import StepScore


def test_errors_and_labels() -> None:
    assert StepScore(0.9, 0.4, None, 0.9).has_error
    assert StepScore(0.9, 0.5, None, 0.1).labels == {"math": True, "consistency": True}
    assert not StepScore(0.9, 0.5, None, 0.1).has_error
    assert StepScore(None, None, 0.2, 0.9).has_error
    assert StepScore(None, None, None, 0.4).has_error
    assert not StepScore(None, None, None, 0.6).has_error


def test_the_types_load_no_model_code() -> None:
    code = "import sys, pathfinder.prm.steps; print(*{'torch', 'transformers', 'numpy'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
