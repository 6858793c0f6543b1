"""The server refuses requests unread, drops work for clients that have gone, and orders the rest."""

from __future__ import annotations

import asyncio
import itertools
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from typer.testing import CliRunner

from pathfinder.cli import app as cli
from pathfinder.core.steps import Solution, StepScore
from pathfinder.models.folders import open_model
from pathfinder.prm.batching import BATCH, PATIENCE, UNIT, Batcher, tokens_of
from pathfinder.prm.gate import Impatient
from pathfinder.prm.scoring import Scorer
from pathfinder.prm.serving import MOST_CHARACTERS, http_server, listening, make_app
from tests.prm.test_scoring import save_prm

ASK = "POST /v1/score HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"


def solution(name: str, steps: int = 1, words: int = 1) -> Solution:
    return Solution(name, name, (" ".join(["word"] * words),) * steps)


def body(*solutions: Solution) -> dict[str, Any]:
    return {"solutions": [{"problem": one.problem, "steps": one.steps} for one in solutions]}


def eventually(what: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.01)


class Model:
    """Scores when told: ``names`` has the problems of each batch. ``go`` lets all batches pass."""

    def __init__(self) -> None:
        self.names: list[list[str]] = []
        self.began, self.go = threading.Event(), threading.Event()

    def score(self, solutions: Sequence[Solution]) -> list[list[StepScore]]:
        self.names.append([one.problem for one in solutions])
        self.began.set()
        assert self.go.wait(30)
        return [[StepScore({}, 0.5) for _ in one.steps] for one in solutions]

    def parts(self, one: Solution, seconds: float) -> Iterator[list[StepScore]]:
        for _ in one.steps:
            self.names.append([one.problem])
            self.began.set()
            assert self.go.wait(30)
            yield [StepScore({}, 0.5)]


@contextmanager
def serving(batcher: Batcher, **options: Any) -> Iterator[str]:
    with listening("127.0.0.1", 0) as (opened, address), batcher:
        server = http_server(make_app(batcher, "tiny", **options), batcher, "critical")
        thread = threading.Thread(target=server.run, kwargs={"sockets": [opened]}, daemon=True)
        thread.start()
        eventually(lambda: server.started)
        try:
            yield address
        finally:
            server.should_exit = True
            thread.join()


def connect(address: str) -> socket.socket:
    place = urlsplit(address)
    return socket.create_connection((str(place.hostname), int(place.port or 0)), timeout=30)


def send(address: str, *solutions: Solution) -> socket.socket:
    """A connection on which a whole request was sent."""
    connection, text = connect(address), json.dumps(body(*solutions))
    connection.sendall(f"{ASK}Content-Length: {len(text)}\r\n\r\n{text}".encode())
    return connection


@pytest.fixture
def model() -> Model:
    return Model()


def test_nothing_is_scored_for_a_client_that_has_gone(model: Model) -> None:
    with serving(Batcher(model.score)) as address:
        first = send(address, solution("first"))
        assert model.began.wait(30)
        gone = send(address, *(solution("gone") for _ in range(5)))
        eventually(lambda: httpx.get(f"{address}health").json()["waiting"] == 5)
        gone.close()
        eventually(lambda: httpx.get(f"{address}health").json()["waiting"] == 0)
        model.go.set()
        assert first.recv(15) == b"HTTP/1.1 200 OK"
        first.close()
        assert httpx.post(f"{address}v1/score", json=body(solution("last"))).status_code == 200
        metrics = httpx.get(f"{address}metrics").text
    assert model.names == [["first"], ["last"]]
    assert "pathfinder_abandoned_total 5\n" in metrics
    assert "pathfinder_tokens 0\n" in metrics


def test_a_long_solution_ends_between_its_parts_when_its_client_goes(model: Model) -> None:
    with serving(Batcher(model.score, model.parts)) as address:
        gone = send(address, solution("long", 100))
        assert model.began.wait(30)
        gone.close()
        eventually(lambda: "pathfinder_abandoned_total 1\n" in httpx.get(f"{address}metrics").text)
        model.go.set()
        assert httpx.post(f"{address}v1/score", json=body(solution("next"))).status_code == 200
    assert model.names == [["long"], ["next"]]


def test_nobody_waits_for_a_server_that_ends(model: Model) -> None:
    class Ending(Batcher):
        def close(self) -> None:
            super().close()
            model.go.set()

    with serving(batcher := Ending(model.score, model.parts)) as address:
        clients = [send(address, solution(name, 100)) for name in ("scored", "waits")]
        eventually(lambda: model.began.is_set() and batcher.waiting == 1)
    assert [client.recv(12) for client in clients] == [b"HTTP/1.1 503"] * 2


def test_a_small_request_overtakes_many_solutions_of_another(model: Model) -> None:
    with Batcher(model.score) as batcher:
        many = batcher.submit([solution("many") for _ in range(100)])
        assert model.began.wait(30)
        (one,) = batcher.submit([solution("one")])
        model.go.set()
        one.result(30)
        [future.result(30) for future in many]
    assert "one" in model.names[1]
    assert sum(map(len, model.names)) == 101
    assert len(model.names[0]) * tokens_of(solution("many")) <= UNIT


def test_a_small_request_overtakes_a_long_solution(model: Model) -> None:
    with Batcher(model.score, model.parts) as batcher:
        (long,) = batcher.submit([solution("long", 100)])
        assert model.began.wait(30)
        (small,) = batcher.submit([solution("small")])
        (late,) = batcher.submit([solution("other long", 90)])
        model.go.set()
        assert (len(small.result(30)), len(long.result(30)), len(late.result(30))) == (1, 100, 90)
    assert model.names[:3] == [["long"], ["small"], ["long"]]
    assert model.names[-90:] == [["other long"]] * 90, "one long solution at a time"


def test_the_work_of_an_earlier_request_is_not_put_off_for_ever(model: Model) -> None:
    """Requests that arrive later go first only until their tokens add up to the tokens of the earlier one."""
    with Batcher(model.score) as batcher:
        first = batcher.submit([solution("first")])
        assert model.began.wait(30)
        large = batcher.submit([solution("large", 30)])
        small = [batcher.submit([solution(f"small {number}")])[0] for number in range(3)]
        model.go.set()
        for future in (*first, *large, *small):
            future.result(30)
        order: list[str] = []
        model.names.clear()
        (again,) = batcher.submit([solution("large", 30)])
        for _ in range(20):
            batcher.submit([solution("small")])[0].result(30)
            order += [name for names in model.names for name in names]
            model.names.clear()
        again.result(30)
    assert order.index("large") <= tokens_of(solution("large", 30)) // tokens_of(solution("small")) + 1


class Watched(Batcher):
    """Notes what each thread takes, under the lock: another thread may overtake it before the model notes it."""

    def __init__(self, *given: Any, **options: Any) -> None:
        super().__init__(*given, **options)
        self.taken: list[str] = []

    def _take(self) -> list[Any]:
        beside = " beside long" if self._has_long else ""
        batch = super()._take()
        self.taken += [f"{entry.solution.problem}{beside}" for entry in batch[:1]]
        return batch


@pytest.mark.parametrize("threads", [1, 2])
def test_a_long_solution_gets_a_turn_among_many_short_ones(model: Model, threads: int) -> None:
    with Watched(model.score, model.parts, threads=threads) as batcher:
        first = batcher.submit([solution("first")])
        assert model.began.wait(30)
        (long,) = batcher.submit([solution("long", 100)])
        short = [future for _ in range(20) for future in batcher.submit([solution("short") for _ in range(BATCH)])]
        model.go.set()
        for future in (*first, long, *short):
            future.result(30)
    last = max(place for place, name in enumerate(batcher.taken) if name.startswith("short"))
    waited = [len([*group]) for name, group in itertools.groupby(batcher.taken[:last]) if name == "short"]
    assert last > 20
    assert max(waited) <= PATIENCE


def test_one_of_two_threads_is_free_for_small_requests(model: Model) -> None:
    with Batcher(model.score, model.parts, threads=2) as batcher:
        longs = batcher.submit([solution("long", 100), solution("long", 100)])
        assert model.began.wait(30)
        model.began.clear()
        (small,) = batcher.submit([solution("small")])
        assert model.began.wait(30)
        assert model.names == [["long"], ["small"]]
        model.go.set()
        assert [len(future.result(30)) for future in (*longs, small)] == [100, 100, 1]


def test_a_failure_between_parts_is_the_solution_s_own() -> None:
    def parts(one: Solution, seconds: float) -> Iterator[list[StepScore]]:
        yield [StepScore({}, 0.5)]
        raise ValueError(one.problem)

    with Batcher(lambda given: [[StepScore({}, 0.5)] for _ in given], parts) as batcher:
        (bad,) = batcher.submit([solution("bad", 100)])
        with pytest.raises(ValueError, match="bad"):
            bad.result(30)
        (good,) = batcher.submit([solution("good")])
        assert len(good.result(30)) == 1


def test_the_parts_of_a_solution_have_its_scores(tmp_path: Path) -> None:
    save_prm(tmp_path)
    scorer = Scorer(open_model(tmp_path))
    one = Solution("0", "1+1?", tuple(f"It is {number}, <extra> so." for number in range(11)))
    (whole,) = scorer.score([one])
    for seconds in (0.0, 0.01, 100.0):
        parts = list(scorer.parts(one, seconds))
        assert len(parts) > (8 if seconds == 0.0 else 1)
        found = [score for part in parts for score in part]
        assert [score.reward for score in found] == pytest.approx([score.reward for score in whole], abs=1e-5)
        for mine, theirs in zip(found, whole, strict=True):
            assert mine.first == pytest.approx(theirs.first, abs=1e-5)
    scorer._reader._longest = 40
    assert list(scorer.parts(one, 1.0)) == []


def test_the_wait_for_a_turn_makes_no_part_smaller(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_prm(tmp_path)
    clock = itertools.count()  # a part takes one second
    monkeypatch.setattr("pathfinder.prm.scoring.time", SimpleNamespace(monotonic=lambda: next(clock)))
    sizes = []
    for part in Scorer(open_model(tmp_path)).parts(solution("long", 30), 2.0):
        sizes.append(len(part))
        list(itertools.islice(clock, 9))  # the wait for the next turn
    assert sizes == [2, 4, 8, 16]


def test_too_many_tokens_are_refused_before_the_body_is_sent(model: Model) -> None:
    """The answer comes without one byte of the body, so nothing was read or parsed."""
    with serving(Batcher(model.score, most_tokens=2000), most_tokens=1000) as address:
        with connect(address) as connection:
            connection.sendall(f"{ASK}Content-Length: 1048576\r\n\r\n".encode())
            answer = b"".join(iter(lambda: connection.recv(4096), b"")).decode()
        assert answer.startswith("HTTP/1.1 413 ")
        assert "the body is longer than 3000 bytes; send several requests" in answer
        never = httpx.post(f"{address}v1/score", json=body(*(solution("p") for _ in range(30))))
        assert never.status_code == 422
        assert never.json() == {"detail": "the request has about 2430 tokens; send at most 1000 in one request"}
        with ExitStack() as stack:
            for _ in range(2):
                stack.enter_context(send(address, *(solution("p") for _ in range(11))))
            assert model.began.wait(30)
            eventually(lambda: "pathfinder_tokens 1782\n" in httpx.get(f"{address}metrics").text)
            with connect(address) as connection:
                connection.sendall(f"{ASK}Content-Length: 2400\r\n\r\n".encode())
                answer = b"".join(iter(lambda: connection.recv(4096), b"")).decode()
            assert answer.startswith("HTTP/1.1 429 ")
            assert "retry-after: 1\r\n" in answer
            later = httpx.post(f"{address}v1/score", json=body(*(solution("p") for _ in range(3))))
            assert (later.status_code, later.headers["retry-after"]) == (429, "1")
            assert httpx.get(f"{address}health").status_code == 200
            model.go.set()


@pytest.mark.parametrize(
    "texts, refused",
    [
        ({"problem": "a" * (MOST_CHARACTERS + 1), "steps": ["a"]}, False),
        ({"problem": "a", "steps": ["a" * (MOST_CHARACTERS + 1)]}, False),
        ({"problem": "a", "steps": ["a"] * 1025}, True),
    ],
)
def test_a_text_that_would_hold_the_model_is_not_scored_on_any_route(
    model: Model, texts: dict[str, Any], refused: bool
) -> None:
    """One long text of a batch must not cost the others their scores, so only the solution has none."""
    turns = [{"role": "user", "content": texts["problem"]}, {"role": "a", "content": "\n\n".join(texts["steps"])}]
    with serving(Batcher(model.score)) as address:
        answer = httpx.post(f"{address}v1/score", json={"solutions": [texts]})
        assert answer.status_code == (422 if refused else 200)
        assert refused or answer.json()["solutions"][0]["scored"] is False
        assert httpx.post(f"{address}pooling", json={"messages": turns}).status_code == 400
        form = {"problem": texts["problem"], "steps": "\n\n".join(texts["steps"])}
        assert "Not scored: " in httpx.post(address, data=form).text
    assert model.names == []


def test_a_request_that_takes_too_long_is_ended(model: Model) -> None:
    with serving(Batcher(model.score), deadline_s=0.2) as address:
        first = send(address, solution("first"))
        assert model.began.wait(30)
        late = httpx.post(f"{address}v1/score", json=body(solution("late")))
        assert (late.status_code, late.json()) == (503, {"detail": "not scored within 0.2 s; send less, or try again"})
        assert late.headers["retry-after"] == "1"
        assert httpx.get(f"{address}health").json()["waiting"] == 0
        model.go.set()
        first.close()
    assert ["late"] not in model.names


def test_a_token_is_asked_of_every_client() -> None:
    """White space around the server's token comes from the file that it was read from; à ends in the byte A0."""
    app = make_app(Batcher(lambda solutions: []), "tiny", token=" chosen-tökén-à\n")  # noqa: S106
    transport = httpx.ASGITransport(app)

    async def status(path: str, header: bytes | None = None) -> int:
        headers = {} if header is None else {b"Authorization": header}
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            return (await client.get(path, headers=headers)).status_code

    async def statuses() -> list[int]:
        known = "Bearer chosen-tökén-à".encode()
        wrong = [None, b"Bearer", b"Bearer ", b"Bearer chosen", "Basic chosen-tökén-à".encode(), known + b"x", b"\xff"]
        return [
            *[await status("/metrics", header) for header in (known, known.replace(b"Bearer", b"bearer"))],
            *[await status(path, header) for path in ("/metrics", "/", "/docs", "/v1/models") for header in wrong],
            await status("/health"),
        ]

    assert asyncio.run(statuses()) == [200, 200, *[401] * 28, 200]


def test_a_blank_token_opens_no_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATHFINDER_SERVE_TOKEN", "\n")
    refused = CliRunner().invoke(cli, ["serve", "absent"])
    assert (refused.exit_code, refused.stderr.partition(";")[0]) == (1, "error: PATHFINDER_SERVE_TOKEN is blank")


@pytest.mark.parametrize(
    "sent",
    [
        "",
        "POST /v1/score HT",
        f"{ASK}X",
        f"{ASK}Content-Length: 100\r\n\r\n{{",
        "GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\nGET /hea",
    ],
)
def test_a_half_sent_request_is_closed(model: Model, monkeypatch: pytest.MonkeyPatch, sent: str) -> None:
    """Also if a byte arrives now and then, and also after a request that was answered."""
    monkeypatch.setattr(Impatient, "patience", 0.3)
    with serving(Batcher(model.score)) as address, connect(address) as connection:
        connection.sendall(sent.encode())
        try:
            for _ in range(600):
                time.sleep(0.05)
                connection.sendall(b"x" if sent else b"")
                connection.settimeout(0.001)
                try:
                    if connection.recv(4096) == b"":
                        break
                except TimeoutError:
                    pass
            else:
                raise AssertionError("the connection is open after 30 s")
        except (ConnectionResetError, BrokenPipeError):
            pass
        assert httpx.get(f"{address}health").status_code == 200


def test_a_request_that_is_being_scored_is_not_closed(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Impatient, "patience", 0.1)
    with serving(Batcher(model.score)) as address, send(address, solution("slow")) as connection:
        assert model.began.wait(30)
        time.sleep(0.5)
        model.go.set()
        assert connection.recv(15) == b"HTTP/1.1 200 OK"
