"""LLM judges over HTTP: prompts, votes, resuming, budgets, faults, and hostile answers."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, get_args

import pytest
from typer.testing import CliRunner

from pathfinder.benchmarks.grade import grade
from pathfinder.benchmarks.grading import Preset
from pathfinder.benchmarks.readers import CLASSES, read_prmbench, read_processbench
from pathfinder.cli import app
from pathfinder.core.io import DataError, TransientError
from pathfinder.core.params import Report
from pathfinder.engines.metering import Budget, BudgetSpentError
from pathfinder.judge import critics
from pathfinder.judge.critic_prompts import PRMBENCH_PROMPT
from pathfinder.judge.critics import CRITICS, Endpoint, critic, criticise, headline
from tests.support.servers import JudgeServer, judge_server

REPORT = Report(bootstrap_samples=50, confidence=0.95, seed=1)
GPT = critic("GPT-4o")


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("pathfinder.engines.openai_client._FIRST_WAIT_S", 0.01)
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
        mine = [row for row in rows if str(row["id"]).startswith(name)]
        (tmp_path / "pb" / f"{name}.json").write_text(json.dumps(mine))
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


def endpoint(server: JudgeServer) -> Endpoint:
    return Endpoint((server.url,), 4, 10.0, 4, server.model)


def label_of(prompt: str) -> int:
    """The label of the problem that the prompt is about."""
    found = re.search(r"(?:gsm8k|math) problem (\d+)", prompt)
    assert found is not None
    return int(found[1]) % 4 - 1


def knows(prompt: str, seed: int) -> str:
    """A judge that is always right."""
    return f"<paragraph_0> … \\boxed{{{label_of(prompt)}}}"


def scores(prompt: str, seed: int) -> str:
    """A judge that finds "wrong" steps, and calls them superfluous."""
    steps = re.findall(r"^.*?Step \d+: (\w+) ", prompt, re.MULTILINE)
    said = {
        "validity": [-1.0 if step == "wrong" else 0.9 for step in steps],
        "redundancy": [1.0 if step == "wrong" else -1.0 for step in steps],
    }
    return f"Here it is:\n```json\n{json.dumps(said)}\n```"


def test_processbench_from_prompt_to_grade(project: Path) -> None:
    with judge_server(JudgeServer(knows)) as server:
        found = criticise(GPT, "processbench", project / "pb", endpoint(server), REPORT)
        assert server.calls == 16
        again = criticise(GPT, "processbench", project / "pb", endpoint(server), REPORT, preset="official")
        assert server.calls == 16, "another preset reads the same answers"
    assert found["mean_f1"] == again["mean_f1"] == again["official"]["mean_f1"] == 100.0
    assert found["asked"] == {"calls": 16, "tokens": 128, "answers": {"answered": 16}, "cut": 0, "items_unread": 0}
    assert found["published"]["mean_f1"] == 61.9
    assert found["read"] == found["kept"] == 16
    said = headline(GPT, "processbench", found)
    assert re.fullmatch(r"processbench critic-gpt-4o: 100\.0 \[\S+, 100\.0\] \(paper: 61\.9\)", said)
    file = project / "artifacts/predictions/processbench/critic-gpt-4o.jsonl"
    for preset in get_args(Preset):
        assert grade("processbench", file, project / "pb", preset)["mean_f1"] == 100.0


def test_prmbench_from_prompt_to_grade(project: Path) -> None:
    with judge_server(JudgeServer(scores)) as server:
        found = criticise(GPT, "prmbench", project / "prm", endpoint(server), REPORT)
    assert found["classes"]["redundency"] == found["classes"]["circular"] == found["classes"]["deception"] == 100.0
    assert found["classes"]["multi_solutions"] == 80.0  # the step that is called wrong is not: 2 * 4 / (2 * 4 + 2)
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


def test_what_is_sent(project: Path) -> None:
    """Turns and settings of each kind of judge, as its published run has them."""
    seen: list[dict[str, Any]] = []
    with judge_server(JudgeServer(scores, seen=seen)) as server:
        for name in ("GPT-4o", "o1-mini", "Qwen2.5-Math-72B-Instruct"):
            criticise(critic(name), "prmbench", project / "prm", endpoint(server), REPORT, limit=1)
    first = {body["messages"][0]["role"] for body in seen}
    assert first == {"system", "user"}
    assert all(body["messages"][0]["content"] == PRMBENCH_PROMPT for body in seen)
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
        one = critic("Qwen-2.5-Math-72B")
        found = criticise(one, "processbench", project / "pb", endpoint(server), REPORT, limit=2)
        assert found["votes"] == 8
    assert len(seen) == 8 * 4
    assert len({body["seed"] for body in seen}) == 8 * 4, "each vote is drawn by a seed of its own"
    drawn = {(b["temperature"], b["top_p"], b["top_k"], b["max_tokens"], len(b["messages"])) for b in seen}
    assert drawn == {(0.7, 0.8, 20, 8192, 1)}


def test_votes_are_counted_in_their_order(project: Path) -> None:
    """Two say 2, two say 0, one says nothing: the earliest of equals, whatever the order of arrival."""
    order: dict[str, list[int]] = {}

    def divided(prompt: str, seed: int) -> str:
        mine = order.setdefault(prompt, [])
        mine.append(seed)
        return ["\\boxed{2}", "\\boxed{0}", "nothing", "\\boxed{0}", "\\boxed{2}"][len(mine) - 1]

    with judge_server(JudgeServer(divided)) as server:
        serial = Endpoint((server.url,), 1, 10.0, 2, server.model)
        found = criticise(GPT, "processbench", project / "pb", serial, REPORT, votes=5, limit=3)
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


def test_hostile_answers_are_no_verdicts(project: Path) -> None:
    def hostile(prompt: str, seed: int) -> str:
        return (
            HOSTILE[seed % len(HOSTILE)] if "math" in prompt.partition("[Solution]")[0][-40:] else knows(prompt, seed)
        )

    with judge_server(JudgeServer(hostile)) as server:
        found = criticise(GPT, "processbench", project / "pb", endpoint(server), REPORT)
    assert found["subsets"]["gsm8k"]["f1"] == 100.0, "the others are untouched"
    file = project / "artifacts/predictions/processbench/critic-gpt-4o.jsonl"
    items = read_processbench(project / "pb").items
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    assert [(row["subset"], row["id"]) for row in rows] == [(item.subset, item.id) for item in items]
    assert all(row["prediction"] in (None, -1) for row in rows if row["subset"] == "math")


def test_refused_and_too_long_are_no_answers(project: Path) -> None:
    faults = {0: "too_long", 1: "400", 2: "filter"}
    with judge_server(JudgeServer(scores, fault=lambda n: faults.get(n, "none"))) as server:
        found = criticise(GPT, "prmbench", project / "prm", endpoint(server), REPORT)
    assert found["asked"]["answers"] == {"answered": 17, "refused": 2, "too_long": 1}
    assert found["asked"]["items_unread"] == found["details"]["defects"]["invalid"] == 3


def test_a_run_that_ended_early_goes_on(project: Path) -> None:
    """A budget, then a server that is away, then the rest: nothing is asked twice, and the bytes are the same."""
    folder, file = project / "pb", project / "artifacts/predictions/processbench/critic-gpt-4o.jsonl"
    with judge_server(JudgeServer(knows)) as server:
        with pytest.raises(BudgetSpentError, match="max_calls 5"):
            criticise(GPT, "processbench", folder, endpoint(server), REPORT, budget=Budget(max_calls=5))
        assert server.calls == 5
        assert not file.exists()
    with judge_server(JudgeServer(knows, fault=lambda n: "503" if n >= 4 else "none")) as server:
        one = Endpoint((server.url,), 1, 10.0, 0, server.model)
        with pytest.raises(TransientError):
            criticise(GPT, "processbench", folder, one, REPORT)
        answered = sum(server.answered.values())
    with judge_server(JudgeServer(knows)) as server:
        found = criticise(GPT, "processbench", folder, endpoint(server), REPORT)
        assert server.calls == 16 - 5 - answered
    whole = file.read_bytes(), (project / "metrics/processbench/critic-gpt-4o.json").read_bytes()
    assert found["asked"]["calls"] == 16
    for journal in (project / ".pathfinder").rglob("journal.jsonl"):
        journal.unlink()
    with judge_server(JudgeServer(knows)) as server:
        criticise(GPT, "processbench", folder, endpoint(server), REPORT)
        assert server.calls == 16
    assert (file.read_bytes(), (project / "metrics/processbench/critic-gpt-4o.json").read_bytes()) == whole


def test_a_server_without_the_model_is_named(project: Path) -> None:
    with judge_server(JudgeServer(knows)) as server, pytest.raises(DataError, match="expected gpt-4o"):
        criticise(GPT, "processbench", project / "pb", Endpoint((server.url,)), REPORT)


def test_the_table_of_judges() -> None:
    assert {title for one in CRITICS for title in one.titles} == {
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
    for one in CRITICS:
        assert one.published("processbench") or one.published("prmbench")
        assert critic(one.name) == critic(one.served) == critic(one.titles[0].upper()) == one
    assert len({one.name for one in CRITICS}) == len(CRITICS)
    other = critic("../org/My Model!")
    assert other.name == "critic-my-model"
    with pytest.raises(DataError, match="no such judge; take one of critic-gpt-4o, "):
        critic("critic-nobody")
    assert critics.critic("x", 100).sampled("prmbench", 1).max_tokens == 100


def test_the_command(project: Path) -> None:
    root = Path(__file__).parents[2]
    (project / "params.yaml").write_text((root / "params.yaml").read_text())
    with judge_server(JudgeServer(knows)) as server:
        command = ["critic", "processbench", "--model", "gpt-4o", "--url", server.url, "--served", server.model]
        command += ["--data", "pb", "--votes", "3"]
        spent = CliRunner().invoke(app, [*command, "--max-calls", "3"])
        assert spent.exit_code == 69
        result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.output
    assert "processbench critic-gpt-4o: 100.0" in result.output


def test_a_judge_that_says_nothing(project: Path) -> None:
    """No answer can be read: 0 as repaired; as published undefined, and -100 where the -1 enter."""
    with judge_server(JudgeServer(lambda prompt, seed: "I cannot say.")) as server:
        found = criticise(GPT, "processbench", project / "pb", endpoint(server), REPORT, preset="official")
        prm = criticise(GPT, "prmbench", project / "prm", endpoint(server), REPORT, preset="official")
    assert found["mean_f1"] == 0.0
    assert found["official"]["mean_f1"] is None
    assert found["asked"]["items_unread"] == 16
    assert prm["overall"] == 0.0
    assert prm["official"]["overall"] == -100.0
    assert set(prm["official"]) == {"classes", "categories", "overall"}
