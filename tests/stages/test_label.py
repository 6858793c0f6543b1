from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from ground.io import DataError, TransientError, read_json, read_parquet
from pathfinder.core.records import ANSWERS, LABELS, STEPS
from pathfinder.engines.metering import BudgetSpentError
from tests.support.judge_process import counts, judge_process
from tests.support.servers import JudgeServer, judge_server
from tests.support.stage_inputs import ROOT, write_params, write_raw

OUT = Path("artifacts/labels")
MODEL = Path("artifacts/raw/models/judge")


def set_params(folder: Path, **label: Any) -> None:
    small = {"max_tokens": 40, "max_model_len": 1000, "mistral_per_rating": 5, "retries": 3, "timeout_s": 5.0}
    write_params(folder, prepare={"preset": "repaired", "max_quarantined_share": 0.0}, label=small | label)


@pytest.fixture
def project(tmp_path: Path, short_waits: None, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Prepared steps: 12 with a human -1, 12 "+" and 12 "-"."""
    monkeypatch.chdir(tmp_path)
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
    """Gives all ones to steps without "=", and an unreadable answer for a third of the seeds."""
    if seed % 3 == 0:
        return "I would rather not."
    step = prompt.partition("<current_step>\n")[2].partition("\n</current_step>")[0]
    return f"Reasoning: fine.\nScore A: {int('=' not in step)}\nScore B: 1\nScore C: {seed % 2}"


def outs() -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in [*OUT.iterdir(), Path("metrics/label.json")]}


def test_a_server_labels_the_steps_that_ratings_do_not_decide(project: Path) -> None:
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
    assert {name: entry["read"] for name, entry in metrics["sources"].items()} == {
        "prm800k": 30,
        "rlhflow_mistral": 24,
    }
    for entry in metrics["sources"].values():
        assert entry["read"] == entry["kept"] + sum(entry["dropped"].values())
    assert set(metrics["agreement"]) == {"prm800k:-1", "rlhflow_mistral:+1", "rlhflow_mistral:-1"}


def run_stage() -> subprocess.Popen[bytes]:
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.Popen([sys.executable, "-m", "stages.label"], env=environment, stderr=subprocess.PIPE)


def journal_lines() -> int:
    found = list(Path(".pathfinder/label").glob("*/journal.jsonl"))
    return found[0].read_bytes().count(b"\n") if found else 0


@pytest.mark.usefixtures("warm_starts")
@pytest.mark.parametrize("kills", [3, pytest.param(50, marks=[pytest.mark.slow, pytest.mark.benchmarks])])
def test_killed_runs_pay_for_no_answer_twice_and_write_the_same_bytes(project: Path, kills: int) -> None:
    """SIGKILL at random moments. Only calls in flight are repeated, at most ``concurrency`` per kill."""
    shutil.rmtree("artifacts/raw")
    write_raw(project, lines=4 + 8 * kills)
    from stages.prepare import main as prepare

    prepare()
    MODEL.mkdir(parents=True)
    (MODEL / "weights").write_text("1", encoding="utf-8")
    rng, concurrency = random.Random(kills), 4
    again: list[int] = []
    with judge_process(str(ROOT), seconds=0.02) as url:
        base = f"{url}/v1"
        set_params(project, engine="openai", base_urls=[base], concurrency=concurrency, mistral_per_rating=1000)
        for _ in range(kills):
            with run_stage() as process:
                if rng.random() < 0.85:  # while it asks; otherwise while it starts
                    goal = counts(url)[0] + rng.randrange(1, 30)
                    while counts(url)[0] < goal and process.poll() is None:
                        time.sleep(0.02)
                time.sleep(rng.random() * 0.2)
                process.send_signal(signal.SIGKILL)
            assert process.returncode == -signal.SIGKILL
            time.sleep(0.1)  # calls that the dead process sent still reach the server
            again.append(counts(url)[0] - journal_lines() - sum(again))
            assert 0 <= again[-1] <= concurrency
        assert not OUT.exists()
        with run_stage() as process:
            _, errors = process.communicate()
        assert process.returncode == 0, errors.decode()
        calls, distinct = counts(url)
        killed, paid = outs(), read_json(Path("metrics/label.json"))["calls"]
        assert distinct == paid == journal_lines()
        assert calls == paid + sum(again)
        shutil.rmtree(".pathfinder")
        shutil.rmtree(OUT)
        label()
        assert counts(url) == (calls + paid, paid)
    assert outs() == killed
    print(f"\n{kills} kills: {paid} answers, {sum(again)} calls in flight repeated, 0 duplicate, 0 lost; same bytes")


def test_a_spent_budget_keeps_all_answers_and_a_larger_one_resumes(project: Path) -> None:
    with judge_server(JudgeServer(grade)) as server:
        paid = {"engine": "openai", "base_urls": [server.url], "concurrency": 4}
        for budget, message in (
            ({"max_calls": 10}, "max_calls 10. Paid so far: 10 calls, 80 tokens. Left: 12 of the 22 calls"),
            ({"max_calls": 15, "price_per_million_tokens": 1000.0}, "15 calls, 120 tokens, cost 0.12. Left"),
        ):
            set_params(project, **paid, **budget)
            with pytest.raises(BudgetSpentError, match=message):
                label()
            assert server.calls == budget["max_calls"] == journal_lines()
            assert not OUT.exists()
        set_params(project, **paid, max_tokens_total=200)
        with pytest.raises(BudgetSpentError):
            label()
        assert 25 <= server.calls <= 25 + 3  # calls in flight finish
        set_params(project, **paid)
        label()
        stopped = outs()
        assert server.calls == read_json(Path("metrics/label.json"))["calls"]
        shutil.rmtree(".pathfinder")
        label()
    assert outs() == stopped


def test_a_dead_server_is_a_transient_error(project: Path) -> None:
    set_params(project, engine="openai", base_urls=["http://127.0.0.1:9/v1"], retries=0)
    with pytest.raises(TransientError):
        label()
    assert not OUT.exists()


def test_limits_without_room_for_a_prompt_are_refused(project: Path) -> None:
    set_params(project, max_tokens=1000)
    with pytest.raises(DataError, match="leaves no room"):
        label()


def test_the_shipped_judge_labels_in_process_and_is_repeatable(project: Path, world: Path) -> None:
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


def answer_part(text: str) -> None:
    from stages.label import main

    main(["--part", text])


def test_parts_give_the_bytes_of_one_process_and_no_prompt_is_asked_twice(project: Path) -> None:
    with judge_server(JudgeServer(grade)) as server:
        set_params(project, engine="openai", base_urls=[server.url], concurrency=4)
        label()
        whole, calls = outs(), server.calls
        for count in (1, 3):
            shutil.rmtree(".pathfinder")
            shutil.rmtree(OUT)
            server.calls = 0
            for number in range(count, 0, -1):
                answer_part(f"{number}/{count}")
                assert not OUT.exists()
            assert server.calls == calls
            label()
            assert server.calls == calls
            assert outs() == whole
            assert len(list(Path(".pathfinder/label").iterdir())) == 1


def test_the_stage_asks_what_a_part_with_a_spent_budget_has_left(project: Path) -> None:
    with judge_server(JudgeServer(grade)) as server:
        openai = {"engine": "openai", "base_urls": [server.url], "concurrency": 1}
        set_params(project, **openai)
        label()
        whole, calls = outs(), server.calls
        shutil.rmtree(".pathfinder")
        server.calls = 0
        answer_part("1/2")
        set_params(project, **openai, max_calls=3)
        with pytest.raises(BudgetSpentError):
            answer_part("2/2")
        (half,) = Path(".pathfinder/label").glob("*-2-of-2/journal.jsonl")
        assert half.read_bytes().count(b"\n") == 3
        half.write_bytes(half.read_bytes()[:-5])  # a kill while it was written
        set_params(project, **openai)
        label()
        assert server.calls == calls + 1
        assert outs() == whole


def test_the_answers_of_another_judge_are_not_used(project: Path) -> None:
    with judge_server(JudgeServer(lambda prompt, seed: "Score A: 0\nScore B: 0\nScore C: 0")) as server:
        set_params(project, engine="openai", base_urls=[server.url], temperature=0.9)
        answer_part("1/1")
    with judge_server(JudgeServer(grade)) as server:
        set_params(project, engine="openai", base_urls=[server.url])
        label()
        assert server.calls == read_json(Path("metrics/label.json"))["calls"] > 0
    assert [path.name.endswith("-1-of-1") for path in sorted(Path(".pathfinder/label").iterdir())].count(True) == 1


def test_a_judge_in_process_answers_no_part(project: Path) -> None:
    set_params(project, engine="transformers")
    with pytest.raises(DataError, match="its answers depend on their batch"):
        answer_part("1/2")
