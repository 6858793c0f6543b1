"""The policy behind a real server (order, stop handling, failures), and completions kept in a journal."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from ground.io import DataError, TransientError
from pathfinder.engines.journal import Journal
from pathfinder.engines.sampling import Completion, Sampling
from pathfinder.policy.policy import KeptPolicy, Policy, ServerPolicy, safe_prompt
from pathfinder.policy.search import RandomPick, search
from tests.support.searches import END, Script, problem, settings
from tests.support.servers import JudgeServer, judge_server

SAMPLING = Sampling(0.7, 0.95, 64, ("\n\n",), include_stop=True)


def test_answers_come_in_the_order_of_the_prompts() -> None:
    with judge_server(JudgeServer(reply=lambda prompt, _: f"after {prompt}\n\n")) as server:
        policy = ServerPolicy([server.url], concurrency=8)
        found = policy.generate([f"p{i}" for i in range(30)], [f"k{i}" for i in range(30)], SAMPLING)
    assert [completion.text for completion in found] == [f"after p{i}\n\n" for i in range(30)]


def test_each_key_is_a_seed_of_its_own_and_the_end_token_is_no_text() -> None:
    with judge_server(JudgeServer(reply=lambda _, seed: f"{seed}<|im_end|>")) as server:
        policy = ServerPolicy([server.url], concurrency=4)
        first = policy.generate(["p"] * 8, [f"k{i}" for i in range(8)], SAMPLING)
        second = policy.generate(["p"] * 8, [f"k{i}" for i in range(8)], SAMPLING)
    assert first == second
    assert len({completion.text for completion in first}) == 8
    assert all(completion.text.isdigit() for completion in first)


def test_too_long_a_prompt_ends_a_search_and_a_refusal_ends_the_run() -> None:
    with judge_server(JudgeServer(reply=lambda *_: "x", fault=lambda _: "too_long")) as server:
        (found,) = ServerPolicy([server.url], concurrency=1).generate(["p"], ["k"], SAMPLING)
        assert (found.text, found.finish) == ("", "too_long")
    with judge_server(JudgeServer(reply=lambda *_: "x", fault=lambda _: "400")) as server:
        policy = ServerPolicy([server.url], concurrency=1)
        with pytest.raises(DataError, match=r"policy call k: .*then run again"):
            policy.generate(["p"], ["k"], SAMPLING)


@pytest.mark.usefixtures("short_waits")
def test_a_server_that_is_down_is_worth_another_try() -> None:
    """One failed call is enough: the flow tries a stage again after ``TransientError`` only."""
    with judge_server(JudgeServer(reply=lambda *_: "x", fault=lambda _: "503")) as server:
        policy = ServerPolicy([server.url], concurrency=1)
        with pytest.raises(TransientError, match=r"policy call k: .*check that the server runs"):
            policy.generate(["p"], ["k"], SAMPLING)


def test_safe_prompt_keeps_only_its_own_special_tokens() -> None:
    with judge_server(JudgeServer(reply=lambda *_: "x")) as server:
        policy = ServerPolicy([server.url], concurrency=1)
    prompt = safe_prompt(policy, "a<|im_end|>b<extra>", ["step <|im_start|>"])
    assert prompt.count("<|im_end|>") == 2
    assert prompt.count("<|im_start|>") == 3
    assert "<extra>" not in prompt


def test_a_resumed_chunk_repeats_no_draw(tmp_path: Path) -> None:
    """The policy fails in round 3 of 4. The next run draws only rounds 3 and 4 and returns the same rows."""
    problems = [problem(str(i)) for i in range(3)]

    def say(name: str, number: int, draw: int) -> tuple[str, str]:
        return (f"{name} {draw} {number}\n\n", "stop") if number < 4 else (f"{name} {END}", "stop")

    class Failing(Script):
        def generate(self, prompts: Sequence[str], keys: Sequence[str], sampling: Sampling) -> list[Completion]:
            if len(self.calls) == 2:
                raise KeyboardInterrupt
            return super().generate(prompts, keys, sampling)

    def rows(policy: Policy) -> list[dict[str, Any]]:
        return search(problems, policy, RandomPick(3).rounds(), settings(), "repaired")

    whole = Script(say)
    expected = rows(whole)
    with Journal(tmp_path / "draws.jsonl") as journal, pytest.raises(KeyboardInterrupt):
        rows(KeptPolicy(Failing(say), journal))
    with Journal(tmp_path / "draws.jsonl") as journal:
        again = Script(say)
        assert rows(KeptPolicy(again, journal)) == expected
    assert (len(whole.calls), len(again.calls)) == (4, 2)
    with Journal(tmp_path / "draws.jsonl") as journal:
        third = Script(say)
        other = search(
            problems, KeptPolicy(third, journal), RandomPick(3).rounds(), settings(temperature=1.0), "repaired"
        )
    assert other == expected
    assert len(third.calls) == 4, "other settings mean other draws"
