"""Requests per second: one client that waits for each answer, and eight at once, interleaved in one run."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from tests.prm.test_scoring import save_prm
from tests.prm.test_serving import Server, serving

REQUESTS, ROUNDS = 48, 3


@pytest.mark.benchmarks
def test_eight_clients_against_one(tmp_path: Path) -> None:
    save_prm(tmp_path)
    with serving(Server(tmp_path)) as address, httpx.Client(limits=httpx.Limits(max_connections=8)) as client:

        def ask(number: int) -> None:
            steps = [f"{number} + {place} = {number + place}." for place in range(8)]
            body = {"solutions": [{"problem": f"Add up to {number}.", "steps": steps}]}
            client.post(f"{address}v1/score", json=body, timeout=60).raise_for_status()

        ask(0)
        print(f"\n{REQUESTS} requests of 8 steps, a random model of 2 layers")
        for _ in range(ROUNDS):
            seconds = []
            for clients in (1, 8):
                start = time.perf_counter()
                with ThreadPoolExecutor(clients) as pool:
                    list(pool.map(ask, range(REQUESTS)))
                seconds.append(time.perf_counter() - start)
            one, eight = (REQUESTS / each for each in seconds)
            print(f"one client {one:6.1f} requests/s, eight clients {eight:6.1f} requests/s, {eight / one:.2f} times")
