"""The tables of the index: every reason for a drop, the uses of a run, and the decisions on benchmark items."""

from __future__ import annotations

import shutil
from pathlib import Path

import polars as pl
import pytest

from extras.records.selection import decisions
from ground.io import DataError, read_json, read_jsonl, write_jsonl, write_parquet
from pathfinder.policy.choosing import RULES
from pathfinder.reporting.index import schema
from pathfinder.reporting.index.items import index_items
from stages import report
from tests.evidence.records.conftest import index
from tests.support.record_stages import HUMAN, human_lines, run_stages

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
        *(f"best_of_n_{rule}" for rule in RULES),
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


def test_a_judge_s_redundancy_labels_decide_as_in_the_metrics(project: Path) -> None:
    row = next(row for _, row in read_jsonl(Path("artifacts/predictions/prmbench/full.jsonl")))
    labels = {"step_level_validity_labels": [True, True], "step_level_redundancy_labels": [False, True, True]}
    predictions = Path("predictions")
    write_jsonl(predictions / "prmbench/critic-x.jsonl", [{"idx": row["idx"], "validity": True, "scores": labels}])
    (found,) = index_items(predictions, ["critic-x"], Path("artifacts/raw/prmbench")).to_dicts()
    assert (found["part"], found["prediction"], found["correct"]) == ("circular", "[2]", True)
    (file,) = Path("artifacts/raw/prmbench").iterdir()
    write_jsonl(file, [given | {"error_steps": [2, 3]} for _, given in read_jsonl(file)])
    (found,) = index_items(predictions, ["critic-x"], Path("artifacts/raw/prmbench")).to_dicts()
    assert (found["label"], found["correct"]) == ("[2]", True), "the metric ignores steps past the end"
    write_jsonl(predictions / "prmbench/critic-x.jsonl", [{"idx": "x", "validity": False}])
    with pytest.raises(DataError, match="x: not in PRMBench; re-run the stage that wrote the prediction"):
        index_items(predictions, ["critic-x"], Path("artifacts/raw/prmbench"))


def test_a_record_without_reason_and_side_stops_the_stage(project: Path) -> None:
    path = Path("artifacts/decisions.parquet")
    made = pl.read_parquet(path)
    write_parquet(path, made.filter(pl.col("id") != made["id"][0]))
    with pytest.raises(DataError, match=rf"{made['id'][0]} among them, were dropped without a reason"):
        report.main(["index"])
    Path("artifacts/used/full.parquet").unlink()
    with pytest.raises(DataError, match=r"artifacts/used/full.parquet: no such file; re-run the training of full"):
        report.main(["index"])
