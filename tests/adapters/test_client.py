"""Rewards for other libraries: any batch ends with finite numbers, in this process and from a server."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from ground.io import DataError, TransientError
from pathfinder.adapters import search_and_learn, trl, verl
from pathfinder.adapters.client import StepRewards, rewards_of
from pathfinder.adapters.its_hub import ProcessRewardModel
from pathfinder.core.steps import Solution
from pathfinder.models.folders import open_model
from pathfinder.prm.scoring import Scorer
from tests.prm.test_scoring import save_prm
from tests.support.scoring_server import PROBLEM, STEPS, Server, serving

TEXT = "\n\n".join(STEPS)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    save_prm(folder)
    return folder


@pytest.fixture(scope="module")
def address(folder: Path) -> Iterator[str]:
    with serving(Server(folder)) as address:
        yield address


@pytest.fixture(scope="module")
def expected(folder: Path) -> list[float]:
    (scores,) = Scorer(open_model(folder)).score([Solution("0", PROBLEM, tuple(STEPS))])
    return [score.reward for score in scores]


@pytest.fixture(params=["folder", "address"])
def model(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue(request.param))


def test_a_large_batch_ends_with_finite_rewards(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    """As GRPO asks: 128 completions of 10 KB, one of 1,200 paragraphs, and a short one."""
    long = "\n\n".join(["So 1 + 1 = 2." * 8] * 96)
    assert len(long) > 10_000
    completions = [long] * 128 + ["\n\n".join(["a"] * 1_200), TEXT]
    found = trl.step_reward([PROBLEM] * len(completions), completions, prm=model)
    assert len(found) == 130
    assert all(map(math.isfinite, found))
    assert found[-1] > 0
    assert found[0] == 0
    assert "no rewards for some of 130 solutions: " in capsys.readouterr().err


def test_every_adapter_gives_the_scorer_s_rewards(model: str, expected: list[float]) -> None:
    lowest = pytest.approx(min(expected), abs=1e-6)
    user, assistant = {"role": "user", "content": PROBLEM}, {"role": "assistant", "content": TEXT}
    parts = {"role": "assistant", "content": [{"type": "text", "text": TEXT}]}
    assert trl.step_reward([PROBLEM], [TEXT], prm=model, trainer_state=None) == [lowest]
    assert trl.step_reward([[user]], [[assistant]], prm=StepRewards(model)) == [lowest]
    assert trl.step_reward([[{"role": "system", "content": "S"}, user]], [[parts]], prm=model) == [lowest]
    assert verl.compute_score("math", TEXT, "2", {"question": PROBLEM}, model=model, other=1) == lowest
    last = pytest.approx(expected[-1], abs=1e-6)
    assert verl.compute_score("m", TEXT, "2", {"question": PROBLEM}, model=model, reduce="last") == last
    prm = search_and_learn.PathFinder(SimpleNamespace(prm_path=model))
    assert prm.score([PROBLEM], [[TEXT, ""]]) == [[pytest.approx(expected, abs=1e-6), [0.0]]]
    hub = ProcessRewardModel(model)
    assert hub.score(PROBLEM, [TEXT, TEXT]) == [lowest, lowest]
    assert hub.score([user], TEXT) == lowest


def test_what_cannot_be_scored_has_the_floor(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    rewards = StepRewards(model, floor=-1.0)
    assert rewards.values([(PROBLEM, ""), (PROBLEM, None), (PROBLEM, "a " * 9_000), (PROBLEM, [])]) == [-1.0] * 4
    assert "no rewards for some of 4 solutions: 3 empty, 1 longer than" in capsys.readouterr().err
    assert rewards.values([]) == []
    half, other = rewards.steps([("What is \ud83c?", ["2 \udf4e."]), ("What is \ufffd?", ["2 \ufffd."])])
    assert half == pytest.approx(other, abs=1e-6)
    assert len(half) == 1


def test_the_turns_of_the_assistant_are_one_solution(folder: Path) -> None:
    turns = [
        {"role": "assistant", "content": STEPS[0], "tool_calls": [{}]},
        {"role": "tool", "content": "2"},
        {"role": "assistant", "content": None},
        {"role": "assistant", "content": STEPS[1]},
    ]
    assert StepRewards(str(folder)).steps([(PROBLEM, turns)]) == StepRewards(str(folder)).steps([(PROBLEM, TEXT)])
    with pytest.raises(DataError, match=r"solution 0: content has a part of type 'image_url'"):
        StepRewards(str(folder)).steps([([{"role": "user", "content": [{"type": "image_url"}]}], TEXT)])


def test_wrong_options_are_refused() -> None:
    with pytest.raises(DataError, match="unknown reduce 'max'; expected one of min, product, last, mean"):
        StepRewards("http://127.0.0.1:1", reduce="max")
    with pytest.raises(DataError, match="unknown split 'words'"):
        StepRewards("http://127.0.0.1:1", split="words")  # type: ignore[arg-type]
    with pytest.raises(DataError, match="extra_info has no question"):
        verl.compute_score("math", TEXT, "2", {"index": 3}, model="http://127.0.0.1:1")


Answer = Callable[[int, list[Any]], httpx.Response]


def replaced(monkeypatch: pytest.MonkeyPatch, answer: Answer) -> list[int]:
    """Answer requests by ``answer``, which gets their number and solutions; returns the sizes of the requests."""
    sizes: list[int] = []
    waits: list[float] = []

    def handle(request: httpx.Request) -> httpx.Response:
        given = json.loads(request.content)["solutions"]
        sizes.append(len(given))
        return answer(len(sizes), given)

    monkeypatch.setattr("httpx.Client", partial(httpx.Client, transport=httpx.MockTransport(handle)))
    monkeypatch.setattr("pathfinder.sources.http_fetch.time.sleep", waits.append)
    return sizes


def scored(given: list[Any]) -> httpx.Response:
    rows = [{"scored": True, "steps": [{"reward": float(step)} for step in one["steps"]]} for one in given]
    return httpx.Response(200, json={"solutions": rows})


PAIRS = [("P", [f"0.{number}"]) for number in range(1, 8)]
VALUES = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7]


@pytest.mark.parametrize("status", [429, 500, 502, 503])
def test_a_server_that_is_full_or_fails_is_asked_again(monkeypatch: pytest.MonkeyPatch, status: int) -> None:
    sizes = replaced(monkeypatch, lambda number, given: httpx.Response(status) if number <= 2 else scored(given))
    assert StepRewards("http://x").values(PAIRS[:1]) == VALUES[:1]
    assert sizes == [1, 1, 1]
    sizes = replaced(monkeypatch, lambda number, given: httpx.Response(status))
    with pytest.raises(TransientError, match=rf"http://x/v1/score: {status} .*\(9 attempts\); check that"):
        StepRewards("http://x").values(PAIRS[:1])


@pytest.mark.parametrize("status", [413, 422, 503])
def test_a_request_that_is_too_large_is_halved(
    monkeypatch: pytest.MonkeyPatch, status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    sizes = replaced(monkeypatch, lambda _, given: httpx.Response(status) if len(given) > 2 else scored(given))
    assert StepRewards("http://x").values(PAIRS) == VALUES
    assert sizes == [7, 3, 1, 2, 4, 2, 2]
    assert capsys.readouterr().err == ""
    if status != 503:
        bad = {"0.3"}
        replaced(
            monkeypatch,
            lambda _, given: (
                httpx.Response(status, text="no") if any(bad & {*one["steps"]} for one in given) else scored(given)
            ),
        )
        assert StepRewards("http://x").values(PAIRS) == [0.1, 0.2, 0.0, *VALUES[3:]]
        assert "no rewards for some of 7 solutions: 1 refused (no)" in capsys.readouterr().err


def test_a_batch_is_split_before_it_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = replaced(monkeypatch, lambda _, given: scored(given))
    assert len(StepRewards("http://x").values([("P" * 10_000, ["0.5"])] * 9)) == 9
    assert sizes == [4, 4, 1]


def test_the_server_s_token_is_sent_in_utf_8(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATHFINDER_SERVE_TOKEN", " voilà\n")
    sent = StepRewards("http://x")._client.headers.raw
    assert (b"Authorization", "Bearer voilà".encode()) in sent


def test_a_refusal_names_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    replaced(monkeypatch, lambda number, given: httpx.Response(401, text="send the token"))
    with pytest.raises(DataError, match=r"401 send the token; check the address and PATHFINDER_SERVE_TOKEN"):
        StepRewards("http://x").values(PAIRS)


def test_a_client_is_made_once_by_all_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    made = list[str]()

    def slow(model: str) -> str:
        made.append(model)
        time.sleep(0.1)
        return model

    monkeypatch.setattr("pathfinder.adapters.client._made", cache(slow))
    with ThreadPoolExecutor(8) as pool:
        assert len({*map(id, pool.map(rewards_of, ["http://x"] * 8))}) == 1
    assert made == ["http://x"]
