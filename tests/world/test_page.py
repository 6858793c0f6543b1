"""The statistics page: identical bytes, readable errors, and figures that equal the measurements."""

from __future__ import annotations

from pathlib import Path

import pytest

from ground.io import DataError
from pathfinder.pages.page import to_html, to_markdown
from world.page import main, page_of, write_page


def test_the_page_repeats_byte_for_byte(corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    written = []
    for _ in range(2):
        write_page(corpus)
        written.append({path.name: path.read_bytes() for path in Path("reports/world").iterdir()})
    assert written[0] == written[1]
    assert set(written[0]) == {"index.html", "statistics.md", "statistics.json"}
    assert b"<script" not in written[0]["index.html"]


def test_a_missing_world_is_one_line_and_an_exit_status(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(DataError, match=r"nowhere.*no such file; name a folder with the layout of data/") as raised:
        page_of(Path("nowhere"))
    with pytest.raises(SystemExit) as left:
        main(Path("nowhere"))
    assert left.value.code == raised.value.exit_status
    assert capsys.readouterr().err == f"error: {raised.value}\n"


def test_the_difficulty_section_shows_the_measurements(corpus: Path) -> None:
    rates = {"pass@1": 0.5, "maj@8": 0.25, "pass@8": 1.0, "mean": 0.5}
    solved = {
        "greedy_answer_accuracy": 0.625,
        "first_faults_at_temperature": {"none": 30, "misreading": 10},
        "by_level": {"all": rates, "gsm8k": rates, "math": rates | {"pass@1": 0.125}},
    }
    page, figures = page_of(corpus, solved)
    text = to_markdown(page)
    assert "| math | 12.5 | 50.0 | 25.0 | 100.0 |" in text
    assert (
        "Without sampling the policy solves 62.5 % of them. First fault of its sampled solutions: none 75.0 %" in text
    )
    assert figures["policy"] == solved
    assert to_html(page).count("<svg") == 1


def test_the_committed_page_equals_the_command_s_output(root: Path, world: Path) -> None:
    """The difficulty section is not compared, because it needs the policy."""
    written = (root / "tests/world/statistics.md").read_text(encoding="utf-8")
    assert written.startswith(to_markdown(page_of(world)[0]).rstrip())
