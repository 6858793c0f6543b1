"""The whole report: without inputs, with everything, with several seeds, and twice."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from ground.io import write_json
from pathfinder.core.params import load_params
from pathfinder.reporting.finished import results_table
from stages.report import main
from tests.support.report_inputs import SEEDED, write_benchmarks, write_data_stages, write_everything, write_project


class Shape(HTMLParser):
    """The page's tags, addresses and header cells without a scope."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.bare_headers = 0
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        given = dict(attributes)
        self.bare_headers += tag == "th" and "scope" not in given
        self.addresses += [str(given[name]) for name in ("src", "href", "srcset", "data") if name in given]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_without_inputs_the_table_says_missing_and_empty_sections_are_left_out(folder: Path, root: Path) -> None:
    write_project(root, "quickstart")
    main([])
    page = Path("reports/report.html").read_text()
    assert page.count("missing") > 12
    titles = re.findall(r"<h2>(.*?)</h2>", page)
    assert not {"Gates", "Training", "What the flags catch", "Worst mistakes", "How good the rewards are"} & {*titles}
    assert "Left out, because their stages have not run (missing): Worst mistakes," in page
    assert "not comparable with the paper" in page
    assert list(Path("reports/cards").iterdir()) == []
    table = results_table()
    assert table.splitlines()[2].split("  ")[0] == "PathFinder-PRM"
    assert "missing" in table


def written() -> dict[str, bytes]:
    main([])
    return {str(path): path.read_bytes() for path in sorted(Path("reports").rglob("*")) if path.is_file()}


def test_the_page_is_self_contained_accessible_and_takes_no_markup_from_the_data(folder: Path, root: Path) -> None:
    write_project(root, "quickstart")
    write_everything()
    assert load_params().report.bootstrap_samples == 50
    first = written()
    assert len(first) == 16
    assert first == written(), "the same input gives the same bytes"
    page = Path("reports/report.html").read_text()
    shape = Shape()
    shape.feed(page)
    assert shape.tags.count("script") == 1
    assert {"img", "iframe", "link", "object"} & set(shape.tags) == set()
    assert shape.bare_headers == 0
    assert shape.tags.count("th") > 50
    assert all(address.startswith(("#", "../")) for address in shape.addresses), "links lead only into the project"
    assert "&lt;script&gt;alert(&#39;x&#39;)" in page
    assert "\x07" not in page
    assert "\u202e" not in page
    markdown = Path("reports/report.md").read_text()
    assert "<script>" not in markdown
    assert "[a](http" not in markdown


def test_several_seeds_and_mixes_are_compared_and_their_systems_have_one_row_each(folder: Path, root: Path) -> None:
    write_project(root, "seeds", SEEDED)
    write_everything(SEEDED)
    main([])
    tables = json.loads(Path("reports/tables.json").read_text())
    systems = [row["system"] for row in tables["results"] if not row["is_baseline"]]
    assert systems == [
        "PathFinder-PRM (mean of 2 seeds)",
        "without separate subtasks (mean of 2 seeds)",
        "with autoregressive labels",
        "PathFinder-PRM, PRM800K only",
        "PathFinder-PRM, 550K mix",
    ]
    both = [json.loads(Path(f"metrics/processbench/{run}.json").read_text())["mean_f1"] for run in ("full", "full-s2")]
    first = tables["results"][0]["processbench"]
    assert first["value"] == pytest.approx(sum(both) / 2)
    assert first["low"] <= min(both) <= max(both) <= first["high"] <= 100
    lone = tables["results"][2]["prmbench"]
    low, high = json.loads(Path("metrics/prmbench/autoregressive.json").read_text())["interval"]
    assert lone["high"] - lone["low"] > high - low, "it is assumed to vary as much as the systems with two seeds"
    assert "we assume the pooled variance of the systems with several seeds" in Path("reports/report.html").read_text()
    endings = {one["said"].rsplit("; ", 1)[1] for one in tables["comparisons"]}
    assert endings == {"2 seeds).", "2 seeds and 1 seed)."}
    claims = {row[0] for row in tables["tables"]["The paper's claims, tested here"][0]["rows"]}
    assert claims == {
        "separate subtasks help",
        "two passes beat autoregressive labels",
        "some weak data helps (400k over PRM800K)",
        "more weak data helps (550k over 400k)",
        "guided search beats a random pick",
    }
    scale = tables["tables"]["The paper's tables and ours"][-1]["rows"]
    ours = [row[:3] for row in scale if row[0].startswith("ours")]
    assert [row[1:] for row in ours] == [["700", "0"], ["800", "100"], ["1,100", "400"]] * 2, "by rule"
    data = json.loads(Path("reports/plots/data.json").read_text())
    assert [row["records"] for row in data if row["system"] == "PRMScore"] == [700, 800, 1100]
    table = results_table()
    table, _, truth = table.partition("\n\n")
    assert len(table.splitlines()) == 2 + len(tables["results"])
    assert truth.splitlines() == tables["truth"]
    assert "On 4,500 steps with known ground truth, 86.1 [85.1, 87.2] % of them incorrect" in truth
    (judged,) = tables["tables"]["The judge against the truth"]
    assert judged["headers"] == ["measure", "PRM800K -1", "RLHFlow-Mistral +1", "all"]
    assert [[row[0], row[3]] for row in judged["rows"][:2]] == [
        ["steps judged", "4,500"],
        ["steps kept by the filter", "3,787"],
    ]
    assert str(round(first["value"], 1)) in table


def test_without_runs_the_page_has_the_published_systems_only(folder: Path, root: Path) -> None:
    write_project(root, "evaluate-published", runs=())
    params = Path("params.yaml")
    params.write_text(re.sub(r"(?m)^baselines: \[\]", "baselines: [qwen-prm]", params.read_text()))
    write_benchmarks()
    write_data_stages()  # of another profile, which ran in this folder before
    gate = {"suite": "steps", "file": "steps.parquet", "passed": True}
    write_json(Path("reports/validation/validation.json"), {"gates": [gate]})
    for benchmark, figure in (("processbench", "mean_f1"), ("prmbench", "overall"), ("search", "average")):
        metrics = {figure: 50.0, "interval": [40.0, 60.0], "titles": ["Qwen2.5-Math-PRM-7B"]}
        metrics |= {} if benchmark == "search" else {"baselines": {"chance": {figure: 37.5}}}
        write_json(Path(f"metrics/{benchmark}/qwen-prm.json"), metrics)
    main(["published"])
    assert not Path("reports/report.md").exists()
    page = Path("reports/published.md").read_text()
    assert "Qwen2.5-Math-PRM-7B" in page
    assert "Performance comparison" in page
    assert "Gates" not in page
    assert "gates passed" not in page
    tables = json.loads(Path("reports/published.json").read_text())
    assert not any(tables["accounting"].values())
    assert tables["truth"] == []
    table = results_table(Path("reports/published.json"))
    assert re.search(r"Qwen2\.5-Math-PRM-7B +50\.0", table)
    assert re.search(r"chance +37\.5[^m]+37\.5", table), "a published PRM's metrics have the model-free baselines too"
