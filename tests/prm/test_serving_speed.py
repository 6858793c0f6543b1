"""`pathfinder serve`: one client and eight at once; a small request alone and among hostile ones, each in one run."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx
import pytest

from pathfinder.demo import MODEL
from tests.prm.test_scoring import save_prm
from tests.support.hostile_clients import request

ROOT = Path(__file__).resolve().parents[2]
RUN = "import sys; from pathfinder.cli import main; main()"
REQUESTS, ROUNDS = 48, 5


@contextmanager
def served(folder: Path, *options: str) -> Iterator[str]:
    """The address of a server in a process of its own, so that the clients take no time from it."""
    command = [sys.executable, "-c", RUN, "serve", str(folder), "--port", "0", "--json", *options]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield json.loads(process.stdout.readline())["url"]
        finally:
            process.terminate()


@pytest.mark.benchmarks
def test_eight_clients_against_one(tmp_path: Path) -> None:
    save_prm(tmp_path)
    with served(tmp_path) as address, httpx.Client(limits=httpx.Limits(max_connections=8)) as client:

        def ask(number: int) -> None:
            steps = [f"{number} + {place} = {number + place}." for place in range(8)]
            body = {"solutions": [{"problem": f"Add up to {number}.", "steps": steps}]}
            client.post(f"{address}v1/score", json=body, timeout=60).raise_for_status()

        def per_second(clients: int) -> float:
            start = time.perf_counter()
            with ThreadPoolExecutor(clients) as pool:
                list(pool.map(ask, range(REQUESTS)))
            return REQUESTS / (time.perf_counter() - start)

        for number in range(8):
            ask(number)
        print(f"\n{REQUESTS} requests of 8 steps, a random model of 2 layers")
        times = []
        for _ in range(ROUNDS):
            one, eight = per_second(1), per_second(8)
            times.append(eight / one)
            print(f"one client {one:6.1f} requests/s, eight clients {eight:6.1f} requests/s, {times[-1]:.2f} times")
        print(f"median {statistics.median(times):.2f} times")


@contextmanager
def hostile(address: str) -> Iterator[None]:
    """64 hostile clients in a process of its own; they would not run on the server's machine, so it yields to it."""
    command = ["nice", "-n", "19", sys.executable, "-m", "tests.support.hostile_clients", address]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        time.sleep(3)
        yield
        print("refused:", process.communicate()[0].strip())


def percentiles(times: list[float]) -> str:
    """The median, the 99th percentile and the largest."""
    times = sorted(times)
    return f"p50 {times[len(times) // 2]:6.1f}  p99 {times[int(0.99 * len(times))]:6.1f}  max {times[-1]:6.1f} ms"


@pytest.mark.benchmarks
def test_a_small_request_among_hostile_clients() -> None:
    """A second server, which nobody attacks, shows how much of a difference is the load of the machine."""
    steps = [f"{number} + {number} = {2 * number}." for number in range(8)]
    body = {"solutions": [{"problem": "What is 1 + 1?", "steps": steps}]}
    too_much = [request(size).partition(b"\r\n\r\n")[2] for size in (1 << 20, 150_000)]
    times: dict[str, list[float]] = {}
    with served(MODEL) as attacked, served(MODEL) as other, httpx.Client() as client:

        def ask(address: str, name: str) -> None:
            start = time.perf_counter()
            client.post(f"{address}v1/score", json=body, timeout=600).raise_for_status()
            times.setdefault(name, []).append(1000 * (time.perf_counter() - start))
            time.sleep(0.02)

        def ask_too_much(text: bytes) -> None:
            """A request that is refused; one that is not refused is abandoned."""
            start = time.perf_counter()
            with suppress(httpx.TimeoutException):
                headers = {"Content-Type": "application/json"}
                answer = client.post(f"{attacked}v1/score", content=text, headers=headers, timeout=0.5)
                times.setdefault(str(answer.status_code), []).append(1000 * (time.perf_counter() - start))

        for _ in range(20):
            ask(attacked, "first")
            ask(other, "first")
        print(
            "\na request of 8 steps, the demo model; 64 hostile clients: 24 abandon 50 KB, 24 send 1 MiB, 16 are slow"
        )
        for _ in range(ROUNDS):
            for _ in range(100):
                ask(attacked, "idle")
            with hostile(attacked):
                for number in range(100):
                    ask(attacked, "attacked")
                    ask(other, "other")
                    if number % 5 == 0:
                        ask_too_much(too_much[number % 2])
            time.sleep(1)
        for name, found in times.items():
            print(f"{name:10} {percentiles(found)}  ({len(found)})")
