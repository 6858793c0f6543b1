"""The index of records, and the verbs down, items and forget, over a small project that real stages ran."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from typer.testing import CliRunner

from pathfinder.core.io import DataError, read_json, write_json, write_jsonl, write_parquet
from pathfinder.data.exclusions import EXCLUSIONS, read_exclusions
from pathfinder.lineage.__main__ import app
from pathfinder.lineage.records import past
from pathfinder.lineage.records.down import down
from pathfinder.lineage.records.forget import forget
from pathfinder.lineage.records.items import decisions
from pathfinder.provenance.pipeline import read_pipeline
from pathfinder.reporting.index import schema
from stages import build, report
from tests.support.large_index import write_large_index
from tests.support.record_stages import HUMAN, human_lines, run_stages, write_project

FATES = {
    "build: limit": 15,
    "build: mix": 13,
    "build: overlap": 2,
    "filter: disagrees": 1,
    "kept": 55,
    "label: engine_error": 1,
    "label: not_sampled": 1,
    "label: refused": 1,
    "label: too_long": 1,
    "label: unparsed": 1,
    "label: unrated": 1,
    "prepare: after_unchosen_step": 1,
    "prepare: after_unreadable_step": 1,
    "prepare: empty_text": 1,
    "prepare: null_text": 1,
    "train: too_long": 2,
}
LOCK = """
schema: '2.0'
stages:
  build:
    cmd: python -m stages.build
    deps: [{path: exclusions.jsonl, md5: d41d8cd98f00b204e9800998ecf8427e}]
    outs:
    - {path: artifacts/train, md5: d41d8cd98f00b204e9800998ecf8427e}
    - {path: artifacts/decisions.parquet, md5: d41d8cd98f00b204e9800998ecf8427e}
  train@full:
    cmd: python -m stages.train full
    deps: [{path: artifacts/train, md5: d41d8cd98f00b204e9800998ecf8427e}]
    outs: [{path: models/full, md5: d41d8cd98f00b204e9800998ecf8427e}]
  processbench@full:
    cmd: python -m stages.processbench full
    deps: [{path: models/full, md5: d41d8cd98f00b204e9800998ecf8427e}]
    outs: [{path: metrics/processbench/full.json, md5: d41d8cd98f00b204e9800998ecf8427e}]
  index:
    cmd: python -m stages.report index
    deps: [{path: artifacts/decisions.parquet, md5: d41d8cd98f00b204e9800998ecf8427e}]
    outs: [{path: artifacts/index, md5: d41d8cd98f00b204e9800998ecf8427e}]
  sample:
    cmd: python -m stages.sample
    deps: [{path: artifacts/raw/search, md5: d41d8cd98f00b204e9800998ecf8427e}]
    outs: [{path: metrics/sample.json, md5: d41d8cd98f00b204e9800998ecf8427e}]
"""


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The small project after a run; a report with one figure of the run and one of the policy."""
    folder = tmp_path_factory.mktemp("records")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        write_project(folder)
        run_stages()
    (folder / "dvc.lock").write_text(LOCK)
    origins = {"processbench": {"how": "copy", "of": ["metrics/processbench/full.json#/mean_f1"]}}
    origins["sample"] = {"how": "copy", "of": ["metrics/sample.json#/pass_at_1"]}
    write_json(folder / "reports/tables.json", {"results": [{"origins": origins}]})
    return folder


@pytest.fixture
def project(finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy as the working directory."""
    copy = Path(shutil.copytree(finished, tmp_path / "project"))
    monkeypatch.chdir(copy)
    return copy


def index(name: str) -> pl.DataFrame:
    return pl.read_parquet(schema.INDEX / f"{name}.parquet")


def trained(rater: str = "") -> dict[str, Any]:
    """A record that the run trained on."""
    steps = index("steps").filter(pl.col("stage").is_null(), side="train", rating=1)
    lines = index("lines").filter(pl.col("rater") == rater if rater else pl.col("rater").is_not_null())
    return steps.join(lines.select(line_id="id"), on="line_id", how="semi").row(0, named=True)


def test_every_reason_for_a_drop_is_in_the_index(project: Path) -> None:
    steps = index("steps")
    assert dict(steps.schema) == schema.STEPS
    assert dict(steps.group_by(schema.fate().alias("fate")).len().iter_rows()) == FATES
    metrics = read_json(Path("metrics/index.json"))
    assert metrics["read"] == metrics["kept"] + sum(metrics["dropped"].values()) == sum(FATES.values())
    detail = {reason: detail for reason, detail in steps.select("reason", "detail").rows() if reason}
    assert detail["overlap"] == "exact problem of processbench/gsm8k gsm8k-0"
    assert detail["limit"] == "build.max_records"
    assert detail["null_text"] == "None"
    lines = index("lines")
    assert dict(lines.schema) == schema.LINES
    assert lines.drop_nulls("reason").select("line", "reason", "records").rows() == [(25, "missing_field", 0)]


def test_the_reasons_agree_with_the_metrics_of_the_stages(project: Path) -> None:
    for stage, expected in (
        ("prepare", read_json(Path("metrics/prepare.json"))),
        ("build", read_json(Path("metrics/build.json"))),
    ):
        lost = dict(index("steps").filter(stage=stage).group_by("reason").len().iter_rows())
        whole_lines = {"missing_field": 1} if stage == "prepare" else {}
        assert lost | whole_lines == expected["dropped"] | expected["quarantined"], stage


def test_lines_and_uses_are_those_of_the_files(project: Path) -> None:
    row = index("lines").filter(line=4, folder="prm800k").row(0, named=True)
    assert row["sha256"].startswith(row["id"].split("-")[1])
    assert (row["rater"], row["licence"], row["file"]) == ("rater-0", "MIT", "prm800k/phase1_train.jsonl")
    uses = pl.read_parquet(schema.INDEX / schema.run_file("full"))
    assert dict(uses.schema) == schema.USES
    used = uses.filter(pl.col("tokens").is_null())
    kept = index("steps").filter(pl.col("stage").is_null(), side="train")
    assert set(used["id"]) == set(kept["id"])
    assert used["steps"].list.len().unique().to_list() == [2], "one step per epoch"
    last = read_json(Path("metrics/train/full.json"))["optimiser_steps"]
    assert set(used["steps"].explode()) == set(range(1, last + 1))
    long = uses.drop_nulls("tokens")
    assert long["steps"].list.len().to_list() == [0] * len(long) == [0, 0]
    assert set(kept["mixes"].list.join(" ")) == {"400k 200k", "400k"}


def test_a_content_id_survives_appended_and_reformatted_lines(project: Path) -> None:
    before = index("lines").filter(folder="prm800k")["content"].to_list()
    lines = [dict(reversed(list(line.items()))) for line in human_lines()]
    write_jsonl(HUMAN, [*lines, lines[3] | {"labeler": "another"}])
    run_stages()
    after = index("lines").filter(folder="prm800k")
    assert after["content"].to_list()[:-1] == before
    assert after["content"][-1] not in before
    assert not set(after["id"]) & set(pl.read_parquet("artifacts/index/uses/full.parquet")["id"])


def test_the_same_inputs_give_the_same_bytes(project: Path) -> None:
    files = sorted(path for path in schema.INDEX.rglob("*") if path.is_file())
    before = {path: path.read_bytes() for path in files}
    assert len(before) == 5
    shutil.rmtree(schema.INDEX)
    report.main(["index"])
    assert {path: path.read_bytes() for path in files} == before


def test_the_decisions_on_items_are_those_of_the_prediction_files(project: Path) -> None:
    rows = {row["benchmark"]: row for row in index("items").to_dicts()}
    assert set(rows) == {
        *("processbench", "prmbench", "search", "sample"),
        *(f"best_of_n_{rule}" for rule in ("min", "product", "last", "mean")),
    }
    one = rows["processbench"]
    assert (one["system"], one["part"], one["item"], one["correct"], one["reward"]) == (
        *("full", "gsm8k", "gsm8k-0"),
        *(False, 0.2),
    )
    assert (one["file"], one["row"]) == ("artifacts/predictions/processbench/full.jsonl", 1)
    assert (rows["prmbench"]["label"], rows["prmbench"]["prediction"]) == ("[2]", "[2]")
    assert rows["prmbench"]["correct"] is True
    assert (rows["search"]["prediction"], rows["search"]["reward"]) == ('"12"', 0.7)
    assert rows["best_of_n_min"]["reward"] == 0.6
    assert rows["sample"]["system"] == "policy"
    assert decisions(project, "processbench", "full", None, True) == [one]
    assert decisions(project, "prmbench", "full", "circular_r0", True) == []
    with pytest.raises(DataError, match=r"it has best_of_n_last full, .* sample policy, search full"):
        decisions(project, "processbench", "other", None, False)
    with pytest.raises(DataError, match="nothing: processbench of full has no such item"):
        decisions(project, "processbench", "full", "nothing", False)


def test_down_from_a_record_a_line_and_a_content_id(project: Path) -> None:
    row = trained()
    found = down(row["id"], project)
    assert (found["kind"], found["lines"], found["records"], found["fates"]) == ("record", 1, 1, {"kept": 1})
    steps = read_json(Path("metrics/train/full.json"))["optimiser_steps"]
    run = {"run": "full", "model": "models/full", "records": 1, "steps": 2, "of_steps": steps}
    assert found["runs"] == [run]
    assert {mix["mix"] for mix in found["mixes"]} == set(row["mixes"])
    assert found["figures"] == [{"figure": "reports/tables.json#/results/0/processbench", "runs": ["full"]}]
    line = down(row["line_id"], project)
    content = index("lines").filter(id=row["line_id"])["content"][0]
    by_content = down(content, project)
    assert {key: line[key] for key in line if key not in ("selector", "kind")} == {
        key: by_content[key] for key in by_content if key not in ("selector", "kind")
    }
    single = down(f"{content}-{row['position']}-{row['completion']}", project)
    assert single["runs"] == found["runs"]


@pytest.mark.parametrize("kind, column", [("licence", "licence"), ("rater", "rater"), ("source", "source")])
def test_the_totals_are_those_of_their_lines(project: Path, kind: str, column: str) -> None:
    for value in index("lines")[column].drop_nulls().unique():
        found = down(f"{kind}:{value}", project)
        lines = index("lines").filter(pl.col(column) == value)
        steps = index("steps").filter(pl.col("line_id").is_in(lines["id"].implode()))
        assert (found["lines"], found["records"]) == (len(lines), len(steps))
        assert found["fates"] == dict(steps.group_by(schema.fate().alias("fate")).len().sort("fate").iter_rows())
        used = pl.read_parquet(schema.INDEX / schema.run_file("full")).filter(
            pl.col("id").is_in(steps["id"].implode()), pl.col("tokens").is_null()
        )
        counts = [(run["records"], run["steps"]) for run in found["runs"]]
        assert counts == ([(len(used), used["steps"].explode().n_unique())] if len(used) else [])
    assert down("source:mistral", project)["lines"] == 8


def test_a_record_that_no_run_used_supports_no_model(project: Path) -> None:
    for reason in ("limit", "too_long", "null_text", "disagrees"):
        dropped = index("steps").filter(reason=reason).row(0, named=True)
        found = down(dropped["id"], project)
        assert (found["runs"], found["figures"]) == ([], []), reason
        assert found["fates"] == {f"{dropped['stage']}: {reason}": 1}
    held = index("steps").filter(pl.col("stage").is_null(), side="test").row(0, named=True)
    assert (down(held["id"], project)["held_out"], down(held["id"], project)["runs"]) == (1, [])
    unread = index("lines").filter(reason="missing_field")["id"][0]
    assert down(unread, project)["fates"] == {"prepare: missing_field": 1}


@pytest.mark.parametrize(
    "selector, says",
    [
        ("nothing", "names no records; expected the id of a record"),
        ("prm800k-00000000-1", "the index has no such line"),
        ("licence:GPL", "no such licence; it has Apache-2.0, MIT"),
        ("rater:nobody", "no such rater; it has rater-0, rater-1, rater-2"),
    ],
)
def test_an_unknown_selector_is_refused_in_one_line(project: Path, selector: str, says: str) -> None:
    done = CliRunner().invoke(app, ["down", selector])
    assert isinstance(done.exception, DataError)
    assert says in str(done.exception)
    with pytest.raises(DataError, match="the line has no such record"):
        down(f"{trained()['line_id']}-99-0", project)
    shutil.rmtree(schema.INDEX)
    with pytest.raises(DataError, match="no such file; make the index"):
        down("rater:rater-1", project)


def test_a_run_that_was_not_repeated_still_rests_on_what_it_used(project: Path) -> None:
    row = trained("rater-1")
    forget([row["id"], "rater:rater-0"], project)
    build.main([])
    report.main(["index"])
    assert down(row["id"], project)["fates"] == {"build: excluded": 1}
    assert [run["records"] for run in down(row["id"], project)["runs"]] == [1]
    assert down("rater:rater-0", project)["runs"] != []


def test_the_verbs_print_text_and_json(project: Path) -> None:
    row, cli = trained(), CliRunner()
    text = cli.invoke(app, ["down", row["id"]])
    assert text.exit_code == 0, text.output
    assert f"{row['id']}: 1 record of 1 upstream line" in text.output
    assert "models/full" in text.output
    assert json.loads(cli.invoke(app, ["down", row["id"], "--json"]).output) == down(row["id"], project)
    dry = cli.invoke(app, ["forget", row["id"], "--dry-run"])
    assert "would be added to exclusions.jsonl" in dry.output
    assert "models to retrain: models/full" in dry.output
    assert EXCLUSIONS.read_text() == ""
    rows = json.loads(cli.invoke(app, ["items", "processbench", "full", "--json"]).output)
    assert rows[0]["item"] == "gsm8k-0"


def test_forget_names_what_runs_again_and_its_recorded_time(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "pathfinder.lineage.records.forget._seconds",
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
    for row, reason in ((first, "excluded"), (second, "excluded"), (third, "excluded")):
        now = f"{by_content[contents[row['line_id']]]}-{row['position']}-{row['completion']}"
        assert now != row["id"]
        found = steps.filter(id=now).row(0, named=True)
        assert (found["stage"], found["reason"], found["side"], found["mixes"]) == ("build", reason, None, [])
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
    assert forget([row["line_id"]], project, dry_run=True)["still_in_prefixes"] == 0
    alternative = index("steps").filter(rating=-1, position=0, line=4).row(0, named=True)
    assert forget([alternative["id"]], project, dry_run=True)["still_in_prefixes"] == 0


def test_a_licence_is_forgotten_by_its_sources(project: Path) -> None:
    assert forget(["licence:Apache-2.0"], project)["excluded"] == [{"source": "mistral"}]
    assert EXCLUSIONS.read_text() == '{"source": "mistral"}\n'


def test_a_record_without_reason_and_side_stops_the_stage(project: Path) -> None:
    path = Path("artifacts/decisions.parquet")
    made = pl.read_parquet(path)
    write_parquet(path, made.filter(pl.col("id") != made["id"][0]))
    with pytest.raises(DataError, match=rf"{made['id'][0]} among them, were dropped without a reason"):
        report.main(["index"])
    Path("artifacts/used/full.parquet").unlink()
    with pytest.raises(DataError, match=r"artifacts/used/full.parquet: no such file; re-run the training of full"):
        report.main(["index"])


def test_down_at_a_revision_reads_the_cache(project: Path) -> None:
    """The index of a commit answers from DVC's cache, after the files here have changed or are gone."""
    before = down("rater:rater-1", project)
    cache = Path(".dvc/cache/files/md5")
    listing, md5s = [], {}
    for path in [*sorted(schema.INDEX.rglob("*.parquet")), Path("reports/tables.json")]:
        md5 = hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest()
        (cache / md5[:2]).mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, cache / md5[:2] / md5[2:])
        if path.is_relative_to(schema.INDEX):
            listing.append({"md5": md5, "relpath": path.relative_to(schema.INDEX).as_posix()})
        md5s[path.as_posix()] = md5
    content = json.dumps(listing).encode()
    folder = hashlib.md5(content, usedforsecurity=False).hexdigest()
    (cache / folder[:2]).mkdir(exist_ok=True)
    (cache / folder[:2] / f"{folder[2:]}.dir").write_bytes(content)
    empty = "{path: artifacts/index, md5: d41d8cd98f00b204e9800998ecf8427e}"
    assert empty in LOCK
    made = f"{{path: artifacts/index, md5: {folder}.dir}}, "
    made += f"{{path: reports/tables.json, md5: {md5s['reports/tables.json']}}}"
    git = ["git", "-c", "user.name=t", "-c", "user.email=t@example.org"]
    subprocess.run([*git, "init", "-q"], check=True)
    for lock in (LOCK.replace(empty, made), "schema: '2.0'\nstages: {}\n"):
        Path("dvc.lock").write_text(lock)
        subprocess.run([*git, "add", "dvc.lock"], check=True)
        subprocess.run([*git, "commit", "-qm", "run"], check=True)
    shutil.rmtree("artifacts/index")
    done = CliRunner().invoke(app, ["down", "rater:rater-1", "--at", "HEAD~1", "--json"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.output) == before
    items = CliRunner().invoke(app, ["items", "sample", "policy", "--at", "HEAD~1", "--json"])
    assert json.loads(items.output)[0]["benchmark"] == "sample"
    with pytest.raises(DataError, match=r"HEAD:dvc.lock: has no artifacts/index"), past.at(project, "HEAD"):
        pass
    md5 = md5s["artifacts/index/steps.parquet"]
    (cache / md5[:2] / md5[2:]).unlink()
    with pytest.raises(DataError, match=rf"steps.parquet: no object {md5} in the cache"), past.at(project, "HEAD~1"):
        pass


def test_the_build_of_the_pipeline_reads_the_list(root: Path) -> None:
    """The list is empty in the repository, tracked by git, and an input of the build alone."""
    readers = [name for name, stage in read_pipeline(root).items() if EXCLUSIONS.as_posix() in stage.deps]
    assert readers == ["build"]
    tracked = subprocess.run(["git", "ls-files", EXCLUSIONS], cwd=root, capture_output=True, text=True, check=True)
    assert tracked.stdout.split() == [EXCLUSIONS.as_posix()]
    assert read_exclusions(root / EXCLUSIONS) == []


@pytest.mark.benchmarks
@pytest.mark.slow
def test_down_over_a_large_history(tmp_path: Path, root: Path) -> None:
    """Print how long ``down`` takes, by the size of the index (``PATHFINDER_RECORDS``, a million by default)."""
    records = int(os.environ.get("PATHFINDER_RECORDS", 1_000_000))
    runs, used = max(10, records * 247 // 10_000_000), records // 20
    write_large_index(tmp_path, records, runs, used)
    content = index_at(tmp_path, "lines")["content"][used // 20]
    print(f"\n{records:,} records, {runs} runs of {used:,} records (4 stages each)")
    for selector in ("licence:MIT", "rater:rater-7", f"prm800k-01234567-{used // 20}-3-0", content):
        command = [sys.executable, "-m", "pathfinder.lineage", "down", selector, "--json"]
        start, before = time.perf_counter(), os.times()
        done = subprocess.run(
            command, cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(root)}, capture_output=True, check=True
        )
        after = os.times()
        busy = after.children_user + after.children_system - before.children_user - before.children_system
        assert len(json.loads(done.stdout)["runs"]) == runs
        print(f"down {selector:40} {time.perf_counter() - start:5.2f} s, {busy:5.2f} s of CPU")


def index_at(folder: Path, name: str) -> pl.DataFrame:
    return pl.read_parquet(folder / schema.INDEX / f"{name}.parquet")
