"""Published PRMs, best of n and the paper's tables in the report."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ground.io import write_json
from pathfinder.benchmarks import paper
from pathfinder.core.params import load_params
from pathfinder.core.runs import parse_runs
from pathfinder.policy import choosing
from pathfinder.reporting.evidence import Evidence
from pathfinder.reporting.finished import results_table
from pathfinder.reporting.results import Score, load_results
from stages.report import main
from tests.support.report_inputs import (
    SEEDED,
    write_benchmarks,
    write_best_of_n,
    write_everything,
    write_project,
    write_published,
)

SETS = paper.SIZES["search"]


def test_published_prms_and_best_of_n_are_compared_with_ours(folder: Path, root: Path) -> None:
    write_project(root, "paper")
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
    best = next(row for row in tables["results"] if row["system"].startswith("best of n by minimum reward"))
    assert best["search"]["low"] <= best["search"]["value"] <= best["search"]["high"]
    assert best["is_baseline"]
    last = [row["system"] for row in tables["results"]][-3:]
    assert last == ["best of n by minimum reward", "weighted vote of n by minimum reward", "pass@n"]
    assert tables["results"][-2]["search"]["value"] == 0.0
    sentences = [one["said"] for one in tables["comparisons"]]
    assert any(s.startswith("PathFinder-PRM trails Math-Shepherd-7B by") for s in sentences)
    assert any("its own best of n (last)" in s for s in sentences)
    assert any("its own weighted vote of n (last)" in s for s in sentences)
    printed = tables["tables"]
    names = [line[0] for line in printed["ProcessBench"][0]["rows"]]
    assert {"Math-Shepherd-7B, its authors' rule", "Math-Shepherd-7B, the benchmark's rule"} <= set(names)
    theirs = printed["The paper's tables and ours"][0]["rows"]
    place = [line[0] for line in theirs].index("measured: Math-Shepherd-7B, the benchmark's rule")
    assert theirs[place + 1][-1] == f"{0 - 31.5:+.1f}", "the paper's figure is the evaluator's"
    assert theirs[place + 2][:: len(theirs[0]) - 1] == ["measured: Math-Shepherd-7B, its authors' rule", "100.0"]
    assert len(theirs) == place + 3
    search = {line[0]: line[-1] for line in printed["Search"][0]["rows"]}
    captions = [table["caption"] for section in ("ProcessBench", "PRMBench") for table in printed[section]]
    assert sum("threshold of the main reading" in caption for caption in captions) == 1
    assert any("an upper bound, and so is the best on GSM8K for GSM8K itself" in caption for caption in captions)
    assert sum("generator's solutions" in caption for caption in captions) == 1
    assert sum("accuracy on kinds of steps" in caption for caption in captions) == 1
    sweep = next(t["rows"] for t in printed["ProcessBench"] if "threshold of the main reading" in t["caption"])
    assert ["full, fixed", "0.500", "60.0", "62.0", "–", "–", "61.0"] in sweep
    assert ["full, best on the test items", "–", "60.0", "62.0", "–", "–", "61.0"] in sweep
    assert search["PathFinder-PRM, best of n by min"] == "52.0"
    assert "without separate subtasks, best of n by min" not in search


def test_the_paper_profile_shows_the_paper_s_tables_with_ours_and_the_difference(folder: Path, root: Path) -> None:
    write_project(root, "paper")
    write_everything()
    main([])
    tables = json.loads(Path("reports/tables.json").read_text())["tables"]["The paper's tables and ours"]
    known = (paper.PROCESSBENCH, paper.PROCESSBENCH_FULL, paper.PRMBENCH, paper.SEARCH)
    assert [table["caption"] for table in tables[:4]] == [each.caption for each in known]
    assert tables[4]["caption"].startswith("Effect of scaling the Mistral data")
    assert not any("tab:" in table["caption"] for table in tables)
    rows = {row[0]: row for row in tables[0]["rows"]}
    assert rows["PathFinder-PRM-7B"][1 :: len(rows["PathFinder-PRM-7B"]) - 2] == ["soundness (error labels)", "69.5"]
    assert rows["PathFinder-PRM-7B w/o Separate Subtask Prediction"][1] == "quality (one label)"


def test_the_paper_s_figures_are_compared_with_the_published_rule_only(folder: Path, root: Path) -> None:
    """Fails if a difference row subtracts the paper's figures from figures by a different decision rule."""
    write_project(root, "paper")
    write_everything()
    write_best_of_n("full")
    main([])
    tables = json.loads(Path("reports/tables.json").read_text())["tables"]["The paper's tables and ours"]
    figures = {"processbench": "mean_f1", "prmbench": "overall", "search": "average"}
    places = {"processbench": (0, 1), "prmbench": (2,), "search": (3,)}
    printed = {"processbench": 69.5, "prmbench": 67.7, "search": 48.3}
    for benchmark, key in figures.items():
        metrics = json.loads(Path(f"metrics/{benchmark}/full.json").read_text())
        ours, published = metrics[key], metrics["official"][key]
        assert abs(ours - published) > 1, "the rules differ in these inputs"
        words = "graded as published" if benchmark == "search" else "as published"
        for place in places[benchmark]:
            rows = tables[place]["rows"]
            found = [row[0] for row in rows].index(f"ours: PathFinder-PRM, {words}")
            assert rows[found][-1] == f"{published:.1f}"
            assert rows[found + 1][0] == "difference"
            assert rows[found + 1][-1] == f"{published - printed[benchmark]:+.1f}"
            assert rows[found + 2][:: len(rows[0]) - 1] == ["ours: PathFinder-PRM, repaired", f"{ours:.1f}"]
            assert rows[found + 3][0] != "difference", "our own rule has no counterpart in the paper"
    scale = tables[4]["rows"]
    found = [row[0] for row in scale].index("ours: PathFinder-PRM, as published (search: graded as published)")
    gaps = [f"{published_of(bench, key) - printed[bench]:+.1f}" for bench, key in figures.items()]
    assert scale[found + 1][3:] == gaps
    assert [row[0] for row in scale].count("difference") == 1
    drawn = Path("reports/report.md").read_text()
    assert f"ours: PathFinder-PRM: ProcessBench mean F1 {published_of('processbench', 'mean_f1'):.1f}" in drawn


@pytest.mark.parametrize(
    ("benchmark", "change"),
    [
        ("processbench", {"dropped": {"limit": 9}}),
        ("prmbench", {"dropped": {"limit": 9}}),
        ("search", {"dropped": {"limit": 9}}),
        ("search", {"sets": {"math": {"prm@8": 50.0}}}),
        ("search", {"sets": {name: {"prm@4": 50.0, "n": n} for name, n in SETS.items()}}),
        ("search", {"sets": {name: {"prm@8": 50.0, "n": n} for name, n in (SETS | {"olympiadbench": 675}).items()}}),
    ],
)
def test_a_part_of_a_benchmark_is_not_compared_with_the_paper(
    folder: Path, root: Path, benchmark: str, change: dict[str, object]
) -> None:
    write_project(root, "paper", ["full"])
    write_everything(["full"])
    path = Path(f"metrics/{benchmark}/full.json")
    write_json(path, json.loads(path.read_text()) | change)
    main([])
    *tables, scale = json.loads(Path("reports/tables.json").read_text())["tables"]["The paper's tables and ours"][:5]
    compared = [any(row[0] == "difference" for row in table["rows"]) for table in tables]
    assert compared == [benchmark != name for name in ("processbench", "processbench", "prmbench", "search")]
    (gaps,) = (row[3:] for row in scale["rows"] if row[0] == "difference")
    assert [gap != "–" for gap in gaps] == [benchmark != name for name in ("processbench", "prmbench", "search")]
    captions = Path("reports/report.md").read_text()
    drawn = "PRMScore by number of training samples (the paper's figure, drawn from its tables, with our systems"
    assert (drawn in captions) == (benchmark != "prmbench")


def test_a_published_prm_s_search_by_our_rules_is_only_graded_as_published(folder: Path, root: Path) -> None:
    write_project(root, "paper")
    path = Path("params.yaml")
    path.write_text(path.read_text().replace("baselines: []", "baselines: [qwen-prm]"))
    write_everything()
    words = {"default": "graded as published", "official": "as published"}
    for preset, expected in words.items():
        sets = {name: {"prm@8": 50.0, "n": n} for name, n in SETS.items()}
        figures = {"average": 50.0, "interval": [40.0, 60.0], "sets": sets}
        found = figures | {"official": figures, "preset": preset, "titles": ["Qwen2.5-Math-PRM-7B"]}
        write_json(Path("metrics/search/qwen-prm.json"), found)
        main([])
        tables = json.loads(Path("reports/tables.json").read_text())["tables"]["The paper's tables and ours"]
        names = [row[0] for row in tables[3]["rows"]]
        assert "difference" in names[:-2], "of the paper's own model"
        assert names[-2:] == [f"measured: Qwen2.5-Math-PRM-7B, {expected}", "measured: Qwen2.5-Math-PRM-7B, repaired"]


def test_a_threshold_chosen_on_gsm8k_is_compared_with_no_fixed_one(folder: Path, root: Path) -> None:
    """The paper's figures of Skywork on ProcessBench follow its best threshold there."""
    write_project(root, "paper")
    path = Path("params.yaml")
    path.write_text(path.read_text().replace("baselines: []", "baselines: [qwen-prm, skywork]"))
    write_everything()
    for name, title in (("qwen-prm", "Qwen2.5-Math-PRM-7B"), ("skywork", "Skywork-PRM-7B")):
        figures = {"mean_f1": 50.0, "interval": [40.0, 60.0], "titles": [title]}
        write_json(Path(f"metrics/processbench/{name}.json"), figures)
    main([])
    tables = json.loads(Path("reports/tables.json").read_text())["tables"]["The paper's tables and ours"]
    found = [row[0] for row in tables[0]["rows"]]
    at = found.index("measured: Qwen2.5-Math-PRM-7B")
    assert found[at:] == ["measured: Qwen2.5-Math-PRM-7B", "difference", "measured: Skywork-PRM-7B"]
    assert "GSM8K" in paper.differs("processbench", ["Skywork-PRM-7B"])
    assert paper.differs("prmbench", ["Skywork-PRM-7B"]) == ""


def published_of(benchmark: str, key: str) -> float:
    return float(json.loads(Path(f"metrics/{benchmark}/full.json").read_text())["official"][key])


def test_metrics_without_the_published_rule_have_no_difference(folder: Path, root: Path) -> None:
    write_project(root, "paper")
    write_everything()
    for path in Path("metrics").glob("*bench/*.json"):
        found = json.loads(path.read_text())
        found.pop("official")
        path.write_text(json.dumps(found))
    main([])
    tables = json.loads(Path("reports/tables.json").read_text())["tables"]["The paper's tables and ours"]
    names = [row[0] for table in tables[:3] for row in table["rows"]]
    assert "difference" not in names
    assert names.count("ours: PathFinder-PRM, repaired") == 3


def test_published_systems_are_named_with_their_rules(folder: Path, root: Path) -> None:
    write_project(root, "evaluate-published", [])
    path = Path("params.yaml")
    path.write_text(path.read_text().replace("baselines: []", "baselines: [pathfinder-prm-7b, math-shepherd]"))
    write_benchmarks()
    write_published("math-shepherd")
    checkpoint = {"mean_f1": 50.0, "preset": "official", "titles": ["PathFinder-PRM-7B"]}
    write_json(Path("metrics/processbench/pathfinder-prm-7b.json"), checkpoint)
    write_json(Path("metrics/search/random.json"), {"average": 50.0, "preset": "official"})
    main(["published"])
    caption = json.loads(Path("reports/published.json").read_text())["tables"]["Results"][0]["caption"]
    rules = "by their authors' rules: Math-Shepherd-7B; by the published rules: PathFinder-PRM-7B."
    assert caption.endswith(f" Published systems are read {rules}")
    assert "Our systems follow" not in caption, "only the control searched by the published rules"


def test_a_judge_is_named_with_its_reading(folder: Path, root: Path) -> None:
    write_project(root, "paper", ["full"])
    path = Path("params.yaml")
    path.write_text(path.read_text().replace("critics: []", "critics: [critic-gpt-4o]"))
    write_everything(["full"])
    judged = {"mean_f1": 50.0, "reading": "soundness", "preset": "repaired", "titles": ["GPT-4o"]}
    write_json(Path("metrics/processbench/critic-gpt-4o.json"), judged)
    main([])
    rows = json.loads(Path("reports/tables.json").read_text())["tables"]["ProcessBench"][0]["rows"]
    assert "GPT-4o, soundness" in [row[0] for row in rows], "it has no authors' rule"


@pytest.mark.parametrize("published", [{"mean_f1": 61.9}, {}])
def test_a_judge_with_other_votes_has_no_difference(folder: Path, root: Path, published: dict[str, float]) -> None:
    write_project(root, "paper", ["full"])
    path = Path("params.yaml")
    path.write_text(path.read_text().replace("critics: []", "critics: [critic-gpt-4o]"))
    write_everything(["full"])
    judged = {"mean_f1": 50.0, "titles": ["GPT-4o"], "votes": 1, "published": published}
    write_json(Path("metrics/processbench/critic-gpt-4o.json"), judged)
    main([])
    rows = json.loads(Path("reports/tables.json").read_text())["tables"]["The paper's tables and ours"][1]["rows"]
    after = [row[0] for row in rows][[row[0] for row in rows].index("measured: GPT-4o") + 1 :]
    assert after == (["difference"] if published else [])


def test_the_main_table_names_the_benchmarks_under_published_rules(folder: Path, root: Path) -> None:
    write_project(root, "paper")
    write_everything()
    for path in Path("metrics/prmbench").glob("*.json"):
        reading = "quality" if path.stem == "no_subtasks" else "soundness"
        path.write_text(json.dumps(json.loads(path.read_text()) | {"preset": "official", "reading": reading}))
    main([])
    tables = json.loads(Path("reports/tables.json").read_text())["tables"]
    caption, rows = tables["Results"][0]["caption"], {row[0]: row[2] for row in tables["Results"][0]["rows"]}
    assert caption.endswith("Our systems follow the published rules in PRMScore.")
    assert "PRMScore reads soundness: is the step free of errors (without separate subtasks by quality, for" in caption
    assert {name: cell.partition("] ")[2] for name, cell in rows.items() if "without" in name or "Path" in name} == {
        "PathFinder-PRM": "",
        "without separate error categories": "",
        "without separate subtasks": "by quality",
    }
    assert "soundness (PRMScore)" in tables["The paper's claims, tested here"][0]["caption"]
    read_by = {row[0]: row[1] for row in tables["The paper's tables and ours"][2]["rows"]}
    assert read_by["ours: PathFinder-PRM, repaired"] == "definition"


def test_claims_are_tested_under_the_published_rules_too(folder: Path, root: Path) -> None:
    write_project(root, "paper")
    write_everything()
    main([])
    section = "The paper's claims, tested here"
    ours, published = json.loads(Path("reports/tables.json").read_text())["tables"][section][:2]
    assert published["headers"] == ["claim", "PRMScore"], "the published rule of ProcessBench reads soundness too"
    under = [{row[0]: row[-2] for row in ours["rows"]}, {row[0]: row[1] for row in published["rows"]}]
    assert set(under[1]) == {"separate subtasks help", "separate error categories help"}
    assert under[0]["separate error categories help"] != under[1]["separate error categories help"]
    assert under[1]["separate subtasks help"] == "not comparable: soundness against quality"
    for benchmark in ("processbench", "prmbench"):
        for path in Path("metrics", benchmark).glob("*.json"):
            path.write_text(json.dumps(json.loads(path.read_text()) | {"preset": "official"}))
    main([])
    tables = json.loads(Path("reports/tables.json").read_text())["tables"][section]
    assert not any("published decision rules" in table["caption"] for table in tables)


def test_a_mean_over_seeds_is_undefined_if_one_seed_s_figure_is(folder: Path, root: Path) -> None:
    """The published arithmetic leaves F1 undefined for a system that finds no error; such a seed must not drop out."""
    write_project(root, "paper", SEEDED)
    write_everything(SEEDED)
    path = Path("metrics/processbench/full-s2.json")
    found = json.loads(path.read_text())
    found["official"]["subsets"]["math"]["f1"] = found["official"]["mean_f1"] = None
    write_json(path, found)
    main([])
    table = json.loads(Path("reports/tables.json").read_text())["tables"]["The paper's tables and ours"][0]
    row = next(row for row in table["rows"] if row[0] == "ours: PathFinder-PRM (mean of 2 seeds), as published")
    gsm8k, math, average = (row[table["headers"].index(name)] for name in ("GSM8K", "MATH", "Avg. F1"))
    assert float(gsm8k) >= 0
    assert (math, average) == ("–", "–")


def test_a_mean_over_seeds_never_counts_a_seed_that_was_not_measured(folder: Path, root: Path) -> None:
    write_project(root, "seeds", SEEDED)
    write_everything(SEEDED)
    for path in ("metrics/processbench/full-s2.json", "artifacts/predictions/processbench/full-s2.jsonl"):
        Path(path).unlink()
    main([])
    tables = json.loads(Path("reports/tables.json").read_text())
    ours = tables["results"][0]
    assert (ours["system"], ours["processbench"]) == ("PathFinder-PRM (mean of 2 seeds)", "missing")
    assert ours["prmbench"]["low"] <= ours["prmbench"]["value"] <= ours["prmbench"]["high"]
    names = {bench: tables["tables"][bench][0]["rows"][0][0] for bench in ("ProcessBench", "PRMBench")}
    assert names == {
        "ProcessBench": "PathFinder-PRM, soundness",
        "PRMBench": "PathFinder-PRM (mean of 2 seeds), by definition",
    }


def test_a_rule_s_column_counts_seeds_as_the_others_do(
    folder: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A column of the rules has all seeds or none, and assumes their variance for a system with one seed."""
    monkeypatch.setitem(choosing.COLUMNS, "min", "best of n")
    write_project(root, "seeds", ("full", "full-s2", "no_subtasks", "autoregressive", "autoregressive-s2"))
    runs = ("full", "full-s2", "no_subtasks", "autoregressive")
    write_everything(runs)
    for run in runs:
        write_best_of_n(run)
    params = load_params()
    results = load_results(Path("metrics"), parse_runs(params.runs))
    evidence = Evidence(results, Path("artifacts/predictions"), Path("artifacts/raw"), params.report)
    flipped = Path("artifacts/predictions/best_of_n/full-s2.jsonl")
    alone = evidence.lines[1].cells[-1]
    flipped.write_text(flipped.read_text().replace('"min": true', '"min": false', 20))
    apart = Evidence(results, Path("artifacts/predictions"), Path("artifacts/raw"), params.report).lines
    assert [line.cells[-1] == "missing" for line in apart[:3]] == [False, False, True]
    varied = apart[1].cells[-1]
    assert isinstance(alone, Score)
    assert isinstance(varied, Score)
    assert varied.value == alone.value
    assert varied.high - varied.low > 1.2 * (alone.high - alone.low), "seeds of the other system differ"
    monkeypatch.setitem(choosing.COLUMNS, "newer", "best of n by a rule that the predictions lack")
    newer = Evidence(results, Path("artifacts/predictions"), Path("artifacts/raw"), params.report).lines
    assert [line.cells[-1] for line in newer[:3]] == ["missing"] * 3


def test_two_readings_are_never_subtracted(folder: Path, root: Path) -> None:
    """A variant without the benchmark's reading has a row with its own reading, and no verdict."""
    write_project(root, "paper")
    write_everything()
    for benchmark in ("processbench", "prmbench"):
        path = Path(f"metrics/{benchmark}/no_subtasks.json")
        path.write_text(json.dumps(json.loads(path.read_text()) | {"reading": "quality"}))
    main([])
    tables = json.loads(Path("reports/tables.json").read_text())
    claims = {row[0]: row[1:] for row in tables["tables"]["The paper's claims, tested here"][0]["rows"]}
    assert claims["separate subtasks help"][:2] == [
        "not comparable: soundness against quality",
        "not comparable: definition against quality",
    ]
    assert not claims["separate error categories help"][0].startswith("not comparable")
    (one,) = (c for c in tables["comparisons"] if "subtasks" in c["right"] and "ProcessBench" in c["benchmark"])
    assert (one["difference"], one["p_adjusted"], one["readings"]) == (None, None, ["soundness", "quality"])
    assert "are not comparable on ProcessBench mean F1: they answer different questions" in one["said"]
    page = Path("reports/report.md").read_text()
    assert "without separate subtasks by quality, for lack of that reading" in page
    printed = {line.split("  ")[0]: line.count("] by quality") for line in results_table().splitlines()}
    assert (printed["without separate subtasks"], printed["PathFinder-PRM"]) == (2, 0)
    assert "cannot be tested on ProcessBench mean F1 and PRMScore, where the variant answers a different" in page
