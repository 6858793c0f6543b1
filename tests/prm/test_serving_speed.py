"""Requests per second at `pathfinder serve`: one client that waits for each answer, and eight at once, in one run."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from tests.prm.test_scoring import save_prm

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
