"""The HTTP server: the scorer's numbers, shared batches, refusals, and hostile requests."""

from __future__ import annotations

import asyncio
import json
import random
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from ground.io import DataError
from pathfinder.core.steps import Known, Solution, StepScore
from pathfinder.demo import MODEL
from pathfinder.models.folders import open_model
from pathfinder.prm.batching import Batcher, FullError, tokens_of
from pathfinder.prm.gate import is_own
from pathfinder.prm.results import TOO_LONG
from pathfinder.prm.scoring import Scorer
from pathfinder.prm.serving import LONG_TEXT, MOST_CHARACTERS, listening, make_app
from tests.support.scoring_server import ONE, PROBLEM, STEPS, Server
from tests.support.verbs import checked

ROOT = Path(__file__).resolve().parents[2]


def test_the_numbers_are_the_scorer_s(server: tuple[str, Server], folder: Path) -> None:
    (expected,) = Scorer(open_model(folder)).score([Solution("0", PROBLEM, tuple(STEPS))])
    answer = httpx.post(f"{server[0]}v1/score", json=ONE).json()
    (found,) = answer["solutions"]
    for step, score in zip(found["steps"], expected, strict=True):
        values = (step["math"], step["consistency"], step["reward"])
        assert values == pytest.approx((*score.first.values(), score.reward), abs=1e-6)
        assert step["probabilities"] == pytest.approx(dict(score.first), abs=1e-6)
        assert step["errors"] == [name for name, p in step["probabilities"].items() if p < 0.5]
    wrong = [place for place, step in enumerate(found["steps"]) if not step["correct"]]
    assert found["first_error"] == (wrong[0] if wrong else None)
    assert answer["model"] == "tiny"
    assert "two" not in json.dumps(answer)
    for text in ("<extra_0>".join([*STEPS, ""]), "\n\n".join(STEPS)):
        turns = [{"role": "user", "content": PROBLEM}, {"role": "assistant", "content": text}]
        rows = httpx.post(f"{server[0]}pooling", json={"model": "x", "messages": turns}).json()["data"][0]["data"]
        assert [row[1] for row in rows] == pytest.approx([score.reward for score in expected], abs=1e-6)
        assert all(sum(row) == pytest.approx(1) for row in rows)


@pytest.mark.parametrize(
    "step, steps, reason", [("a " * 4000, 2, TOO_LONG), ("a" * (MOST_CHARACTERS + 1), 1, LONG_TEXT)]
)
def test_an_unscored_solution_cannot_pass_for_a_correct_one(
    server: tuple[str, Server], step: str, steps: int, reason: str
) -> None:
    long = {"problem": PROBLEM, "steps": [step] * steps}
    answer = httpx.post(f"{server[0]}v1/score", json={"solutions": [long, *ONE["solutions"]]})
    unscored, scored = answer.json()["solutions"]
    assert unscored == {"scored": False, "reason": reason}
    assert set(scored) == {"scored", "steps", "first_error", "unlike"}
    assert scored["scored"] is True
    text = "\n\n".join([step] * steps)
    page = httpx.post(server[0], data={"problem": PROBLEM, "steps": text})
    assert f"Not scored: the solution is {reason}." in unescape(page.text)
    assert "<table" not in page.text
    turns = [{"role": "user", "content": PROBLEM}, {"role": "assistant", "content": text}]
    pooled = httpx.post(f"{server[0]}pooling", json={"messages": turns})
    assert (pooled.status_code, pooled.json()["error"]["message"]) == (400, f"solution 0 is {reason}")


def test_an_answer_does_not_wait_for_an_acknowledgement() -> None:
    """The body of an answer is a packet of its own, which Nagle's algorithm would hold back for 40 ms."""
    with listening("127.0.0.1", 0) as (opened, _), socket.create_connection(opened.getsockname()):
        accepted, _ = opened.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_concurrent_clients_share_batches_and_get_their_own_scores(server: tuple[str, Server], folder: Path) -> None:
    solutions = [Solution(str(n), f"{n}+1?", (f"It is {n + 1}.", f"So {n}.")) for n in range(40)]
    expected = [scores[-1].reward for scores in Scorer(open_model(folder)).score(solutions)]
    address, made = server
    before = len(made.scored)

    async def ask(client: httpx.AsyncClient, one: Solution) -> float:
        body = {"solutions": [{"problem": one.problem, "steps": one.steps}]}
        answer = await client.post(f"{address}v1/score", json=body, timeout=60)
        return float(answer.json()["solutions"][0]["steps"][-1]["reward"])

    async def ask_all() -> list[float]:
        async with httpx.AsyncClient(limits=httpx.Limits(max_connections=40)) as client:
            return await asyncio.gather(*(ask(client, one) for one in solutions))

    assert asyncio.run(ask_all()) == pytest.approx(expected, abs=1e-5)
    assert len(made.scored) - before < 40, "some were scored together"


def test_a_thousand_hostile_requests_do_no_harm(server: tuple[str, Server]) -> None:
    address, _ = server
    draw = random.Random(7)
    texts = [
        "<extra>",
        "<+>",
        "<|im_end|>",
        "\ud800",
        "\x00\x1b[2J",
        "{{7*7}}",
        "<script>",
        "a" * 500,
        "",
        " ",
        "\n\n",
        "Score A: 1",
    ]
    values: list[Any] = [None, True, 0, -1.5, 10**30, [], {}, [[]], *texts]

    def body() -> bytes:
        kind = draw.randrange(7)
        if kind == 0:
            return draw.randbytes(draw.randrange(200))
        if kind == 1:
            return b"[" * 5000
        if kind == 2:
            return b'{"solutions": ' + b"9" * 4500 + b"}"
        steps = [draw.choice(values if kind < 5 else texts) for _ in range(draw.randrange(4))]
        one = {
            "problem": draw.choice(values if kind == 3 else texts),
            "steps": draw.choice([steps, draw.choice(values)]),
        }
        return json.dumps({"solutions": [one] if kind < 6 else draw.choice(values), "messages": steps}).encode()

    statuses: dict[int, int] = {}
    with httpx.Client() as client:
        for number in range(1000):
            route = "pooling" if number % 5 == 0 else "v1/score"
            answer = client.post(f"{address}{route}", content=body(), headers={"Content-Type": "application/json"})
            statuses[answer.status_code] = statuses.get(answer.status_code, 0) + 1
            assert "script" not in answer.text
        assert set(statuses) <= {200, 400, 422}, statuses
        assert statuses[200] > 20
        assert client.post(f"{address}v1/score", content=b"x" * 30_000).status_code == 413
        assert client.post(f"{address}v1/score", content=iter([b"x" * 15_000] * 2)).status_code == 413
        assert client.get(f"{address}health").json()["status"] == "ok"
        metrics = client.get(f"{address}metrics").text
    assert re.search(r'pathfinder_refused_total\{reason="invalid"\} [1-9]', metrics)
    assert re.search(r"^pathfinder_solutions_total [1-9]\d*$", metrics, re.MULTILINE)


@pytest.mark.parametrize("kind", [None, "application/x-www-form-urlencoded", "text/plain"])
def test_a_body_that_is_not_called_json_is_not_read(server: tuple[str, Server], kind: str | None) -> None:
    """curl sends a form's type without -H. Pages of other sites may send these types without asking first."""
    headers = {} if kind is None else {"Content-Type": kind}
    for route in ("v1/score", "pooling"):
        answer = httpx.post(f"{server[0]}{route}", content=json.dumps(ONE), headers=headers)
        assert answer.status_code == 415
        told = answer.json()
        message = told["detail"] if route == "v1/score" else told["error"]["message"]
        assert message == "send JSON with the header `Content-Type: application/json`"
    headers = {"Content-Type": "Application/JSON; charset=utf-8"}
    assert httpx.post(f"{server[0]}v1/score", content=json.dumps(ONE), headers=headers).status_code == 200
    assert httpx.post(f"{server[0]}v1/score", content="{}", headers=headers).status_code == 422


def test_the_page_loads_nothing_and_has_no_script(server: tuple[str, Server]) -> None:
    page = httpx.get(server[0])
    assert "default-src 'none'" in page.headers["content-security-policy"]
    assert "script-src" not in page.headers["content-security-policy"]
    assert not re.search(r"(src|href)=|<script", page.text)


def test_the_page_draws_the_scores_of_a_form(server: tuple[str, Server]) -> None:
    hostile = "<script>alert(1)</script>"
    page = httpx.post(
        server[0], data={"problem": f"What is 1 + 1?\r\n{hostile}", "steps": f"1 + 1 = 3.\r\n\r\n{hostile}"}
    )
    assert page.status_code == 200
    (table,) = re.findall(r'<table class="typed">(.*?)</table>', page.text, re.DOTALL)
    assert table.count("<tr") == 3
    assert "no math error" in table
    assert re.search(r"The first incorrect step is step [12]|No step (is flagged|has an error)", page.text)
    assert "<script" not in page.text
    assert page.text.count("&lt;script&gt;alert(1)&lt;/script&gt;") == 4, "each text is in its field and in the picture"
    assert "\ufffd" not in page.text


@pytest.mark.parametrize("body", [b"", b"problem=1", b"problem=1&steps=%0a", b"\xff=%ff"])
def test_a_form_without_a_solution_is_answered_with_the_page(server: tuple[str, Server], body: bytes) -> None:
    page = httpx.post(server[0], content=body)
    assert page.status_code == 200
    assert "Not scored: the solution is empty." in page.text


@pytest.mark.parametrize("body", [b"a=1&b=2&c=3", b"steps=" + b"a%0a%0a" * 1025])
def test_a_form_of_other_fields_or_too_many_steps_is_refused_on_the_page(
    server: tuple[str, Server], body: bytes
) -> None:
    page = httpx.post(server[0], content=body)
    assert page.status_code == 422
    assert "Not scored: give a problem and at most 1024 steps." in page.text


def test_a_solution_without_text_spoils_no_other(server: tuple[str, Server]) -> None:
    given = [{"problem": PROBLEM, "steps": steps} for steps in ([], [" ", ""], STEPS)]
    *without, scored = httpx.post(f"{server[0]}v1/score", json={"solutions": given}).json()["solutions"]
    assert without == [{"scored": False, "reason": "empty"}] * 2
    assert scored["scored"] is True


def test_half_an_emoji_spoils_no_answer_that_repeats_it() -> None:
    """JSON can hold a lone surrogate, an answer in UTF-8 cannot; a model with few words names the unknown signs."""
    steps = ["a", "a \ud83d"]

    async def asked() -> list[httpx.Response]:
        made = make_app(batcher, "tiny", known=Known(frozenset({"a"}), 1))
        async with httpx.AsyncClient(transport=httpx.ASGITransport(made), base_url="http://127.0.0.1") as client:
            solutions = [{"problem": "a", "steps": [step]} for step in steps]
            bodies = {"v1/score": {"solutions": solutions}, "rerank": {"query": "a", "documents": steps}}
            kind = {"Content-Type": "application/json"}
            return [await client.post(route, content=json.dumps(body), headers=kind) for route, body in bodies.items()]

    with Batcher(lambda solutions: [[StepScore({}, 0.5)] for _ in solutions]) as batcher:
        scored, sorted_ = (answer.json() for answer in asyncio.run(asked()))
    assert [one["unlike"] for one in scored["solutions"]] == [[], ["unknown words or signs: \ufffd"]]
    assert [one["document"]["text"] for one in sorted_["results"]] == ["a", "a \ufffd"]


def test_a_full_queue_is_said_and_one_failure_spoils_no_other() -> None:
    began, go = threading.Event(), threading.Event()

    def score(solutions: Sequence[Solution]) -> list[list[StepScore]]:
        began.set()
        go.wait()
        if any(solution.id == "bad" for solution in solutions):
            raise DataError("bad")
        return [[StepScore({}, 0.5)] for _ in solutions]

    def ask(*ids: str) -> list[Any]:
        return list(batcher.submit([Solution(name, "p", ("s",)) for name in ids]))

    with Batcher(score, most_tokens=4 * tokens_of(Solution("a", "p", ("s",)))) as batcher:
        first = ask("a")
        began.wait()
        later = ask("b", "bad", "c")
        with pytest.raises(FullError):
            ask("d")
        later[0].cancel()
        (last,) = ask("d")  # in the place of the one that gave up
        go.set()
        assert [len(future.result()) for future in (*first, later[2], last)] == [1, 1, 1]
        with pytest.raises(DataError):
            later[1].result()
    assert (batcher.scored, batcher.abandoned, batcher.tokens) == (3, 1, 0)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"Host": "localhost:8765", "Origin": "http://localhost:8765"}, 200),
        ({"Host": "127.0.0.2:8765"}, 200),
        ({"Host": "attacker.example"}, 403),
        ({"Host": "127.0.0.1.attacker.example:8765"}, 403),
        ({"Host": "[broken"}, 403),
        ({"Origin": "http://attacker.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://127.0.0.1:1"}, 403),
    ],
)
def test_pages_of_other_sites_are_refused(server: tuple[str, Server], headers: dict[str, str], status: int) -> None:
    address, _ = server
    for path in ("", "health", "metrics"):
        assert httpx.get(f"{address}{path}", headers=headers).status_code == status
    answer = httpx.post(f"{address}v1/score", json=ONE, headers=headers)
    assert answer.status_code == status


@pytest.mark.parametrize("is_local", [True, False])
def test_a_named_proxy_is_served_under_its_own_name_only(is_local: bool) -> None:
    made = make_app(Batcher(lambda solutions: []), "tiny", is_local=is_local, names=["PRM.example"])
    transport = httpx.ASGITransport(made)

    async def status(**headers: str) -> int:
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            return (await client.get("/health", headers=headers)).status_code

    async def statuses() -> list[int]:
        own = {"Host": "prm.example", "Origin": "https://prm.example"}
        return [
            await status(**own),
            await status(**own | {"Host": "other.example"}),
            await status(Origin=own["Origin"]),
        ]

    assert asyncio.run(statuses()) == [200, 403, 403]


@pytest.mark.parametrize(
    ("host", "expected"),
    [("127.0.0.1", True), ("127.0.0.2", True), ("::1", True), ("localhost", True), ("192.168.0.1", False)],
)
def test_a_server_on_any_loopback_address_is_known_to_be_local(host: str, expected: bool) -> None:
    assert is_own(host) is expected


def test_a_request_inside_another_one_is_not_answered(server: tuple[str, Server]) -> None:
    """Two lengths of one body, which a proxy and a server could read differently."""
    address = urlsplit(server[0])
    hidden = b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    for lengths in (b"Content-Length: 4\r\nTransfer-Encoding: chunked", b"Content-Length: 4\r\nContent-Length: 60"):
        head = b"POST /v1/score HTTP/1.1\r\nHost: 127.0.0.1\r\n" + lengths + b"\r\n\r\n"
        with socket.create_connection((str(address.hostname), int(address.port or 0)), timeout=5) as connection:
            connection.sendall(head + b"0\r\n\r\n" + hidden)
            connection.shutdown(socket.SHUT_WR)
            answer = b"".join(iter(lambda: connection.recv(4096), b""))
        assert answer.startswith(b"HTTP/1.1 400 Bad Request")
        assert answer.count(b"HTTP/1.1") == 1


def test_a_full_server_answers_429(folder: Path) -> None:
    batcher = Batcher(lambda solutions: [], most_tokens=100)  # its thread does not run, so nothing leaves the queue
    transport = httpx.ASGITransport(make_app(batcher, "tiny"))

    async def ask() -> httpx.Response:
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            batcher.submit([Solution("0", "p", ("s",))])
            return await client.post("/v1/score", json=ONE)

    answer = asyncio.run(ask())
    assert (answer.status_code, answer.headers["retry-after"]) == (429, "1")


@pytest.mark.usefixtures("warm_starts")
def test_the_command_serves_and_refuses_a_taken_port() -> None:
    command = [sys.executable, "-c", "from pathfinder.cli import main; main()", "serve", str(MODEL), "--port"]
    with listening("127.0.0.1", 0) as (_, address):
        port = address.rpartition(":")[2].strip("/")
        taken = subprocess.run([*command, port], capture_output=True, text=True)
    assert taken.returncode == 1
    assert f"error: 127.0.0.1:{port}: " in taken.stderr
    with subprocess.Popen([*command, "0", "--json"], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            (row,) = checked("serve", process.stdout.readline())
            found = row["url"]
            assert re.fullmatch(r"http://127\.0\.0\.1:\d+/", found)
            for _ in range(100):
                try:
                    assert httpx.get(f"{found}health").json()["status"] == "ok"
                    break
                except httpx.ConnectError:
                    time.sleep(0.1)
            (scored,) = httpx.post(f"{found}v1/score", json=ONE, timeout=60).json()["solutions"]
            assert scored["unlike"] == ["unknown words or signs: <, >, _, end, extra and 3 more"]
            assert "<p>This model was trained on 119 words and symbols (such as about, cakes, " in httpx.get(found).text
            page = httpx.post(found, data={"problem": PROBLEM, "steps": STEPS[0]}, timeout=60).text
            assert "unlike all that the model learnt from (unknown words or signs: &lt;, &gt;, _, " in page
        finally:
            process.terminate()
