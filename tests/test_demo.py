"""`pathfinder demo`: a small shipped PRM finds both errors; nothing else has to exist."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from docs.tools.picture import PICTURE, as_svg
from pathfinder import PRM
from pathfinder.cli import app
from pathfinder.demo import MODEL, scored, shown
from pathfinder.pages.picture import EXAMPLE_PROBLEM, EXAMPLE_STEPS, picture_of


def test_the_shipped_model_is_small_and_finds_both_errors() -> None:
    assert sum(path.stat().st_size for path in MODEL.iterdir()) < 2_000_000
    solution = scored()
    assert [step.findings for step in solution.steps] == [(), ("math error",), ("consistency error",), ()]
    assert solution.first_error == 1
    named = PRM.load(MODEL).score(EXAMPLE_PROBLEM, EXAMPLE_STEPS)
    for mine, other in zip(solution.steps, named.steps, strict=True):
        assert mine.reward == pytest.approx(other.reward, abs=1e-6), "`score` of the same model prints the same"


def test_the_readme_shows_the_same_figures_on_a_ground_of_their_own() -> None:
    solution = scored()
    drawn = PICTURE.read_text(encoding="utf-8")
    assert drawn == as_svg(picture_of(solution.problem, solution.steps)), "run `python -m docs.tools.picture --write`"
    for picture in Path("docs").glob("*.svg"):  # a page may be light where the reader's system is dark
        text = picture.read_text(encoding="utf-8")
        assert ":root{background:" in text or 'fill="var(--bg)"/>' in text, picture


def test_it_runs_in_an_empty_folder_and_says_what_to_try_next(tmp_path: Path) -> None:
    code = "import sys; from pathfinder.cli import main; sys.argv = ['pathfinder', 'demo']; main()"
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 30, "seconds of the processor"
    assert "\x1b" not in done.stdout, "colours are for a terminal"
    assert list(tmp_path.iterdir()) == []
    assert "first error, math error" in done.stdout
    assert "pathfinder serve pathfinder/demo_model\n" in done.stdout
    assert done.stderr == ""


@pytest.mark.parametrize("columns", [80, 200])
def test_every_line_fits_the_terminal(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("NO_COLOR", "1")
    assert max(map(len, shown().splitlines())) <= columns


def test_the_same_as_json() -> None:
    done = CliRunner().invoke(app, ["demo", "--json"])
    steps = json.loads(done.output)["steps"]
    assert [step["correct"] for step in steps] == [True, False, False, True]
    assert [step["errors"] for step in steps] == [[], ["math"], ["consistency"], []], "the names of the library"
