"""How far the model of ``pathfinder score`` travels, and how much of the project the verb loads."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pathfinder.demo import MODEL
from tests.conftest import ROOT

MOST_MODULES, MOST_FILES = 40, 11
WINGS = ("pathfinder", "ground", "evidence", "extras", "flows")
COUNT = """
import json, sys
from pathlib import Path

root, folder, wings = sys.argv[1] + "/", sys.argv[2], tuple(sys.argv[3].split(","))
files = set()


def is_model(value):
    if isinstance(value, (str, Path)):
        text = str(value)
        return text == folder or (text.startswith(folder + "/") and "\\n" not in text)
    return type(value).__name__ in ("Named", "OpenedModel")


def watch(frame, event, argument):
    code = frame.f_code
    own = code.co_filename.removeprefix(root).partition("/")[0] in wings
    if event == "call" and own and code.co_filename not in files:
        given = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        if any(is_model(frame.f_locals.get(name)) for name in given):
            files.add(code.co_filename)


sys.argv = ["pathfinder", "score", sys.argv[4], "--model", folder]
from pathfinder.cli import main

sys.setprofile(watch)
try:
    main()
except SystemExit as ended:
    assert not ended.code, ended.code
sys.setprofile(None)
loaded = sorted(name for name in sys.modules if name.partition(".")[0] in wings)
print(json.dumps({"loaded": loaded, "files": sorted(file.removeprefix(root) for file in files)}))
"""


@pytest.fixture(scope="module")
def counted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """The modules that ``score`` loads, and the files that have a function which is given the model or its folder."""
    folder = tmp_path_factory.mktemp("score")
    solution = {"problem": "Tom has 5 apples. He buys 7. How many?", "steps": ["5 + 7 = 12.", "The answer is 12."]}
    (folder / "one.jsonl").write_text(json.dumps(solution))
    given = [str(ROOT), str(MODEL), ",".join(WINGS), str(folder / "one.jsonl")]
    done = subprocess.run(
        [sys.executable, "-c", COUNT, *given],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    scores, found = map(json.loads, done.stdout.splitlines())
    assert len(scores["steps"]) == 2
    return {name: [str(part) for part in parts] for name, parts in found.items()}


def test_score_loads_little_of_the_project(counted: dict[str, list[str]]) -> None:
    loaded = counted["loaded"]
    assert "pathfinder.prm.scoring" in loaded, "this process did not score"
    assert len(loaded) <= MOST_MODULES, loaded


def test_the_model_travels_a_short_way(counted: dict[str, list[str]]) -> None:
    files = counted["files"]
    assert {"pathfinder/cli.py", "pathfinder/models/folders.py", "pathfinder/prm/scoring.py"} <= {*files}
    assert len(files) <= MOST_FILES, files


def test_only_the_door_looks_for_the_files_of_a_model() -> None:
    openers = {
        path.relative_to(ROOT).as_posix()
        for path in Path(ROOT / "pathfinder/prm").glob("*.py")
        if "open_model(" in path.read_text(encoding="utf-8")
    }
    assert openers == {"pathfinder/prm/evaluate.py"}, "a scorer takes the OpenedModel; only a worker's job has a path"
