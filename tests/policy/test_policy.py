"""The policy behind a real server: order, stop handling, failures."""

from __future__ import annotations

import pytest

from pathfinder.core.io import DataError
from pathfinder.engines.generate import Sampling
from pathfinder.policy.policy import ServerPolicy, safe_prompt
from tests.support.servers import JudgeServer, judge_server

SAMPLING = Sampling(0.7, 0.95, 64, ("\n\n",), include_stop=True)


def test_answers_come_in_the_order_of_the_prompts() -> None:
    with judge_server(JudgeServer(reply=lambda prompt, _: f"after {prompt}\n\n")) as server:
        policy = ServerPolicy(server.url, concurrency=8)
        found = policy.sample([f"p{i}" for i in range(30)], [f"k{i}" for i in range(30)], SAMPLING)
    assert [completion.text for completion in found] == [f"after p{i}\n\n" for i in range(30)]


def test_each_key_is_a_seed_of_its_own_and_the_end_token_is_no_text() -> None:
    with judge_server(JudgeServer(reply=lambda _, seed: f"{seed}<|im_end|>")) as server:
        policy = ServerPolicy(server.url, concurrency=4)
        first = policy.sample(["p"] * 8, [f"k{i}" for i in range(8)], SAMPLING)
        second = policy.sample(["p"] * 8, [f"k{i}" for i in range(8)], SAMPLING)
    assert first == second
    assert len({completion.text for completion in first}) == 8
    assert all(completion.text.isdigit() for completion in first)


def test_too_long_a_prompt_ends_a_search_and_a_refusal_ends_the_run() -> None:
    with judge_server(JudgeServer(reply=lambda *_: "x", fault=lambda _: "too_long")) as server:
        (found,) = ServerPolicy(server.url, concurrency=1).sample(["p"], ["k"], SAMPLING)
        assert (found.text, found.finish) == ("", "length")
    with judge_server(JudgeServer(reply=lambda *_: "x", fault=lambda _: "400")) as server:
        policy = ServerPolicy(server.url, concurrency=1)
        with pytest.raises(DataError, match=r"policy call k: .*then run again"):
            policy.sample(["p"], ["k"], SAMPLING)


def test_safe_prompt_keeps_only_its_own_special_tokens() -> None:
    with judge_server(JudgeServer(reply=lambda *_: "x")) as server:
        policy = ServerPolicy(server.url, concurrency=1)
    prompt = safe_prompt(policy, "a<|im_end|>b<extra>", ["step <|im_start|>"])
    assert prompt.count("<|im_end|>") == 2
    assert prompt.count("<|im_start|>") == 3
    assert "<extra>" not in prompt
