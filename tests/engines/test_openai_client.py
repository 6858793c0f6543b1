from __future__ import annotations

import time

import pytest

from ground.io import DataError, TransientError
from pathfinder.engines.openai_client import ServerClient, connect
from pathfinder.engines.sampling import Failure, Reply, ServerSampling
from tests.support.servers import JSONHandler, JudgeServer, judge_server, serving

SAMPLING = ServerSampling(1.0, 0.95, 50)
REQUESTS = [(f"k{n}:0", f"prompt {n}") for n in range(40)]


def echo(prompt: str, seed: int) -> str:
    return f"{prompt} / {seed}"


pytestmark = pytest.mark.usefixtures("short_waits")


def ask(server: JudgeServer, retries: int = 6, timeout_s: float = 10.0) -> dict[str, Reply | Failure]:
    client = ServerClient([server.url], 8, timeout_s, retries, server.model)
    found: dict[str, Reply | Failure] = {}
    client.chat(REQUESTS, SAMPLING, found.__setitem__)
    return found


def test_every_request_gets_its_own_answer_and_seed() -> None:
    with judge_server(JudgeServer(echo)) as server:
        first, second = ask(server), ask(server)
    assert first == second
    texts = {key: reply.text for key, reply in first.items() if isinstance(reply, Reply)}
    assert {key: text.partition(" / ")[0] for key, text in texts.items()} == dict(REQUESTS)
    assert len({text.partition(" / ")[2] for text in texts.values()}) == len(REQUESTS)


@pytest.mark.parametrize("fault", ["429", "500", "503", "reset", "cut", "empty"])
def test_transient_faults_are_retried(fault: str) -> None:
    # six faults: even if all of them hit one request, its seventh try succeeds
    with judge_server(JudgeServer(echo, fault=lambda n: fault if n % 3 == 0 and n < 18 else "none")) as server:
        found = ask(server)
        assert server.calls > len(REQUESTS)
    assert [f"{reply.text}".partition(" / ")[0] for key in sorted(found) if isinstance(reply := found[key], Reply)] == [
        prompt for _, prompt in sorted(REQUESTS)
    ]


def test_a_timeout_is_retried() -> None:
    with judge_server(JudgeServer(echo, fault=lambda n: "timeout" if n == 0 else "none")) as server:
        found = ask(server, timeout_s=0.5)
        assert server.calls > len(REQUESTS)
    assert found.keys() == dict(REQUESTS).keys()
    assert all(isinstance(reply, Reply) for reply in found.values())


@pytest.mark.parametrize(
    "message",
    [
        "This model's maximum context length is 10 tokens.",  # vLLM
        "request (4390 tokens) exceeds the available context size (4096 tokens), try increasing it",  # llama.cpp
    ],
)
def test_too_long_and_refused_are_outcomes(message: str) -> None:
    faults = {0: "too_long", 1: "400", 2: "filter"}
    with judge_server(JudgeServer(echo, fault=lambda n: faults.get(n, "none"), too_long=message)) as server:
        found = ask(server)
        assert server.calls == len(REQUESTS)
    outcomes = sorted(reply.outcome for reply in found.values() if isinstance(reply, Failure))
    assert outcomes == ["refused", "refused", "too_long"]


def test_a_call_that_keeps_failing_is_an_engine_error_and_the_others_continue() -> None:
    def crash_on_one(prompt: str, seed: int) -> str:
        if prompt == "prompt 3":
            raise ConnectionAbortedError("the worker behind this prompt dies")
        return echo(prompt, seed)

    with judge_server(JudgeServer(crash_on_one)) as server:
        found = ask(server, retries=2)
    failures = {key: reply for key, reply in found.items() if isinstance(reply, Failure)}
    assert list(failures) == ["k3:0"]
    assert failures["k3:0"].outcome == "engine_error"
    assert len(found) == len(REQUESTS)


def test_a_dead_server_stops_the_work_as_transient(capsys: pytest.CaptureFixture[str]) -> None:
    with judge_server(JudgeServer(echo)) as server:
        pass
    with pytest.raises(TransientError, match="check that the server runs"):
        ask(server, retries=1)
    (said,) = capsys.readouterr().err.splitlines()
    assert said.endswith("APIConnectionError: Connection error.; trying again, up to 1 time"), "the first failure only"


@pytest.mark.parametrize("status", [400, 401, 503])
def test_a_server_that_repeats_the_key_puts_it_into_no_message(status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "canary")

    class Repeating(JSONHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send(status, {"error": {"message": f"no\n{self.headers['Authorization']}" + "x" * 100_000}})

    found: dict[str, Reply | Failure] = {}
    with serving(Repeating) as url:
        try:
            ServerClient([url], 1, 10.0, 0, "any").chat(REQUESTS[:1], SAMPLING, found.__setitem__)
            said = str(found["k0:0"])
        except DataError as error:
            said = str(error)
    assert "bearer (the key)" in said.lower()
    assert "canary" not in said
    assert len(said) < 1000


@pytest.mark.parametrize("fault", ["401", "404"])
def test_a_wrong_key_or_model_stops_at_once(fault: str) -> None:
    with judge_server(JudgeServer(echo, fault=lambda _: fault)) as server:
        with pytest.raises(DataError, match="OPENAI_API_KEY"):
            ask(server)
        assert server.calls <= 8


def test_a_refused_setting_stops_at_once_and_is_no_outcome_of_a_prompt() -> None:
    """As OpenAI's reasoning models answer ``max_tokens``; fails if the journal keeps a refusal for every prompt."""
    with judge_server(JudgeServer(echo, fault=lambda _: "setting")) as server:
        with pytest.raises(DataError, match=r"refuses the setting max_tokens \(.*; use a model that accepts it"):
            ask(server)
        assert server.calls <= 8


def test_an_answer_that_cannot_be_kept_is_an_error_of_the_disk() -> None:
    def keep(key: str, result: Reply | Failure) -> None:
        raise OSError(28, "No space left on device", "journal.jsonl")

    with judge_server(JudgeServer(echo)) as server:
        client = ServerClient([server.url], 8, 10.0, 6, server.model)
        with pytest.raises(OSError, match=r"No space left on device: 'journal\.jsonl'"):
            client.chat(REQUESTS, SAMPLING, keep)


@pytest.mark.parametrize("usage", [{}, {"prompt_tokens": 1}, {"prompt_tokens": None, "completion_tokens": None}, None])
def test_a_server_that_counts_no_tokens_counts_none(usage: dict[str, int | None] | None) -> None:
    with judge_server(JudgeServer(echo, usage=usage)) as server:
        found = ask(server)
    counts = {(reply.tokens, reply.prompt_tokens) for reply in found.values() if isinstance(reply, Reply)}
    assert counts == {(0, (usage or {}).get("prompt_tokens") or 0)}


def test_the_served_model_is_checked() -> None:
    with judge_server(JudgeServer(echo)) as server:
        assert connect([server.url], 1, 5.0, 0).model == "tiny-judge"
        assert connect([server.url], 1, 5.0, 0, "tiny-judge").model == "tiny-judge"
        with pytest.raises(DataError, match="expected big-judge"):
            connect([server.url], 1, 5.0, 0, "big-judge")


@pytest.mark.parametrize(
    "url",
    ["foo", "localhost:8000/v1", "ftp://host/v1", "http://", "http://a b/v1", "http://[::1/v1", "http://host:99999/v1"],
)
def test_what_is_no_address_is_refused_before_any_call(url: str) -> None:
    with pytest.raises(DataError, match="not a server's address"):
        ServerClient([url], concurrency=1, timeout_s=1.0, retries=6)


def test_an_address_with_a_password_is_refused_without_naming_it() -> None:
    with pytest.raises(DataError, match="must not name a user or a password") as refused:
        ServerClient(["http://ann:canary@host:8000/v1"], concurrency=1, timeout_s=1.0, retries=6)
    assert "canary" not in str(refused.value)


def test_raw_text_is_completed() -> None:
    found: dict[str, Reply | Failure] = {}
    with judge_server(JudgeServer(echo)) as server:
        client = ServerClient([server.url], 4, 5.0, 2, server.model)
        client.complete(REQUESTS[:5], ServerSampling(0.7, 0.95, 9, ("\n\n",), include_stop=True), found.__setitem__)
    assert [reply.text[:8] for _, reply in sorted(found.items()) if isinstance(reply, Reply)] == [
        f"prompt {n}" for n in range(5)
    ]


def test_more_slots_than_requests_and_more_requests_than_slots_both_end() -> None:
    with judge_server(JudgeServer(echo)) as server:
        for concurrency in (1, 64):
            found: dict[str, Reply | Failure] = {}
            ServerClient([server.url], concurrency, 10.0, 2, server.model).chat(REQUESTS, SAMPLING, found.__setitem__)
            assert len(found) == len(REQUESTS)
        assert server.calls == 2 * len(REQUESTS)


def test_an_overloaded_server_gets_fewer_calls_at_a_time() -> None:
    at_once: list[int] = []

    def busy(prompt: str, seed: int) -> str:
        at_once.append(1)
        time.sleep(0.01)
        at_once.pop()
        return echo(prompt, seed)

    refused = 0

    def fault(number: int) -> str:
        nonlocal refused
        if len(at_once) >= 4:
            refused += 1
            return "429"
        return "none"

    requests = [(f"k{n}:0", f"prompt {n}") for n in range(150)]
    found: dict[str, Reply | Failure] = {}
    with judge_server(JudgeServer(busy, fault=fault)) as server:
        client = ServerClient([server.url], 64, 10.0, 20, server.model)
        client.chat(requests, SAMPLING, found.__setitem__)
        assert server.calls == len(requests) + refused
    assert sum(isinstance(reply, Reply) for reply in found.values()) == len(requests)
    assert 0 < refused < len(requests)
    assert client._replicas.all[0].limit < 64


def test_several_servers_share_the_work_and_a_dead_one_is_left_out() -> None:
    found: dict[str, Reply | Failure] = {}
    with judge_server(JudgeServer(echo)) as first, judge_server(JudgeServer(echo)) as second:
        with judge_server(JudgeServer(echo)) as gone:
            pass
        urls = [first.url, gone.url, second.url]
        client = connect(urls, 4, 10.0, 5)
        client.chat(REQUESTS, SAMPLING, found.__setitem__)
        assert first.calls + second.calls == len(REQUESTS)
        assert min(first.calls, second.calls) > 0
        second.model = "another"
        with pytest.raises(DataError, match="the same everywhere"):
            connect(urls, 4, 10.0, 5)
    assert all(isinstance(reply, Reply) for reply in found.values())


def test_a_server_that_dies_during_the_work_costs_no_answer() -> None:
    found: dict[str, Reply | Failure] = {}
    with judge_server(JudgeServer(echo)) as alive, judge_server(JudgeServer(echo)) as dying:
        dying.fault = lambda number: "reset" if number >= 5 else "none"
        client = ServerClient([alive.url, dying.url], 4, 10.0, 6, alive.model)
        client.chat(REQUESTS, SAMPLING, found.__setitem__)
    assert len(found) == len(REQUESTS)
    assert all(isinstance(reply, Reply) for reply in found.values())


@pytest.mark.parametrize("owner", ["vllm", "someone"])
def test_a_vllm_server_of_somebody_else_is_told_to_sample_plainly(owner: str) -> None:
    """Fails if a server adds the top_k and repetition_penalty of the model's generation_config.json."""
    with judge_server(JudgeServer(echo, owner=owner, seen=[])) as server:
        client = connect([server.url], 1, 10.0, 0)
        client.complete([("k", "p")], SAMPLING, lambda *_: None)
        client.chat([("k", "p")], ServerSampling(1.0, 0.95, 50, top_k=20), lambda *_: None)
        plain, chosen = server.seen or []
    neutral = {"top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0} if owner == "vllm" else {}
    assert {name: plain[name] for name in ("top_k", "min_p", "repetition_penalty") if name in plain} == neutral
    assert chosen["top_k"] == 20
