from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from stages.core.io import EXIT_TRANSIENT, DataError, read_json, read_parquet
from stages.core.records import ANSWERS, LABELS, STEPS
from tests.servers import JudgeServer, judge_server
from tests.stage_inputs import write_params, write_raw

OUT = Path("artifacts/labels")
MODEL = Path("artifacts/raw/models/judge")


def set_params(folder: Path, **label: Any) -> None:
    small = {"max_tokens": 40, "max_model_len": 1000, "mistral_per_rating": 5, "retries": 3, "timeout_s": 5.0}
    write_params(folder, prepare={"preset": "repaired", "max_quarantined_share": 0.0}, label=small | label)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Prepared steps: 12 rated -1 by people, 12 "+" and 12 "-"."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("stages.core.openai_client._FIRST_WAIT_S", 0.01)
    set_params(tmp_path)
    write_raw(tmp_path)
    from stages.prepare import main as prepare

    prepare()
    MODEL.mkdir(parents=True)
    (MODEL / "weights").write_text("1", encoding="utf-8")
    return tmp_path


def label() -> None:
    from stages.label import main

    main()


def grade(prompt: str, seed: int) -> str:
    """Says all ones to what it likes, and at a third of the seeds nothing that can be read."""
    if seed % 3 == 0:
        return "I would rather not."
    step = prompt.partition("<current_step>\n")[2].partition("\n</current_step>")[0]
    return f"Reasoning: fine.\nScore A: {int('=' not in step)}\nScore B: 1\nScore C: {seed % 2}"


def outs() -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in [*OUT.iterdir(), Path("metrics/label.json")]}


def test_a_server_labels_what_ratings_leave_open(project: Path) -> None:
    with judge_server(JudgeServer(grade)) as server:
        set_params(project, engine="openai", base_urls=[server.url], concurrency=4)
        label()
        first = outs()
        calls = server.calls
        shutil.rmtree(OUT)
        label()
        assert server.calls == calls  # the journal holds every answer
        assert outs() == first
    steps = read_parquet(Path("artifacts/steps/steps.parquet"), STEPS)
    labels = read_parquet(OUT / "labels.parquet", LABELS)
    answers = read_parquet(OUT / "answers.parquet", ANSWERS)
    metrics = read_json(Path("metrics/label.json"))
    assert labels["id"].to_list() == steps["id"].to_list()
    assert metrics["read"] == len(steps) == metrics["kept"] + sum(metrics["dropped"].values())
    assert metrics["outcomes"]["given"] == 6 * 3
    assert metrics["dropped"]["not_sampled"] == 14
    assert metrics["calls"] == calls == answers.select("prompt_digest", "attempt").n_unique()
    judged = labels.filter(pl.col("origin") == "judge")
    assert set(judged["outcome"]) == {"parsed"}
    assert judged["math"].null_count() == 0
    assert labels.filter(pl.col("origin") == "none")["math"].null_count() == 14 + metrics["dropped"].get("unparsed", 0)
    per_record = answers.group_by("id").len()
    joined = labels.filter(pl.col("attempts") > 0).join(per_record, on="id")
    assert (joined["attempts"] == joined["len"]).all()
    parsed = answers.filter(pl.col("outcome") == "parsed")
    assert metrics["parsed_share"] == pytest.approx(len(parsed) / len(answers))
    assert set(metrics["agreement"]) == {"prm800k:-1", "rlhflow_mistral:+1", "rlhflow_mistral:-1"}


def run_stage() -> subprocess.Popen[bytes]:
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).resolve().parent.parent)}
    return subprocess.Popen([sys.executable, "-m", "stages.label"], env=environment, stderr=subprocess.PIPE)


def test_a_kill_loses_nothing_and_ends_with_the_same_bytes(project: Path) -> None:
    def slow(prompt: str, seed: int) -> str:
        time.sleep(0.02)
        return grade(prompt, seed)

    with judge_server(JudgeServer(slow)) as server:
        set_params(project, engine="openai", base_urls=[server.url], concurrency=2)
        with run_stage() as process:
            while server.calls < 12 and process.poll() is None:
                time.sleep(0.01)
            process.send_signal(signal.SIGKILL)
        assert not OUT.exists()
        with run_stage() as process:
            _, errors = process.communicate()
        assert process.returncode == 0, errors.decode()
        killed = outs()
        answers = read_json(Path("metrics/label.json"))["calls"]
        # an answer is in the journal within 64 answers or a second; what a kill can cost is that much at most
        assert answers <= server.calls <= answers + 12 + 2
        shutil.rmtree(".pathfinder")
        shutil.rmtree(OUT)
        label()
    assert outs() == killed


def test_a_dead_server_ends_with_the_status_that_asks_for_another_try(project: Path) -> None:
    set_params(project, engine="openai", base_urls=["http://127.0.0.1:9/v1"], retries=0)
    with pytest.raises(SystemExit) as caught:
        label()
    assert caught.value.code == EXIT_TRANSIENT
    assert not OUT.exists()


def test_no_room_for_a_prompt_is_refused_at_once(project: Path) -> None:
    set_params(project, max_tokens=1000)
    with pytest.raises(DataError, match="leaves no room"):
        label()


def test_the_shipped_judge_labels_in_process_and_repeats_itself(project: Path, world: Path) -> None:
    shutil.rmtree(MODEL)
    shutil.copytree(world / "models" / "judge", MODEL)
    set_params(project, engine="transformers", batch_size=8, max_tokens=24, mistral_per_rating=3)
    label()
    first = outs()
    (journal,) = Path(".pathfinder/label").glob("*/journal.jsonl")
    content = journal.read_bytes()
    shutil.rmtree(OUT)
    journal.write_bytes(content[: len(content) // 2])
    label()
    assert outs() == first
    assert journal.read_bytes() == content
