"""Published PRMs, best of n and the paper's tables in the report."""

from __future__ import annotations

import json
import re
from pathlib import Path

from pathfinder.core.params import load_params
from stages.report import main
from tests.support.report_inputs import write_best_of_n, write_everything, write_project, write_published


def test_published_prms_and_best_of_n_are_compared_with_ours(folder: Path, root: Path) -> None:
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
    sentences = [one["said"] for one in tables["comparisons"]]
    assert any(s.startswith("PathFinder-PRM trails Math-Shepherd-7B by") for s in sentences)
    assert any("its own best of n (last)" in s for s in sentences)
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
