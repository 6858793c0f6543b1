"""Hours, tokens and cost of a profile's stages, estimated from stated figures before anything runs.

Nothing here was measured on a GPU. An hour is work divided by a share of the peak in a card's data sheet. The amounts
of work come from the parameters, the constants below and the sizes of trees in ``trees.yaml``. ``pathfinder
plan --gpu`` prints the result with its basis, and docs/paper.md lists the sources.
"""

from __future__ import annotations

import random
from collections.abc import Collection
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from ground.settings import read_yaml
from pathfinder.benchmarks.paper import SIZES
from pathfinder.benchmarks.readers import CLASSES
from pathfinder.core.mixes import share_of
from pathfinder.core.params import Params, Vllm
from pathfinder.core.runs import parse_run
from pathfinder.models import launch
from pathfinder.models.architectures import Shape
from pathfinder.models.cards import Device
from pathfinder.models.needs import Shapes, weight_bytes
from pathfinder.planning.cards import card_of
from pathfinder.tree.packing import split, used_share

LEARN_SHARE, READ_SHARE, WRITE_SHARE = 0.35, 0.40, 0.50
"""Assumed shares of the peak: of the arithmetic in training and scoring, of the bandwidth in generation."""
START_H = 0.1
"""Assumed hours until a vLLM server is ready."""

NEGATIVE_STEPS, ATTEMPTS = 200_000, 1.2
"""PRM800K's steps rated -1, rounded, and assumed calls per step: answers that do not parse or disagree repeat."""
JUDGE_READS, JUDGE_WRITES = 900, 1500
"""Tokens per call of the judge: the published prompt with a solution, and an assumed length of its reasoning."""
PRM800K_RECORDS = 800_000
"""Rated completions of PRM800K that have labels, rounded; a profile takes all of them if build.prm800k_records is 0."""
BOTH_PASSES = {"processbench": 5.5e6, "prmbench": 7.2e6}
FIRST_PASS = {"processbench": 5.2e6, "prmbench": 6.2e6}
"""Tokens of a whole benchmark as trees."""
ROUNDS, STEP_TOKENS, MARK_TOKENS, SOLUTION_TOKENS = 10, 60, 30, 500
"""Assumed rounds of a search, tokens of a step, of its label prompts, and of a whole solution."""
CRITIC_READS, CRITIC_WRITES = 1500, 1000
"""Assumed tokens per answer of an LLM critic."""
_TREES = Path(__file__).with_name("trees.yaml")
_DRAWN = 4000
"""Trees: at least 40 optimiser steps of the profiles."""
ITEMS = {"processbench": sum(SIZES["processbench"].values()), "prmbench": sum(SIZES["prmbench"].values()) + 758}
"""Items of the whole benchmarks, with PRMBench's correct samples, which are scored and judged, too."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """One stage: hours for all its runs (None if an external server decides), and tokens of calls with their price."""

    stage: str
    hours: float | None
    tokens: float = 0.0
    price: float = 0.0
    basis: str = ""


def is_estimated(params: Params) -> bool:
    """True if the constants hold for the profile: its sources are the real ones."""
    return not any(source.kind == "shipped" for source in params.download.sources)


def estimates(params: Params, device: Device, shape_of: Shapes, stages: Collection[str]) -> list[Estimate]:
    """The estimates of the stages that take time, in order. Each uses all the cards that its settings allow."""
    found = [_label(params, device, shape_of)] if "label" in stages else []
    found += [_train(params, device, shape_of("base"))] if "train" in stages else []
    systems = {kind: count for kind, count in (("", len(params.runs)), ("baseline", len(params.baselines))) if count}
    for benchmark in ITEMS:
        for kind, count in systems.items():
            if (kind or benchmark) in stages:
                found.append(_scoring(params, device, shape_of("base"), benchmark, kind, count))
    found += _searches(params, device, shape_of, systems) if "sample" in stages else []
    return [*found, _critics(params)] if params.critics else found


def _label(params: Params, device: Device, shape_of: Shapes) -> Estimate:
    label = params.label
    human = min(label.prm800k_limit or NEGATIVE_STEPS, NEGATIVE_STEPS)
    calls = ATTEMPTS * (human + 2 * label.mistral_per_rating)
    calls = min(calls, label.max_calls or calls)
    tokens, basis = calls * (JUDGE_READS + JUDGE_WRITES), f"{calls:,.0f} calls"
    if label.engine != "vllm":
        return Estimate("label", None, tokens, label.price_per_million_tokens, basis)
    rate, rows = written_per_second(shape_of("judge"), label.vllm, device, JUDGE_READS + JUDGE_WRITES)
    hours = calls * JUDGE_WRITES / rate / 3600 if rate else None
    return Estimate("label", hours, tokens, 0.0, f"{basis}, {rows} at a time, {rate:,.0f} tokens/s")


def written_per_second(
    shape: Shape, settings: Vllm, device: Device, context: int, most: int = 10**9
) -> tuple[float, int]:
    """Tokens per second of all replicas, and the texts of ``context`` tokens that one replica holds at a time.

    Each step reads the weights and the caches of all texts once, or computes two operations per parameter and text.
    """
    card, cards = card_of(device), settings.tensor_parallel
    weights, cached = weight_bytes(settings) * shape.parameters, 2.0 * shape.keys_and_values * context
    room = settings.gpu_memory_utilization * device.total * cards - weights - cards * 2**30
    rows = int(min(settings.max_num_seqs, most, max(0.0, room) // cached))
    if not rows:
        return 0.0, 0
    reading = (weights + rows * cached) / (cards * WRITE_SHARE * 1e12 * card.tbps)
    computing = 2.0 * shape.parameters * rows / (cards * READ_SHARE * 1e12 * card.tflops)
    return settings.replicas * rows / max(reading, computing), rows


def records_of(params: Params, mix: str) -> int:
    """Records of a mix by the parameters, the held-out ones included."""
    build = params.build
    records = (build.prm800k_records or PRM800K_RECORDS) + round(share_of(params.mixes, mix) * build.mistral_records)
    return min(records, build.max_records or records)


def trees_of(params: Params, mix: str) -> Trees:
    """The trees of a mix by the parameters."""
    records, share = records_of(params, mix), share_of(params.mixes, mix)
    monte_carlo = round(share * params.build.mistral_records)
    apart = params.train.weighting == "device"
    return trees_of_mix(records - min(records, monte_carlo), min(records, monte_carlo), apart)


def _train(params: Params, device: Device, shape: Shape) -> Estimate:
    train = params.train
    processes, _ = launch.division(train.launch, device.cards)
    passes = 4 if train.lora.rank else 6  # operations per parameter and token: frozen weights have no gradients
    passes += 2 if train.gradient_checkpointing else 0
    tokens = spent = learnt = 0.0  # in all processes; the last two include waiting for the largest passes
    for run in map(parse_run, params.runs):
        trees = trees_of(params, run.mix)
        records = records_of(params, run.mix) * (1 - params.build.test_share)
        epochs = train.steps * train.batch_samples / 2 / records if train.steps else train.epochs
        epoch = records * trees.tokens_per_record
        tokens += epoch
        waited = epoch / busy_share(trees, train.batch_samples / 2, processes, train.token_budget)
        spent += waited
        learnt += waited * epochs
    work = passes * shape.parameters * learnt
    hours = work / (processes * LEARN_SHARE * 1e12 * card_of(device).tflops) / 3600
    used = f", {processes} processes {tokens / spent:.0%} busy" if processes > 1 else ""
    return Estimate("train", hours, basis=f"{len(params.runs)} runs, {tokens / 1e6:,.0f} M tokens per epoch{used}")


def _reading_hours(tokens: float, shape: Shape, device: Device, cards: int) -> float:
    return 2.0 * shape.parameters * tokens / (max(1, cards) * READ_SHARE * 1e12 * card_of(device).tflops) / 3600


def _items(params: Params, benchmark: str) -> int:
    """The items that the limits leave; a limit of PRMBench counts per class, and the correct samples are one."""
    if benchmark == "prmbench":
        return min(ITEMS[benchmark], params.prmbench.limit * (len(CLASSES) + 1) or ITEMS[benchmark])
    return sum(min(size, params.processbench.limit or size) for size in SIZES[benchmark].values())


def _scoring(params: Params, device: Device, shape: Shape, benchmark: str, kind: str, count: int) -> Estimate:
    """Our runs on PRMBench are scored twice: by our prompt, and in one pass by the published one."""
    tokens = BOTH_PASSES[benchmark] + (FIRST_PASS[benchmark] if benchmark == "prmbench" else 0.0)
    tokens = count * (FIRST_PASS[benchmark] if kind else tokens) * _items(params, benchmark) / ITEMS[benchmark]
    cards = params.score.processes or device.cards
    name = f"{kind} on {benchmark}" if kind else benchmark
    basis = f"{count} systems, {tokens / 1e6:,.0f} M tokens"
    return Estimate(name, _reading_hours(tokens, shape, device, cards), basis=basis)


def _searches(params: Params, device: Device, shape_of: Shapes, systems: dict[str, int]) -> list[Estimate]:
    search, sizes = params.search, [SIZES["search"][name] for name in params.search.sets]
    problems = sum(min(size, search.limit or size) for size in sizes)
    drawn = problems * min(ROUNDS, search.max_rounds) * search.n * STEP_TOKENS
    sampled = problems * search.n * SOLUTION_TOKENS
    rate, server = 0.0, 0
    if search.engine == "vllm":
        rows = search.batch_size * search.n
        rate, _ = written_per_second(shape_of("policy"), search.vllm, device, SOLUTION_TOKENS, rows)
        server = search.vllm.gpus
    cards = params.score.processes or (device.cards if search.shared_card else device.cards - server)

    def written(tokens: float) -> float | None:
        return tokens / rate / 3600 + START_H if rate else None

    stages = {"sample": sampled, "control": drawn}
    found = [Estimate(name, written(n), basis=f"{n / 1e6:,.1f} M tokens written") for name, n in stages.items()]
    for kind, count in systems.items():
        reads = drawn * (1 + MARK_TOKENS / STEP_TOKENS) + sampled * (1 + MARK_TOKENS / STEP_TOKENS)
        write = written(drawn)
        scoring = _reading_hours(reads, shape_of("base"), device, cards)
        hours = None if write is None else count * (write + scoring)
        basis = f"{count} systems, {drawn / 1e6:,.1f} M tokens written and {reads / 1e6:,.1f} M read by each"
        found.append(Estimate(f"{kind}_search" if kind else "search", hours, basis=basis))
    return found


def _critics(params: Params) -> Estimate:
    from pathfinder.judge.critics import CRITICS  # loads torch

    asked, votes = [critic.votes for critic in CRITICS if critic.name in params.critics], params.critic.votes
    calls = _items(params, "processbench") * sum(votes or usual for usual in asked)
    calls += _items(params, "prmbench") * (votes or 1) * len(asked)
    tokens = calls * (CRITIC_READS + CRITIC_WRITES)
    return Estimate("critic", None, tokens, params.critic.price_per_million_tokens, f"{calls:,} calls")


@dataclass(frozen=True, slots=True)
class Trees:
    """Trees by size, each as records, tokens and its weight among the trees of a training set."""

    sizes: tuple[tuple[float, int, float], ...]

    @property
    def tokens_per_record(self) -> float:
        """The mean number of tokens per record in trees of whole solutions."""
        tokens = sum(tokens * weight for _, tokens, weight in self.sizes)
        return tokens / sum(records * weight for records, _, weight in self.sizes)


@cache
def trees_of_mix(human: int, monte_carlo: int, apart: bool = False) -> Trees:
    """The trees of a mix with these numbers of records; with ``apart``, each published sample is a tree."""
    groups, sizes = read_yaml(_TREES), list[tuple[float, int, float]]()
    names = ("human_samples", "monte_carlo_samples") if apart else ("human", "monte_carlo")
    for kind, total in zip(names, (human, monte_carlo), strict=True):
        each = sum(records for records, _ in groups[kind])
        sizes += [(records, tokens, total / each) for records, tokens in groups[kind]]
    return Trees(tuple(sizes))


@cache
def busy_share(trees: Trees, batch_records: float, processes: int, token_budget: int) -> float:
    """The share of the processes' time in which they compute trees and do not wait, over seeded optimiser steps."""
    drawn = random.Random(0).choices(trees.sizes, [weight for *_, weight in trees.sizes], k=_DRAWN)
    steps = split({place: records for place, (records, *_) in enumerate(drawn)}, batch_records)
    busy = spent = 0.0
    for step in steps[:-1] or steps:  # the last one is not full
        tokens = [drawn[place][1] for place in step]
        busy += sum(tokens)
        spent += sum(tokens) / used_share(tokens, processes, token_budget)
    return busy / spent
