"""``make gpu-day``: the rehearsal measures on a CPU, failures are reported, and finished parts are not repeated."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from torch._dynamo.utils import counters

from infra.gpu_day import __main__ as gpu_day
from infra.gpu_day.day import Day
from infra.gpu_day.kernels import kernels
from infra.gpu_day.page import PAGE, render
from infra.gpu_day.parts import PARTS
from infra.gpu_day.share import share
from infra.gpu_day.tests_part import marked_files


@pytest.fixture(scope="module")
def day(tmp_path_factory: pytest.TempPathFactory) -> Day:
    """A rehearsal whose data and models are there."""
    made = Day(rehearsal=True, folder=tmp_path_factory.mktemp("gpu_day"))
    gpu_day.main(["--rehearse", "--folder", str(made.folder), "--only", "inputs"])
    return made


def test_trees_are_compared_with_float64(day: Day, monkeypatch: pytest.MonkeyPatch) -> None:
    """Graphs that the same process compiled earlier do not count."""
    monkeypatch.setitem(counters["stats"], "unique_graphs", counters["stats"]["unique_graphs"] + 100)
    report = kernels(day)
    figures = dict(report.figures)
    assert report.problems == []
    assert [what for what in figures if what.startswith("float32: relative error")]
    assert "graphs compiled for rows of 4 lengths" in figures


def test_speed_is_related_to_the_peak(day: Day) -> None:
    report = share(day)
    assert report.problems == []
    assert dict(report.figures)["scoring, pass 1"].endswith("% of the peak")
    assert dict(report.figures)["training, recomputation not counted"].endswith("% of the peak")


def test_parameters_of_the_day_are_complete(day: Day) -> None:
    params = yaml.safe_load((day.work / "params.yaml").read_text())
    assert params["profile"] == "gpu-day"
    assert params["label"]["prm800k_limit"] == 20


def test_a_failed_and_an_endless_part_are_reported_and_the_rest_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without inputs the benchmarks fail; the kernels get no time; the replica level still runs into its limit."""
    monkeypatch.setattr(gpu_day, "_LEAST_S", 0.1)
    limits = {"kernels": 0.3, "replica": 0.2}
    monkeypatch.setattr(gpu_day, "PARTS", [replace(part, limit=limits.get(part.name, 60.0)) for part in PARTS])
    words = ["--rehearse", "--folder", str(tmp_path), "--only", "kernels", "benchmarks", "replica"]
    with pytest.raises(SystemExit, match=r"gpu\.md"):
        gpu_day.main(words)
    page = (tmp_path / "gpu.md").read_text()
    states = {
        row.split("|")[1].strip(" `"): row.split("|")[4].strip() for row in page.splitlines() if row.count("|") == 5
    }
    assert states["kernels"] == "out of time"
    assert states["benchmarks"] == "failed"
    assert states["replica"] == "unfinished"
    assert states["judge"] == "not yet run"
    assert "no trained model; the part lora makes it" in page
    assert "benchmarks: failed" in capsys.readouterr().out


def test_a_part_that_succeeded_is_not_repeated(day: Day) -> None:
    first = (day.folder / "inputs.log").stat().st_mtime_ns
    gpu_day.main(["--rehearse", "--folder", str(day.folder), "--only", "inputs"])
    assert (day.folder / "inputs.log").stat().st_mtime_ns == first
    page = (day.folder / "gpu.md").read_text()
    assert "| processbench | shipped: data/processbench |" in page
    assert "| models/base | random weights in the shape of a tiny model" in page


def test_the_committed_page_is_the_commands_own() -> None:
    """Fails if the page is edited by hand, or not rendered again after a change."""
    text = PAGE.read_text(encoding="utf-8")
    assert text == render({}, {}) or "## The machine" in text
    for name in marked_files():
        assert f"`{name}`" in text


def test_all_parts_fit_into_half_an_hour() -> None:
    assert sum(part.limit for part in PARTS if part.name != "replica") <= 30 * 60
