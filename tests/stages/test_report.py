"""The report over metrics that the stages' own metric code made; nothing is there, part of it, all of it."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
import yaml

from infra import readme
from pathfinder.core.io import DataError, read_json, read_jsonl, write_json, write_jsonl
from pathfinder.core.params import load_params
from pathfinder.reporting.results import results_table
from stages.report import main
from tests.support.report_inputs import (
    SEEDED,
    write_best_of_n,
    write_data_stages,
    write_everything,
    write_project,
    write_published,
)


class Shape(HTMLParser):
    """What the page is made of."""

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


def test_with_nothing_there_every_part_says_missing(folder: Path, root: Path) -> None:
    write_project(root, "quickstart")
    main([])
    page = Path("reports/report.html").read_text()
    assert page.count("missing") > 20
    assert "not comparable with the paper" in page
    table = results_table()
    assert table.splitlines()[2].split("  ")[0] == "PathFinder-PRM"
    assert "missing" in table


def test_the_page_is_self_contained_accessible_and_takes_no_markup_from_the_data(folder: Path, root: Path) -> None:
    write_project(root, "quickstart")
    write_everything()
    main([])
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


def test_figures_are_the_metrics_own_and_the_sentences_name_the_winner(folder: Path, root: Path) -> None:
    write_project(root, "quickstart")
    write_everything()
    main([])
    tables = json.loads(Path("reports/tables.json").read_text())
    first = tables["results"][0]
    assert first["system"] == "PathFinder-PRM"
    for benchmark, key in (("processbench", "mean_f1"), ("prmbench", "overall"), ("search", "average")):
        metrics = json.loads(Path(f"metrics/{benchmark}/full.json").read_text())
        assert first[benchmark]["value"] == metrics[key]
        assert [first[benchmark]["low"], first[benchmark]["high"]] == metrics["interval"]
    said = [one["said"] for one in tables["comparisons"]]
    assert any(
        s.startswith("PathFinder-PRM beats the variant without separate subtasks by") and "ProcessBench" in s
        for s in said
    )
    assert any(s.startswith("PathFinder-PRM beats the random pick by") for s in said)
    assert len(said) == 7
    assert all(s.endswith("; 1 seed).") for s in said)
    page = Path("reports/report.html").read_text()
    assert "Another seed would move the figures" in page
    verdict = re.search(r"The paper&#39;s hypothesis, that .*?, (.*?)\.</p>", page)
    assert verdict
    assert re.match(r"(holds|may hold) on ProcessBench mean F1", verdict[1])
    assert "fail" not in verdict[1]
    assert all(s.split(" by ")[0] in page for s in said)
    assert "The counts do not balance" not in page
    assert "The data and models differ, so differences mean little" in page


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
    said = {one["said"].rsplit("; ", 1)[1] for one in tables["comparisons"]}
    assert said == {"2 seeds).", "2 and 1 seeds)."}
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
    assert [row[1:] for row in ours] == [["700", "0"], ["800", "100"], ["1,100", "400"]]
    data = json.loads(Path("reports/plots/data.json").read_text())
    assert [row["records"] for row in data if row["system"] == "PRMScore"] == [700, 800, 1100]
    table = results_table()
    table, _, truth = table.partition("\n\n")
    assert len(table.splitlines()) == 2 + len(tables["results"])
    assert truth.splitlines() == tables["truth"]
    assert "On 4,500 steps with known ground truth, 86.1 [85.1, 87.2] % of them incorrect" in truth
    assert ["all", "4,500", "3,787"] in [row[:3] for row in tables["tables"]["The judge against the truth"][0]["rows"]]
    assert str(round(first["value"], 1)) in table


def test_other_prms_and_best_of_n_stand_beside_ours_where_they_were_measured(folder: Path, root: Path) -> None:
    write_project(root, "quickstart")
    path = Path("params.yaml")
    path.write_text(path.read_text().replace("baselines: []", "baselines: [math-shepherd, qwen]"))
    assert load_params().baselines == ["math-shepherd", "qwen"]
    write_everything()
    write_best_of_n("full")
    write_published("math-shepherd")
    main([])
    tables = json.loads(Path("reports/tables.json").read_text())
    row = next(row for row in tables["results"] if row["system"] == "Math-Shepherd-7B")
    assert (row["processbench"]["value"], row["prmbench"], row["is_baseline"]) == (100, "missing", True)
    best = next(row for row in tables["results"] if row["system"].startswith("best of 8 by minimum reward"))
    assert best["search"]["low"] <= best["search"]["value"] <= best["search"]["high"]
    assert best["is_baseline"]
    said = [one["said"] for one in tables["comparisons"]]
    assert any(s.startswith("PathFinder-PRM trails Math-Shepherd-7B by") for s in said)
    assert any("its own best of n by last" in s for s in said)
    printed = tables["tables"]
    names = [line[0] for line in printed["ProcessBench"][0]["rows"]]
    assert {"Math-Shepherd-7B, its authors' rule", "Math-Shepherd-7B, the benchmark's rule"} <= set(names)
    theirs = printed["The paper's tables and ours"][0]["rows"]
    place = [line[0] for line in theirs].index("measured: Math-Shepherd-7B")
    assert theirs[place + 1][-1] == f"{100 - 31.5:+.1f}"
    search = {line[0]: line[-1] for line in printed["Search"][0]["rows"]}
    captions = [table["caption"] for section in ("ProcessBench", "PRMBench") for table in printed[section]]
    assert sum("threshold of the reward" in caption for caption in captions) == 1
    assert sum("generator's solutions" in caption for caption in captions) == 1
    assert sum("accuracy on kinds of steps" in caption for caption in captions) == 1
    sweep = next(t["rows"] for t in printed["ProcessBench"] if "threshold of the reward" in t["caption"])
    assert ["full, fixed", "0.500", "60.0", "62.0", "–", "–", "61.0"] in sweep
    assert ["full, best on the test items", "–", "60.0", "62.0", "–", "–", "61.0"] in sweep
    assert search["PathFinder-PRM, best of n by min"] == "52.0"
    assert "without separate subtasks, best of n by min" not in search


def test_a_run_that_stopped_early_is_named_where_its_figures_would_stand(folder: Path, root: Path) -> None:
    write_project(root, "quickstart")
    write_everything()
    path, lines = Path("metrics/processbench/full.json"), Path("artifacts/predictions/processbench/full.jsonl")
    metrics = read_json(path)
    del metrics["thresholds"]
    write_json(path, metrics | {"early_stop": {"steps": 9, "scored": 5}})
    rows = [row for _, row in read_jsonl(lines)]
    write_jsonl(lines, [row | {"steps": row["steps"][: max(row["prediction"], 0) + 1]} for row in rows])
    main([])
    page = Path("reports/report.html").read_text()
    assert page.count("full: no scores after the first incorrect step (processbench.early_stop); no") == 2
    assert "(not scored)" in page
    assert "no_subtasks, fixed" in page
    assert "full, fixed" not in page
    assert {row["system"] for row in read_json(Path("reports/plots/roc_prmbench.json"))} - {
        row["system"] for row in read_json(Path("reports/plots/roc_processbench.json"))
    } == {"PathFinder-PRM"}


def test_every_record_is_followed_from_line_to_sample(folder: Path, root: Path) -> None:
    write_project(root, "sample")
    write_data_stages()
    main([])
    page = Path("reports/report.html").read_text()
    assert "The counts balance: each stage accounts for all records that the previous one kept" in page
    assert "30 upstream lines were read and 2 of them quarantined" in page
    assert "labelled (rating or judge): 96" in page
    assert "− 6 disagrees" in page
    assert "for training: 60" in page
    assert "120 samples, 2 per record" in page
    tables = json.loads(Path("reports/tables.json").read_text())["tables"]
    books, split = tables["Where every record went"]
    assert ["filter", "RLHFlow-Mistral", "30", "24", "6", "0", "disagrees 6"] in books["rows"]
    assert split["rows"][0] == ["train", "9", "9", "60", "120", "PRM800K 50, RLHFlow-Mistral 10"]
    assert tables["Overlap with the benchmarks"][0]["rows"] == [
        ["processbench/math", "10", "2", "1", "40", "4", "3", "17.5"]
    ]
    assert "Removed: processbench/math 3 problems, 10 records" in page
    assert tables["Overlap with the benchmarks"][1]["rows"][1][-1] == "10.0"  # only the Mistral steps


@pytest.mark.parametrize(
    ("stage", "key", "said"),
    [
        ("label", "dropped", "The counts do not balance at: label."),
        ("label", "read", "prepare kept and label read (100 and 101)"),
        ("filter", "kept", "filter kept and validate read (91 and 90)"),
        ("validate", "kept", "validate kept and build read (91 and 90)"),
        ("validate_train", "read", "build kept and validate_train read (80 and 81)"),
        ("build", "kept", "build kept and its two sides contain (81 and 80)"),
    ],
)
def test_books_that_do_not_balance_are_called_out(folder: Path, root: Path, stage: str, key: str, said: str) -> None:
    write_project(root, "sample")
    write_data_stages()
    path = Path(f"metrics/{stage}.json")
    metrics = json.loads(path.read_text())
    metrics[key] = {"unrated": 3} if key == "dropped" else metrics[key] + 1
    write_json(path, metrics)
    main([])
    page = Path("reports/report.html").read_text()
    assert said in page
    assert "The counts balance" not in page
    assert "The accuracies are meaningless" in page


def test_the_paper_profile_shows_the_paper_s_tables_with_ours_and_the_difference(folder: Path, root: Path) -> None:
    write_project(root, "paper")
    write_everything()
    main([])
    tables = json.loads(Path("reports/tables.json").read_text())["tables"]["The paper's tables and ours"]
    assert [re.search(r"tab:\w[\w-]*", t["caption"])[0] for t in tables] == [  # type: ignore[index]
        "tab:process_bench_main",
        "tab:process_bench_full",
        "tab:prmbench_main",
        "tab:greedy-guide-main",
        "tab:data_scale_results",
    ]
    rows = {row[0]: row for row in tables[0]["rows"]}
    assert rows["PathFinder-PRM-7B"][-1] == "69.5"
    mine = json.loads(Path("metrics/processbench/full.json").read_text())["mean_f1"]
    assert rows["ours: PathFinder-PRM"][-1] == f"{mine:.1f}"
    after = tables[0]["rows"].index(rows["ours: PathFinder-PRM"]) + 1
    assert tables[0]["rows"][after][-1] == f"{mine - 69.5:+.1f}"


def test_the_same_input_gives_the_same_bytes(folder: Path, root: Path) -> None:
    write_project(root, "quickstart")
    write_everything()
    assert load_params().report.bootstrap_samples == 50

    def written() -> dict[str, bytes]:
        main([])
        return {str(path): path.read_bytes() for path in sorted(Path("reports").rglob("*")) if path.is_file()}

    first = written()
    assert first == written()
    assert len(first) == 13


def test_the_readme_s_results_are_the_report_s(folder: Path, root: Path) -> None:
    write_project(root, "quickstart")
    write_everything()
    main([])
    Path("README.md").write_text((root / "README.md").read_text())
    readme.main(["--write"])
    once = Path("README.md").read_text()
    readme.main(["--write"])
    assert Path("README.md").read_text() == once
    assert once.split(readme.START)[0] == (root / "README.md").read_text().split(readme.START)[0]
    assert once.split(readme.END)[1] == (root / "README.md").read_text().split(readme.END)[1]
    full = json.loads(Path("metrics/processbench/full.json").read_text())["mean_f1"]
    assert f"| PathFinder-PRM | {full:.1f} [" in once
    assert re.search(r"\| separate subtasks help \| (yes|perhaps): \+", once)
    with pytest.raises(DataError, match="expected the marks"):
        readme.with_results("no marks", "x")


def test_every_plot_of_the_pipeline_has_its_file_and_its_fields(folder: Path, root: Path) -> None:
    write_project(root, "seeds", SEEDED)
    write_everything(SEEDED)
    main([])
    plots = yaml.safe_load((root / "dvc.yaml").read_text())["plots"]
    assert len(plots) > 8
    for plot in plots:
        ((title, drawn),) = plot.items()
        ((path, field),) = drawn["y"].items()
        rows = json.loads(Path(path).read_text())
        assert rows, title
        assert all({drawn["x"], field} <= row.keys() for row in rows), title
        if "/" in drawn["template"]:
            assert (root / drawn["template"]).exists(), title
            assert all("system" in row for row in rows), title
