"""LLM judges over HTTP: prompts, votes, resuming, budgets, faults and hostile answers."""

from __future__ import annotations

import inspect
import json
import re
import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest
from typer.testing import CliRunner

from ground.io import DataError, TransientError, read_json
from pathfinder.benchmarks.evaluation import BenchmarkName
from pathfinder.benchmarks.grade import grade
from pathfinder.benchmarks.grading import GradingPreset
from pathfinder.benchmarks.metrics import Evaluated, PRMBench, ProcessBench
from pathfinder.benchmarks.paper import SIZES
from pathfinder.benchmarks.readers import CLASSES, read_prmbench, read_processbench
from pathfinder.cli import app
from pathfinder.compare import bench
from pathfinder.core.params import CriticSettings, Preset, Report
from pathfinder.engines.metering import BudgetSpentError
from pathfinder.judge.critic_prompts import PUBLISHED
from pathfinder.judge.critics import CRITICS, Critic, critic_named, criticise
from pathfinder.planning import profiles
from tests.support.servers import JudgeServer, judge_server

REPORT = Report(bootstrap_samples=50, seed=1)
GPT = critic_named("GPT-4o")
TOKENS_PER_SECOND = 20
"""A large model at a busy server writes this number in each answer."""
FOLDERS = {"processbench": Path("pb"), "prmbench": Path("prm")}


@pytest.fixture(autouse=True)
def project(tmp_path: Path, short_waits: None, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    rows = [
        {
            "id": f"{name}-{at}",
            "generator": "g",
            "problem": f"{name} problem {at}",
            "steps": ["one", "two", "three"],
            "final_answer_correct": True,
            "label": at % 4 - 1,
        }
        for name in ("gsm8k", "math")
        for at in range(8)
    ]
    (tmp_path / "pb").mkdir()
    for name in ("gsm8k", "math"):
        chosen = [row for row in rows if str(row["id"]).startswith(name)]
        (tmp_path / "pb" / f"{name}.json").write_text(json.dumps(chosen))
    (tmp_path / "prm").mkdir()
    lines = [
        {
            "idx": f"{at}",
            "classification": name,
            "original_question": f"original {at}",
            "original_process": ["fine"],
            "modified_question": f"{name} {at}",
            "modified_process": ["Step 1. right", "2. wrong", "right"],
            "error_steps": [] if name == "multi_solutions" else [2],
        }
        for name in CLASSES
        for at in range(2)
    ]
    (tmp_path / "prm" / "a.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return tmp_path


def evaluate(
    server: JudgeServer, benchmark: BenchmarkName, critic: Critic = GPT, limit: int = 0, **settings: Any
) -> dict[str, Any]:
    """The metrics of a judge at ``server``."""
    values = {"base_urls": [server.url], "votes": 0, "preset": "repaired", "concurrency": 4, "timeout_s": 10.0}
    values |= {"retries": 4, "max_calls": 0, "max_tokens_total": 0, "max_hours": 0.0, "price_per_million_tokens": 0.0}
    found = CriticSettings.model_validate(values | settings)
    line = criticise(critic, benchmark, FOLDERS[benchmark], found, REPORT, limit, server.model)
    metrics: dict[str, Any] = read_json(Path(f"metrics/{benchmark}/{critic.name}.json"))
    assert line.startswith(f"{benchmark} {critic.name}: ")
    return metrics | {"headline": line}


def label_of(prompt: str) -> int:
    """The label of the problem that the prompt is about."""
    found = re.search(r"(?:gsm8k|math) problem (\d+)", prompt)
    assert found is not None
    return int(found[1]) % 4 - 1


def knows(prompt: str, seed: int) -> str:
    """A judge that is always correct."""
    return f"<paragraph_0> … \\boxed{{{label_of(prompt)}}}"


def scores(prompt: str, seed: int) -> str:
    """A judge that finds "wrong" steps and also calls them redundant."""
    steps = re.findall(r"^.*?Step \d+: (\w+) ", prompt, re.MULTILINE)
    answer = {
        "validity": [-1.0 if step == "wrong" else 0.9 for step in steps],
        "redundancy": [1.0 if step == "wrong" else -1.0 for step in steps],
    }
    return f"Here it is:\n```json\n{json.dumps(answer)}\n```"


def test_processbench_from_prompt_to_grade(project: Path) -> None:
    with judge_server(JudgeServer(knows)) as server:
        found = evaluate(server, "processbench")
        assert server.calls == 16
        again = evaluate(server, "processbench", preset="official")
        assert server.calls == 16, "another preset reads the same answers"
    assert found["mean_f1"] == again["mean_f1"] == again["official"]["mean_f1"] == 100.0
    assert found["asked"] == {"calls": 16, "tokens": 128, "answers": {"answered": 16}, "cut": 0, "items_unread": 0}
    assert found["published"]["mean_f1"] == 61.9
    assert found["read"] == found["kept"] == 16
    line = r"processbench critic-gpt-4o: mean F1 by soundness 100\.0 \[\S+, 100\.0\] \(paper 61\.9\); only over "
    assert re.fullmatch(line + r"gsm8k, math, .*", found["headline"])
    file = project / "artifacts/predictions/processbench/critic-gpt-4o.jsonl"
    for preset in get_args(GradingPreset):
        assert grade("processbench", file, project / "pb", preset)["mean_f1"] == 100.0


def test_prmbench_from_prompt_to_grade(project: Path) -> None:
    with judge_server(JudgeServer(scores)) as server:
        found = evaluate(server, "prmbench")
    assert found["classes"]["redundency"] == found["classes"]["circular"] == found["classes"]["deception"] == 100.0
    assert found["classes"]["multi_solutions"] == 80.0  # the step called wrong is correct: 2 * 4 / (2 * 4 + 2)
    assert found["details"]["validity_rate"] == 1.0
    file = project / "artifacts/predictions/prmbench/critic-gpt-4o.jsonl"
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    assert [row["idx"] for row in rows] == [item.idx for item in read_prmbench(project / "prm").items]
    assert next(row for row in rows if row["idx"] == "multi_solutions_1") == {
        "idx": "multi_solutions_1",
        "validity": True,
        "scores": {
            "step_level_validity_scores": [0.9, -1.0, 0.9],
            "step_level_validity_labels": [True, False, True],
            "step_level_redundancy_scores": [-1.0, 1.0, -1.0],
            "step_level_redundancy_labels": [False, True, False],
        },
    }
    graded = grade("prmbench", file, project / "prm", "official")
    assert graded["overall"] == found["overall"]
    assert graded["classes"] == found["classes"]


def test_each_kind_of_judge_is_asked_as_in_its_published_run(project: Path) -> None:
    seen: list[dict[str, Any]] = []
    with judge_server(JudgeServer(scores, seen=seen)) as server:
        for name in ("GPT-4o", "o1-mini", "Qwen2.5-Math-72B-Instruct"):
            evaluate(server, "prmbench", critic_named(name), limit=1)
    first = {body["messages"][0]["role"] for body in seen}
    assert first == {"system", "user"}
    assert all(body["messages"][0]["content"] == PUBLISHED["PRMBENCH_PROMPT"] for body in seen)
    assert {len(body["messages"]) for body in seen} == {6}
    settings = [
        tuple(sorted((k, v) for k, v in body.items() if k not in ("messages", "seed", "model", "stream")))
        for body in seen
    ]
    assert set(settings) == {
        (("temperature", 0.0), ("top_p", 1.0)),
        (),
        (("max_tokens", 2048), ("temperature", 0.0), ("top_p", 1.0)),
    }
    seen.clear()
    with judge_server(JudgeServer(knows, seen=seen)) as server:
        found = evaluate(server, "processbench", critic_named("Qwen-2.5-Math-72B"), limit=2)
        assert found["votes"] == 8
    assert len(seen) == 8 * 4
    assert len({body["seed"] for body in seen}) == 8 * 4, "each vote has its own seed"
    drawn = {(b["temperature"], b["top_p"], b["top_k"], b["max_tokens"], len(b["messages"])) for b in seen}
    assert drawn == {(0.7, 0.8, 20, 8192, 1)}


def test_votes_are_counted_in_their_order(project: Path) -> None:
    """Two answers say 2, two say 0, one says nothing: ties go to the earliest, whatever the order of arrival."""
    order: dict[str, list[int]] = {}

    def divided(prompt: str, seed: int) -> str:
        seeds = order.setdefault(prompt, [])
        seeds.append(seed)
        return ["\\boxed{2}", "\\boxed{0}", "nothing", "\\boxed{0}", "\\boxed{2}"][len(seeds) - 1]

    with judge_server(JudgeServer(divided)) as server:
        found = evaluate(server, "processbench", limit=3, concurrency=1, votes=5)
    assert found["published"] == {}, "the paper's figure is of one answer"
    assert found["asked"]["answers"] == {"answered": 30}
    rows = [
        json.loads(line)
        for line in (project / "artifacts/predictions/processbench/critic-gpt-4o.jsonl").read_text().splitlines()
    ]
    for row in rows:
        assert sorted(map(str, row["votes"])) == ["0", "0", "2", "2", "None"]
        assert row["prediction"] == next(v for v in row["votes"] if v is not None)


HOSTILE = (
    "\\boxed{-1}" * 3 + "\\boxed{2",
    "</paragraph_0><|im_end|>\\boxed{7}",
    "\x1b[31m\\boxed{\\text{none}}",
    "<think>\\boxed{1}",
    '{"prediction": 1}',
    "\ud800\\boxed{}",
    "",
    "\\boxed{" * 5000,
)


def test_hostile_answers_give_no_verdict(project: Path) -> None:
    def hostile(prompt: str, seed: int) -> str:
        found = re.search(r"math problem (\d+)", prompt)
        return HOSTILE[int(found[1])] if found else knows(prompt, seed)

    with judge_server(JudgeServer(hostile)) as server:
        found = evaluate(server, "processbench")
    assert found["subsets"]["gsm8k"]["f1"] == 100.0, "the others are untouched"
    file = project / "artifacts/predictions/processbench/critic-gpt-4o.jsonl"
    items = read_processbench(project / "pb").items
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    assert [(row["subset"], row["id"]) for row in rows] == [(item.subset, item.id) for item in items]
    assert [row["prediction"] for row in rows if row["subset"] == "math"] == [-1, *[None] * 7], "the first closes a box"


def test_refused_and_too_long_are_no_answers(project: Path) -> None:
    faults = {0: "too_long", 1: "400", 2: "filter"}
    with judge_server(JudgeServer(scores, fault=lambda n: faults.get(n, "none"))) as server:
        found = evaluate(server, "prmbench")
    assert found["asked"]["answers"] == {"answered": 17, "refused": 2, "too_long": 1}
    assert found["asked"]["items_unread"] == found["details"]["defects"]["invalid"] == 3


def test_an_interrupted_run_resumes(project: Path) -> None:
    """A spent budget, then a server that fails, then the rest: no call is repeated, and the bytes are the same."""
    file = project / "artifacts/predictions/processbench/critic-gpt-4o.jsonl"
    with judge_server(JudgeServer(knows)) as server:
        with pytest.raises(BudgetSpentError, match="max_calls 5"):
            evaluate(server, "processbench", max_calls=5)
        assert server.calls == 5
        assert not file.exists()
    with judge_server(JudgeServer(knows, fault=lambda n: "503" if n >= 4 else "none")) as server:
        with pytest.raises(TransientError):
            evaluate(server, "processbench", concurrency=1, retries=0)
        answered = sum(server.answered.values())
    with judge_server(JudgeServer(knows)) as server:
        found = evaluate(server, "processbench")
        assert server.calls == 16 - 5 - answered
    resumed = file.read_bytes(), (project / "metrics/processbench/critic-gpt-4o.json").read_bytes()
    assert found["asked"]["calls"] == 16
    for journal in (project / ".pathfinder").rglob("journal.jsonl"):
        journal.unlink()
    with judge_server(JudgeServer(knows)) as server:
        evaluate(server, "processbench")
        assert server.calls == 16
    assert (file.read_bytes(), (project / "metrics/processbench/critic-gpt-4o.json").read_bytes()) == resumed


def test_a_server_without_the_model_is_named(project: Path) -> None:
    with judge_server(JudgeServer(knows, model="gpt-3")) as server, pytest.raises(DataError, match="expected gpt-4o"):
        evaluate(replace(server, model="gpt-4o"), "processbench")


def test_the_table_of_judges() -> None:
    assert {title for critic in CRITICS for title in critic.titles} == {
        "GPT-4o",
        "o1-mini",
        "Gemini-2.0-flash-exp",
        "Gemini-2.0-thinking-exp-1219",
        "QwQ-Preview-32B",
        "Llama-3.3-70B-Instruct",
        "Qwen2.5-72B-Instruct",
        "Qwen2.5-Math-72B-Instruct",
        "Qwen-2.5-Math-72B",
    }
    for critic in CRITICS:
        assert critic.published("processbench") or critic.published("prmbench")
        assert (
            critic_named(critic.name) == critic_named(critic.served) == critic_named(critic.titles[0].upper()) == critic
        )
    assert len({critic.name for critic in CRITICS}) == len(CRITICS)
    other = critic_named("../org/My Model!")
    assert other.name == "critic-my-model"
    with pytest.raises(DataError, match=r"no such judge; did you mean critic-gpt-4o\? use one of critic-gpt-4o, "):
        critic_named("critic-nobody")
    assert critic_named("x", 100).sampling("prmbench", 1).max_tokens == 100


def test_the_command(project: Path) -> None:
    with judge_server(JudgeServer(knows)) as server:
        command = ["bench", "critic:gpt-4o", "--on", "processbench", "--url", server.url, "--served", server.model]
        command += ["--data", "benchmarks", "--votes", "3", "--json"]
        shutil.copytree("pb", "benchmarks/processbench")
        spent = CliRunner().invoke(app, [*command, "--max-calls", "3"])
        assert spent.exit_code == 69
        result = CliRunner().invoke(app, command)
        assert server.calls == 48, "both rules read the same answers"
    assert result.exit_code == 0, result.output
    rows = json.loads(result.stdout)
    assert [(row["rule"], row["n"], row["value"]) for row in rows] == [("repaired", 16, 100.0), ("official", 16, 100.0)]
    assert {row["note"] for row in rows} == {"16 items, the paper's figure has 3,400"}


@pytest.mark.parametrize(
    ("option", "note"),
    [
        ((), ""),
        (("--votes", "3"), "the paper's judge has other votes or token limits"),
        (("--answer-tokens", "9"), "the paper's judge has other votes or token limits"),
    ],
)
def test_the_paper_s_figure_is_of_its_own_votes_and_limits(
    project: Path, monkeypatch: pytest.MonkeyPatch, option: Sequence[str], note: str
) -> None:
    shutil.copytree("pb", "benchmarks/processbench")
    sizes = Counter(item.subset for item in read_processbench(Path("pb")).items)
    monkeypatch.setitem(SIZES, "processbench", dict(sizes))
    with judge_server(JudgeServer(knows)) as server:
        command = ["bench", "critic:gpt-4o", "--on", "processbench", "--url", server.url, "--served", server.model]
        result = CliRunner().invoke(app, [*command, "--data", "benchmarks", "--json", *option])
    rows = {row["rule"]: row for row in json.loads(result.stdout)}
    assert (rows["official"]["note"], rows["official"]["paper"]) == (note, None if note else 61.9)


def test_a_judge_without_readable_answers(project: Path) -> None:
    """The repaired figures are 0; the published ones are undefined or, from values of -1, even -100."""
    with judge_server(JudgeServer(lambda prompt, seed: "I cannot say.")) as server:
        found = evaluate(server, "processbench", preset="official")
        prm = evaluate(server, "prmbench", preset="official")
    assert found["mean_f1"] == 0.0
    assert found["official"]["mean_f1"] is None
    assert found["asked"]["items_unread"] == 16
    assert prm["overall"] == 0.0
    assert prm["official"]["overall"] == -100.0
    assert set(prm["official"]) == {"classes", "categories", "overall"}


@pytest.mark.parametrize("preset", get_args(Preset))
@pytest.mark.parametrize(("form", "judge"), [(ProcessBench, knows), (PRMBench, scores)])
def test_each_figure_follows_its_own_rules_whatever_the_preset(
    project: Path, preset: Preset, form: type[Evaluated], judge: Callable[[str, int], str]
) -> None:
    """The published scripts read unfinished thinking, so the rows "as published" and "repaired" differ by it."""
    benchmark: BenchmarkName = "processbench" if form is ProcessBench else "prmbench"
    with judge_server(JudgeServer(lambda prompt, seed: "<think>" + judge(prompt, seed))) as server:
        evaluate(server, benchmark, preset=preset)
    metrics = form.model_validate(read_json(Path(f"metrics/{benchmark}/critic-gpt-4o.json")))
    assert metrics.official is not None
    published = metrics.official.headline or 0.0
    assert published > 90.0
    assert metrics.by_default_rule.headline == 0.0
    assert metrics.headline == (0.0 if preset == "repaired" else pytest.approx(published))


def test_the_longest_answer_ends_before_the_time_limit_of_a_call(root: Path) -> None:
    """A call that times out is repeated, and takes as long again."""
    least = max(critic.answer_tokens for critic in CRITICS) / TOKENS_PER_SECOND
    assert profiles.load(root, "paper").critic.timeout_s > least
    assert inspect.signature(bench).parameters["timeout"].default > least
