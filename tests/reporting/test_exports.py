"""The report's figures for machines, and the README section made of them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml

from docs.tools import readme
from ground.io import DataError
from stages.report import main
from tests.support.report_inputs import SEEDED, write_everything, write_project


def test_figures_equal_the_metrics_and_sentences_name_the_winner(folder: Path, root: Path) -> None:
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
    sentences = [one["said"] for one in tables["comparisons"]]
    assert any(
        s.startswith("PathFinder-PRM beats the variant without separate subtasks by") and "ProcessBench" in s
        for s in sentences
    )
    assert any(s.startswith("PathFinder-PRM beats the random pick by") for s in sentences)
    assert len(sentences) == 7
    assert all(s.endswith("; 1 seed).") for s in sentences)
    page = Path("reports/report.html").read_text()
    assert "Another seed would move the figures" in page
    verdict = re.search(r"The paper&#39;s hypothesis, that .*?, (.*?)\.</p>", page)
    assert verdict
    assert re.match(r"is (weakly )?supported on ProcessBench mean F1", verdict[1])
    assert "contradicted" not in verdict[1]
    assert all(s.split(" by ")[0] in page for s in sentences)
    assert "The counts do not balance" not in page
    assert "so no differences are given" in page


def test_the_summary_has_a_few_figures_of_the_first_system(folder: Path, root: Path) -> None:
    write_project(root, "quickstart")
    write_everything()
    main([])
    summary = json.loads(Path("metrics/summary.json").read_text())
    for benchmark, key in (("processbench", "mean_f1"), ("prmbench", "overall"), ("search", "average")):
        metrics = json.loads(Path(f"metrics/{benchmark}/full.json").read_text())
        assert summary["benchmarks"][benchmark] == metrics[key]
    assert summary["training"]["final_loss"] == json.loads(Path("metrics/train/full.json").read_text())["final_loss"]
    figures = [value for part in summary.values() for value in part.values()]
    assert 8 <= len(figures) <= 16
    assert all(isinstance(value, (int, float)) for value in figures)


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


def test_the_readme_s_results_come_from_the_report(folder: Path, root: Path) -> None:
    write_project(root, "quickstart")
    write_everything()
    main([])
    Path("docs").mkdir()
    pages = (readme.README, readme.DETAILS)
    for page in pages:
        page.write_text((root / page).read_text())
    readme.main(["--write"])
    once, details = (page.read_text() for page in pages)
    readme.main(["--write"])
    assert [page.read_text() for page in pages] == [once, details]
    for page, text in zip(pages, (once, details), strict=True):
        before = (root / page).read_text()
        assert text.split(readme.START)[0] == before.split(readme.START)[0]
        assert text.split(readme.END)[1] == before.split(readme.END)[1]
    full = json.loads(Path("metrics/processbench/full.json").read_text())["mean_f1"]
    assert f"| PathFinder-PRM | {full:.1f} [" in once
    assert re.search(r"\| separate subtasks help \| (yes|perhaps): \+", details)
    with pytest.raises(DataError, match="expected the marks"):
        readme.between("no marks", readme.START, "x", readme.END, readme.README)
