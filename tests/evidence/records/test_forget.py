"""``forget``: what it lists and writes, and what remains after the next run."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import polars as pl
import pytest

from evidence.dvc.pipeline import read_pipeline
from extras.records.down import down
from extras.records.forget import forget
from ground.io import write_jsonl
from pathfinder.data.exclusions import EXCLUSIONS, read_exclusions
from pathfinder.reporting.index import schema
from tests.evidence.records.conftest import index, trained
from tests.support.record_stages import HUMAN, human_lines, run_stages


def test_forget_names_what_runs_again_and_its_recorded_time(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "extras.records.forget._seconds",
        lambda root, stage: {"build": 1.5, "train@full": 20.25}.get(stage),
    )
    row = trained()
    found = forget([row["id"]], project, "asked", dry_run=True)
    again = {stage["stage"]: stage["seconds"] for stage in found["run_again"]}
    assert again == {"build": 1.5, "train@full": 20.25, "processbench@full": None, "index": None}
    assert (found["seconds"], found["unknown_times"]) == (21.8, ["processbench@full", "index"])
    assert found["retrain"] == ["models/full"]
    assert found["figures"] == ["reports/tables.json#/results/0/processbench"]
    unused = index("steps").filter(reason="limit")["id"][0]
    nothing = forget([unused], project, dry_run=True)
    assert (nothing["retrain"], [stage["stage"] for stage in nothing["run_again"]]) == ([], ["build", "index"])


def test_after_forget_and_a_run_no_training_record_is_left(project: Path) -> None:
    """The file grows in between, so every id changes: the exclusions hold because they name contents."""
    first, second = trained("rater-0"), trained("rater-1")
    third = trained("rater-2")
    gone = forget([first["line_id"], second["id"], "rater:rater-2", "source:mistral"], project, "the author asked")
    assert gone["written"]
    assert gone["retrain"] == ["models/full"]
    again = forget([first["line_id"], "rater:rater-2"], project)
    assert (again["excluded"], again["written"]) == ([], False)
    entries = [json.loads(line) for line in EXCLUSIONS.read_text().splitlines()]
    assert {entry["reason"] for entry in entries} == {"the author asked"}
    old = Path("models/full/model.safetensors").read_bytes()
    contents = dict(index("lines").select("id", "content").iter_rows())
    write_jsonl(HUMAN, [*human_lines(), human_lines()[3] | {"labeler": "new"}])
    run_stages()
    steps, lines = index("steps"), index("lines")
    by_content = {content: line for line, content in lines.select("id", "content").rows()}
    for row in (first, second, third):
        now = f"{by_content[contents[row['line_id']]]}-{row['position']}-{row['completion']}"
        assert now != row["id"]
        found = steps.filter(id=now).row(0, named=True)
        assert (found["stage"], found["reason"], found["side"], found["mixes"]) == ("build", "excluded", None, [])
        assert down(now, project)["runs"] == []
        assert now not in set(pl.read_parquet("artifacts/used/full.parquet")["id"])
    detail = steps.filter(reason="excluded")["detail"].unique().to_list()
    assert "rater:rater-2 (the author asked)" in detail
    used = pl.read_parquet(schema.INDEX / schema.run_file("full"))
    raters = used.join(steps.select("id", "line_id"), on="id").join(lines.rename({"id": "line_id"}), on="line_id")
    assert "rater-2" not in raters["rater"].to_list()
    assert set(raters["source"]) == {"prm800k"}
    for side in ("train", "test"):
        trees = pl.read_parquet(f"artifacts/train/{side}.parquet")["tree_id"].to_list()
        assert by_content[contents[first["line_id"]]] not in trees
    assert Path("models/full/model.safetensors").read_bytes() != old
    assert [run["run"] for run in down(raters.filter(pl.col("tokens").is_null())["id"][0], project)["runs"]] == ["full"]


def test_forgetting_one_step_says_that_later_prefixes_keep_its_text(project: Path) -> None:
    row = index("steps").filter(rating=1, position=0, line=4).row(0, named=True)
    found = forget([row["id"]], project, dry_run=True)
    assert found["still_in_prefixes"] == 1
    content = index("lines").filter(id=row["line_id"])["content"][0]
    assert forget([f"{content}-0-{row['completion']}"], project, dry_run=True)["still_in_prefixes"] == 1
    assert forget(["rating:1"], project, dry_run=True)["still_in_prefixes"] > 0
    for whole in (row["line_id"], content, "source:prm800k"):
        assert forget([whole], project, dry_run=True)["still_in_prefixes"] == 0
    alternative = index("steps").filter(rating=-1, position=0, line=4).row(0, named=True)
    assert forget([alternative["id"]], project, dry_run=True)["still_in_prefixes"] == 0


def test_a_licence_is_forgotten_by_its_sources(project: Path) -> None:
    assert forget(["licence:Apache-2.0"], project)["excluded"] == [{"source": "mistral"}]
    assert EXCLUSIONS.read_text() == '{"source": "mistral"}\n'


def test_the_build_of_the_pipeline_reads_the_list(root: Path) -> None:
    """The list is empty in the repository, tracked by git, and an input of the build alone."""
    readers = [name for name, stage in read_pipeline(root).items() if EXCLUSIONS.as_posix() in stage.deps]
    assert readers == ["build"]
    tracked = subprocess.run(["git", "ls-files", EXCLUSIONS], cwd=root, capture_output=True, text=True, check=True)
    assert tracked.stdout.split() == [EXCLUSIONS.as_posix()]
    assert read_exclusions(root / EXCLUSIONS) == []
