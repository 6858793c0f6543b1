"""``make gpu-day``: failures are reported, finished parts are not repeated, and the page is the command's own."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from ground.io import DataError
from infra.doctor.cards import CAPABILITY, DRIVER
from tests.campaigns import gpu_day
from tests.campaigns.gpu_day import PAGE, PARTS, ROOT, Part, marked_files, render

WORKS = """
def test_one(record_property):
    record_property("speed", "3 a|b")

def test_two(record_property):
    record_property("memory", "4 GiB")
"""
FAILS = """
import pytest

def test_three():
    assert 1 == 2, "one is not two"

def test_four():
    pytest.skip("there is no server")
"""


@pytest.fixture
def parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts that take no time, one for each way to end."""
    made = []
    for name, text in {"good": WORKS, "bad": FAILS, "none": "", "endless": "import time; time.sleep(60)"}.items():
        file = tmp_path / f"test_{name}.py"
        file.write_text(text)
        made.append(Part(name, f"The {name} part", 0.3 if name == "endless" else 60.0, (f"--noconftest {file}",)))
    made = [replace(part, tests=tuple(part.tests[0].split())) for part in made]
    monkeypatch.setattr(gpu_day, "PARTS", (*made, Part("late", "The late part", 0.01, ("unused",))))
    monkeypatch.setattr(gpu_day, "_LEAST_S", 0.1)


@pytest.mark.campaign
def test_failed_and_endless_parts_are_reported_and_a_finished_one_is_not_repeated(
    parts: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--rehearse", "--folder", str(tmp_path / "day")]
    with pytest.raises(SystemExit, match=r"gpu\.md"):
        gpu_day.main(words)
    page = (tmp_path / "day/gpu.md").read_text()
    rows = [[cell.strip(" `") for cell in row.split("|")] for row in page.splitlines() if row.count("|") == 5]
    assert [(row[1], row[4]) for row in rows[2:]] == [
        ("good", "ok"),
        ("bad", "failed"),
        ("none", "failed"),
        ("endless", "out of time"),
        ("late", "no time left"),
    ]
    assert "| speed | 3 a\\|b |" in page
    assert "| memory | 4 GiB |" in page
    assert "- test_three: AssertionError: one is not two" in page
    assert "- test_four: there is no server" in page
    assert "- pytest found no test" in page
    first = (tmp_path / "day/good.log").stat().st_mtime_ns
    capsys.readouterr()
    with pytest.raises(SystemExit):
        gpu_day.main([*words, "--only", "good"])
    assert (tmp_path / "day/good.log").stat().st_mtime_ns == first
    assert capsys.readouterr().out.startswith("good: ok")


def test_without_a_card_or_with_a_wrong_name_nothing_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_day, "cards", list)
    with pytest.raises(
        DataError, match=r"no NVIDIA card \(nvidia-smi lists none\); --rehearse runs the parts on the CPU"
    ):
        gpu_day.main(["--folder", str(tmp_path / "day")])
    with pytest.raises(DataError, match="kernel: no such part; expected some of tests, inputs, kernels"):
        gpu_day.main(["--rehearse", "--only", "kernel"])
    assert list(tmp_path.iterdir()) == []


def test_each_part_runs_tests_of_its_device(tmp_path: Path) -> None:
    by_name = {part.name: part for part in PARTS}
    assert by_name["judge"].command(False, tmp_path)[-1] == "tests/campaigns/test_card.py::test_judge[cuda]"
    assert by_name["judge"].command(True, tmp_path)[-1] == "tests/campaigns/test_card.py::test_judge[cpu]"
    assert by_name["tests"].command(False, tmp_path)[-1] == "tests/prm/test_scoring_gpu.py"
    assert by_name["replica"].command(False, tmp_path) == ["make", "world", "LEVEL=replica"]


def test_the_committed_page_is_the_commands_own() -> None:
    """Fails if the page is edited by hand, or not rendered again after a change."""
    text = PAGE.read_text(encoding="utf-8")
    assert text == render({}, {}) or "## The machine" in text
    for name in marked_files():
        assert f"`{name}`" in text


def test_the_paper_page_states_the_requirements() -> None:
    page = (ROOT / "docs/paper.md").read_text(encoding="utf-8")
    assert f"| card | compute capability {CAPABILITY} or higher" in page
    assert f"| driver | {DRIVER} or newer" in page


def test_all_parts_fit_into_half_an_hour() -> None:
    assert sum(part.limit for part in PARTS if part.name != "replica") <= 30 * 60
