"""The rematch on real problems: the published way, transformers' cache, trees and vLLM, for models of three sizes.

Run: PATHFINDER_VLLM=<python of vLLM's environment> pytest -m benchmarks -s tests/prm/test_served_speed.py

From text to rewards. On one core: processor seconds of this process and the processes that it starts. On two cores,
which nothing else may use: seconds. The ways take turns. vLLM forgets its prefixes before each of them. Its settings
are the best for the smallest model on that many cores, searched on other problems. With PATHFINDER_BENCHMARK_WRITE=1
the table is written between its marks in docs/measurements.md.
"""

from __future__ import annotations

import json
import math
import os
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import psutil  # type: ignore[import-untyped]
import pytest
import torch
from transformers import DynamicCache

from pathfinder.core.steps import Solution, StepScore
from pathfinder.models.architectures import shape_of
from pathfinder.models.folders import open_model
from pathfinder.prm.scoring import Scorer
from pathfinder.prm.steps import queries_of
from pathfinder.tree.passes import Mode, Prompter, Query
from pathfinder.tree.tree import shared_prefix
from tests.prm.test_scoring import stop_at
from tests.support.models import SIZES, counted_tokens, published_rewards
from tests.tree.test_speed import (
    DOCUMENT,
    SUBSETS,
    Setting,
    published_first,
    rows_of,
    seconds,
    setting_of,
    solution_of,
    table,
    write,
)

pytestmark = pytest.mark.benchmarks
COUNTS = dict(zip(SIZES, ((4, 3), (1, 1), (1, 1)), strict=True))
"""Solutions of a set and runs, by the size of the model."""
WRITTEN = ("transformers' cache", "trees", "trees, early stop", "engine", "floor", "attained share")
"""The rows of the table for one core; the others are only printed."""
WRITTEN_TWO = ("trees", "engine")
WARM = [Solution("warm", "What is 1 + 1?", ("It is 2.",))]
FIRST = {"block_size": 32, "max_num_batched_tokens": 4096, "max_num_seqs": 64, "enforce_eager": True}
TRIED: dict[str, tuple[int, ...]] = {
    "block_size": (64,),
    "max_num_batched_tokens": (1024, 8192),
    "max_num_seqs": (256,),
    "enforce_eager": (False,),
}
_ENVIRONMENT = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "HF_HUB_OFFLINE": "1",
}

# vLLM without a server: a process that reads prompts and prints log-probabilities and the number of tokens computed.
OFFLINE = """
import json, sys
from vllm import LLM, SamplingParams
answers = sys.stdout
sys.stdout = sys.stderr
settings = {"dtype": "float32", "max_model_len": 8192, "enable_prefix_caching": True} | json.loads(sys.argv[1])
engine = LLM(model="prm", **settings)
for line in sys.stdin:
    asked = json.loads(line)
    good, bad = asked["tokens"]
    one = SamplingParams(max_tokens=1, temperature=0.0, logprobs=None, logprob_token_ids=[good, bad], ignore_eos=True,
                         detokenize=False)
    computed = 0

    def read(prompts):
        global computed
        outs = engine.generate([{"prompt_token_ids": prompt} for prompt in prompts], one, use_tqdm=False)
        computed += sum(len(out.prompt_token_ids) - (out.num_cached_tokens or 0) for out in outs)
        return [[out.outputs[0].logprobs[0][token].logprob for token in (good, bad)] for out in outs]

    firsts = [ids[:slot] for ids, slots in asked["steps"] for slot in slots[:2]]
    labels = [row[0] >= row[1] for row in read(firsts)]
    seconds = []
    for (ids, slots), math, consistency in zip(asked["steps"], labels[::2], labels[1::2]):
        prompt = ids[: slots[2]]
        prompt[slots[0]], prompt[slots[1]] = (good if math else bad), (good if consistency else bad)
        seconds.append(prompt)
    print(json.dumps({"rows": read(seconds), "computed": computed}), file=answers, flush=True)
    engine.reset_prefix_cache()
"""


class Outcome(NamedTuple):
    """Rewards of all steps if the way gives them, and the tokens that the model read."""

    rewards: list[float]
    tokens: int


Way = Callable[[Sequence[Solution]], Outcome]
Clock = Callable[[], float]
"""Seconds since some fixed time."""


@contextmanager
def offline(python: str, prompter: Prompter, settings: dict[str, int]) -> Iterator[Way]:
    """vLLM's engine in a process of its own, for the model in the folder ``prm``."""
    with subprocess.Popen(
        [python, "-c", OFFLINE, json.dumps(settings)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=os.environ | _ENVIRONMENT,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        into, lines = process.stdin, process.stdout
        ids = prompter.ids

        def ask(solutions: Sequence[Solution]) -> Outcome:
            queries = [query for solution in solutions for query in queries_of(solution)]
            steps = [(prompt.tolist(), slots) for prompt, slots in prompter.encode(queries)]
            print(json.dumps({"steps": steps, "tokens": (ids.good, ids.bad)}), file=into, flush=True)
            answer = json.loads(lines.readline())
            return Outcome([1 / (1 + math.exp(bad - good)) for good, bad in answer["rows"]], answer["computed"])

        ask(WARM)
        yield ask
        into.close()


@contextmanager
def on_cores(count: int) -> Iterator[Clock]:
    """Pin this process and its children to the last ``count`` cores that it may use; the clock that fits."""
    before = os.sched_getaffinity(0)
    assert len(before) >= count, f"this process may use {len(before)} cores, and {count} are needed"
    mine = sorted(before)[-count:]
    os.sched_setaffinity(0, mine)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VLLM_CPU_OMP_THREADS_BIND", ",".join(map(str, mine)))
        patch.setenv("OMP_NUM_THREADS", str(count))
        try:
            yield processor_seconds if count == 1 else time.perf_counter
        finally:
            os.sched_setaffinity(0, before)


def processor_seconds() -> float:
    """Processor seconds of this process and all its descendants."""
    tree = [psutil.Process(), *psutil.Process().children(recursive=True)]
    return float(sum(sum(process.cpu_times()[:2]) for process in tree))


def measured(way: Way, groups: Sequence[Sequence[Solution]], clock: Clock) -> tuple[Outcome, float]:
    """The outcome of all groups, one call for each, and the seconds."""
    start = clock()
    found = [way(group) for group in groups]
    took = clock() - start
    return Outcome([reward for one in found for reward in one.rewards], sum(one.tokens for one in found)), took


def rewards_of(found: Sequence[Sequence[StepScore]]) -> list[float]:
    return [score.reward for scores in found for score in scores]


def in_process(work: Callable[[Sequence[Solution]], list[float] | None], threads: int) -> Way:
    """A way that runs a model in this process on ``threads`` threads."""

    def way(solutions: Sequence[Solution]) -> Outcome:
        torch.set_num_threads(threads)
        with counted_tokens() as tokens:
            found = work(solutions)
        return Outcome(found or [], sum(tokens))

    return way


@torch.inference_mode()
def kept_prefix(model: Any, prompter: Prompter, queries: Sequence[Query]) -> list[float]:
    """Both passes with transformers' cache: every prompt continues the one before it where they first differ."""
    cache, known, rewards = DynamicCache(config=model.config), np.empty(0, dtype=np.int32), list[float]()

    def read(ids: Any, places: Sequence[int]) -> torch.Tensor:
        nonlocal known
        shared = min(shared_prefix(known, ids), places[0])
        cache.crop(shared - len(known))
        known = ids
        kept = torch.tensor([place - shared for place in places])
        logits = model(
            input_ids=torch.from_numpy(ids[None, shared:].astype(np.int64)), cache=cache, logits_to_keep=kept
        ).logits[0]
        return logits[:, [prompter.ids.good, prompter.ids.bad]]  # type: ignore[no-any-return]

    for ids, slots in prompter.encode(queries):
        first = read(prompter.prompt(ids, slots, (), (0, 1)), [slots[0] - 1, slots[1] - 1])
        labels = (first[:, 0] >= first[:, 1]).tolist()
        rewards.append(read(prompter.prompt(ids, slots, labels, (2,)), [slots[2] - 1])[0].softmax(-1)[0].item())
    return rewards


def best_settings(python: str, prompter: Prompter, solutions: Sequence[Solution], clock: Clock) -> dict[str, int]:
    """The engine's settings that take the fewest seconds, tried one after the other."""

    def took(settings: dict[str, int]) -> float:
        with offline(python, prompter, settings) as engine:
            found = min(measured(engine, [solutions], clock)[1] for _ in range(2))
        print(f"  engine {settings}: {found:.2f} s", flush=True)
        return found

    best, least = FIRST, took(FIRST)
    for name, values in TRIED.items():
        for value in values:
            if (now := took(best | {name: value})) < least:
                best, least = best | {name: value}, now
    return best


def peak() -> float:
    """Operations per second of the fastest of some matrix products on one core, in float32."""
    best = 0.0
    for rows, inner, columns in ((512, 1024, 1024), (2048, 1024, 4096), (1024, 4096, 1024)):
        left, right = torch.randn(rows, inner), torch.randn(inner, columns)
        best = max(best, 2 * rows * inner * columns / min(seconds(lambda: left @ right) for _ in range(8)))  # noqa: B023
    return best


def products(model: Any, tokens: int, reads: int) -> float:
    """Operations in the matrices: all layers for every token, but after the last keys and values only the readings."""
    shape = shape_of(model.config.to_dict(), "model")
    keys = 2 * shape.hidden * shape.key_width
    rest = shape.matrix_parameters - keys + shape.vocabulary * shape.hidden
    return 2.0 * (tokens * ((shape.layers - 1) * shape.matrix_parameters + keys) + reads * rest)


def ways_of(setting: Setting, engine: Way, gold: Sequence[int]) -> dict[str, Way]:
    """Every way by its name, on as many threads as there are cores, but trees on those that the scorer chooses."""
    model, tokenizer, prompter, folder = setting
    torch.set_num_threads(cores := len(os.sched_getaffinity(0)))
    scorer, first = Scorer(open_model(folder)), Scorer(open_model(folder), mode=Mode.FIRST)
    chosen = torch.get_num_threads()

    def queries(solutions: Sequence[Solution]) -> list[Query]:
        return [query for solution in solutions for query in queries_of(solution)]

    def stopped(solutions: Sequence[Solution]) -> list[Query]:
        return [query for s, end in zip(solutions, gold, strict=False) for query in queries_of(s)[: end + 1]]

    def stopped_trees(solutions: Sequence[Solution]) -> None:
        first.score(solutions, stop=stop_at(gold))

    published = partial(published_first, model, tokenizer, prompter)
    return {
        "published": in_process(lambda some: published_rewards(model, tokenizer, prompter, queries(some)), cores),
        "published, early stop": in_process(lambda some: published(stopped(some)), cores),
        "transformers' cache": in_process(lambda some: kept_prefix(model, prompter, queries(some)), cores),
        "trees": in_process(lambda some: rewards_of(scorer.score(some)), chosen),
        "trees, early stop": in_process(stopped_trees, chosen),
        "engine": engine,
    }


def compared(
    model: Any, ways: Mapping[str, Way], solutions: Sequence[Solution], runs: int, clock: Clock
) -> dict[str, list[float]]:
    """How many times as fast as the published way each way was in every run; early stops are compared with their like.

    Also how many times fewer tokens the trees have, and the share of it that their time attains.
    """
    alone: list[Sequence[Solution]] = [[solution] for solution in solutions]
    tasks = {name: (way, [solutions]) for name, way in ways.items()}
    tasks |= {f"{name}, one at a time": (ways[name], alone) for name in ("trees", "engine") if len(solutions) > 1}
    steps = sum(len(solution.steps) for solution in solutions)
    ratios: dict[str, list[float]] = {}
    for _ in range(runs):
        found = {name: measured(*task, clock) for name, task in tasks.items()}
        took = {name: seconds for name, (_, seconds) in found.items()}
        published, trees = (found[name][0] for name in ("published", "trees"))
        if clock is processor_seconds:
            took["floor"] = products(model, trees.tokens, 3 * steps) / peak()
        for name, (outcome, _) in found.items():
            assert not outcome.rewards or outcome.rewards == pytest.approx(trees.rewards, abs=2e-5), name
            print(f"    {name:24} {took[name]:7.2f} s, {steps / took[name]:6.2f} steps/s, {outcome.tokens} tokens")
        now = {name: took["published"] / seconds for name, seconds in took.items()}
        now["trees, early stop"] = took["published, early stop"] / took["trees, early stop"]
        now["fewer tokens in trees"] = published.tokens / trees.tokens
        now["attained share"] = now["trees"] / now["fewer tokens in trees"]
        now["trees, compared with the engine"] = now["trees"] / now["engine"]
        for name, ratio in now.items():
            ratios.setdefault(name, []).append(ratio)
    return ratios


@pytest.fixture(scope="module")
def chosen() -> dict[int, dict[str, int]]:
    """The engine's settings by the number of cores: the best for the smallest model, which the others keep."""
    return {}


@pytest.fixture(scope="module")
def rows() -> Iterator[dict[str, list[str]]]:
    """The rows of the table, a column for each size, written at the end."""
    found: dict[str, list[str]] = {}
    yield found
    write(DOCUMENT, "rematch", table(("times as fast as published", *SIZES), found))


@pytest.mark.parametrize("size", SIZES)
def test_rematch(
    size: str,
    vllm_python: str,
    mirror: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    chosen: dict[int, dict[str, int]],
    rows: dict[str, list[str]],
) -> None:
    count, runs = COUNTS[size]
    monkeypatch.chdir(tmp_path)
    setting = setting_of(Path("prm"), mirror, size)
    sets = {subset: rows_of(mirror, subset, count + 2, typical=True) for subset in SUBSETS}
    others = [solution_of(row) for mine in sets.values() for row in mine[count:]]
    for cores, written in ((1, WRITTEN), (2, WRITTEN_TWO)):
        columns: dict[str, list[str]] = {}
        print(f"\n{size}: {count} solutions of a set, {runs} runs, {cores} cores", flush=True)
        with on_cores(cores) as clock:
            if cores not in chosen:
                chosen[cores] = best_settings(vllm_python, setting[2], others[2 : 2 + count], clock)
            print(f"  engine, chosen: {chosen[cores]}", flush=True)
            with offline(vllm_python, setting[2], chosen[cores]) as engine:
                for subset, mine in sets.items():
                    for name, ratios in rematch(setting, engine, subset, mine[:count], runs, clock).items():
                        columns.setdefault(name, []).append(f"{statistics.median(ratios):.2f}")
        for name in written:
            rows.setdefault(name if cores == 1 else f"{name}, two cores", []).append(", ".join(columns[name]))


def rematch(
    setting: Setting, engine: Way, subset: str, rows: Sequence[Mapping[str, Any]], runs: int, clock: Clock
) -> dict[str, list[float]]:
    """The ratios of ``compared`` on the problems of one set, printed."""
    gold = [row["label"] if row["label"] >= 0 else len(row["steps"]) for row in rows]
    solutions = [solution_of(row) for row in rows]
    print(f"  {subset}: steps {[len(solution.steps) for solution in solutions]}", flush=True)
    ways = ways_of(setting, engine, gold)
    for way in ways.values():
        way(WARM)
    found = compared(setting[0], ways, solutions, runs, clock)
    for name, ratios in found.items():
        print(f"    {name:32} {statistics.median(ratios):.2f} [{min(ratios):.2f}, {max(ratios):.2f}] times")
    return found
