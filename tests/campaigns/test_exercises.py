"""The harder exercises of docs/architecture.md are done in a copy of the library and tried out."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

FOURTH_LABEL = {
    "pathfinder/core/prompts.py": [
        ('Label = Literal["math", "consistency",', 'Label = Literal["math", "consistency", "optimality",'),
        ("_ERROR_FREE = Mark(", '_OPTIMALITY = Mark("Optimality", "optimality")\n_ERROR_FREE = Mark('),
        (
            '        Variant("no_subtasks"',
            '        Variant("four_labels", (_MATH, _CONSISTENCY, _OPTIMALITY), (_CORRECTNESS,)),\n'
            '        Variant("no_subtasks"',
        ),
    ],
    "pathfinder/core/records.py": [
        ('STEP_LABELS = ("math", "consistency",', 'STEP_LABELS = ("math", "consistency", "optimality",'),
    ],
}
TRY_IT = """
import json
from pathlib import Path
import polars as pl
from pathfinder.core.records import BRANCH, CLEAN, LABELS, STEPS
from pathfinder.core.runs import parse_run
from pathfinder.models.folders import MODEL_FILE, open_model
from pathfinder.prm.opening import open_pathfinder
from pathfinder.core.steps import Solution
from pathfinder.training.examples import gold_labels
from stages.filter import decide

steps = pl.DataFrame([("a", "t", "prm800k", 0, 0, "x", 0)], schema=STEPS, orient="row")
labels = pl.DataFrame([("a", 1, 1, 0, "rating", "given", 0)], schema=LABELS, orient="row")
clean = decide(steps, labels).select(*CLEAN).row(0, named=True)
gold = gold_labels(clean, ("math", "consistency", "optimality", "correctness"))
folder = Path("models") / parse_run("four_labels").name
(folder / MODEL_FILE).write_text(json.dumps({"variant": "four_labels"}))
with open_pathfinder(open_model(folder)) as prm:
    (scores,) = prm.score([Solution("1", "What is 1 + 1?", ("1 + 1 = 2",))])
print(json.dumps({"clean": clean, "branch": list(BRANCH), "gold": gold, "row": scores[0].row()}))
"""


@pytest.fixture
def project(root: Path, world: Path, tmp_path: Path) -> Path:
    """A copy of the library and the stages, and a model to score with."""
    for folder in ("ground", "pathfinder", "stages", "evidence", "extras", "world"):
        shutil.copytree(root / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(world / "models/base", tmp_path / "models/four_labels")
    return tmp_path


def test_a_fourth_label_changes_two_files(project: Path) -> None:
    for file, changes in FOURTH_LABEL.items():
        text = (project / file).read_text(encoding="utf-8")
        for old, new in changes:
            assert text.count(old) == 1, (file, old)
            text = text.replace(old, new)
        (project / file).write_text(text, encoding="utf-8")
    environment = os.environ | {"PYTHONPATH": str(project)}
    done = subprocess.run(
        [sys.executable, "-c", TRY_IT], cwd=project, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["clean"] == {"id": "a", "math": 1, "consistency": 1, "optimality": 0, "correctness": 0}
    assert "optimality" in found["branch"]
    assert found["gold"] == [True, True, False, False]
    assert set(found["row"]) == {"math", "consistency", "optimality", "error_free", "reward"}
    assert found["row"]["error_free"] is None
    assert 0 < found["row"]["optimality"] < 1
