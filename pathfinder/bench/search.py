"""The part "search" of ``pathfinder bench``: a policy solves problems with a PRM's guidance, and without.

A row "prm@8" is the accuracy of reward-guided search with 8 candidates per round. The remaining rows come from 8 whole
solutions per problem: the policy's own pass@1, maj@8 and pass@8, and the PRM's choice by the rules of ``choosing``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from ground.io import DataError, digest_of
from pathfinder.baselines.named import Named
from pathfinder.baselines.opening import open_prm
from pathfinder.bench.rows import Paper, Row, search_rows
from pathfinder.benchmarks.bootstrap import INTERVALS
from pathfinder.benchmarks.grading import GradingPreset
from pathfinder.benchmarks.paper import differs as differs_from_paper
from pathfinder.benchmarks.readers import Loaded, SearchProblem, read_problems, read_search, search_sets
from pathfinder.core.hub import read_hub_model
from pathfinder.core.params import Params, Score, Search
from pathfinder.engines.workers import Workers, chunk_folder
from pathfinder.models.folders import digests_of
from pathfinder.policy.best_of_n import best_of_n
from pathfinder.policy.choosing import RULES
from pathfinder.policy.evaluate import identity_of, open_search, score_all, search_all
from pathfinder.policy.policy import POLICY, deciding, policy_cards, policy_servers
from pathfinder.policy.samples import draw_all, figures, grade_all, open_sampling
from pathfinder.prm.opening import cards_needed
from pathfinder.prm.steps import preset_of
from pathfinder.sources.named_models import model_folder

POLICY_OF_PAPER = "Qwen/Qwen2.5-7B-Instruct"
SETTINGS: dict[str, Any] = {
    "engine": "transformers",
    "base_url": "",
    "shared_card": False,
    "sets": [],
    "strategy": "greedy",
    "width": 1,
    "temperature": 0.7,
    "top_p": 0.95,
    "max_tokens": 512,
    "max_rounds": 30,
    "solution_tokens": 2048,
    "limit": 0,
    "batch_size": 64,
    "seed": 42,
}
"""The section ``search`` of the profile ``paper``, but with a policy in this process."""


@dataclass(frozen=True, slots=True)
class SearchOptions:
    """Options of the search: the policy, its server, the problems, candidates per round, and the rules."""

    policy: str | None = None
    url: str | None = None
    problems: Path | None = None
    n: int = 8
    rules: GradingPreset = "repaired"

    def read(self, data: Path, limit: int) -> Task:
        """The problems, by default the sets in ``data``, and the policy.

        Raises ``DataError`` if they do not exist or the server offers a different policy, ``TransientError`` if the
        server does not answer.
        """
        return self, _problems(data, limit, self.problems), policy_of(self)


@dataclass(frozen=True, slots=True)
class _Policy:
    """The policy's folder (the whole project if a server has the policy), identity and repository, if any."""

    folder: Path
    identity: str
    repository: str | None


Task = tuple[SearchOptions, Loaded[SearchProblem], _Policy]
"""Problems and the policy that solves them."""


def bench_search(model: Named, scoring: Score, task: Task, kept: str, subsets: bool) -> Iterator[Row]:
    """The rows of the search; finished chunks of work are kept below ``kept``, as in ``chunk_folder``."""
    options, loaded, policy = task
    settings = settings_of(options)
    sections: dict[str, Any] = {"search": settings, "score": scoring}
    params = Params.model_construct(**sections)
    identity = {"run": "with the PRM", "policy": policy.identity}
    drawing = deciding(settings) | {"policy": policy.identity, "problems": identity_of(loaded.items)}
    each = policy_cards(settings)
    with (
        policy_servers(settings, 0 if each else 1, each, lambda: None) as (urls, count),
        Workers(partial(open_sampling, settings, urls, policy.folder), count, each) as workers,
    ):
        folder = chunk_folder(f"{kept}/sample", drawing, [])
        drawn = draw_all(loaded.items, workers, folder, settings.batch_size, "search: whole solutions")
    samples, _ = grade_all(loaded.items, drawn, options.rules)
    guide = partial(open_prm, model.model.folder, scoring, model.system, preset=preset_of("search", settings.preset))
    cards = cards_needed(scoring)
    search_job = partial(open_search, params, guide, rejects=model.system is None, folder=policy.folder)
    with (
        policy_servers(settings, 0 if cards else 1, cards, lambda: None) as (urls, count),
        Workers(partial(search_job, urls=urls), count, cards) as workers,
    ):
        content = deciding(settings) | identity | {"samples": digest_of(samples)}
        folder = chunk_folder(f"{kept}/best_of_n", content, [])
        scored = score_all(samples, workers, folder, settings.batch_size, "search: best of n")
        rows, _ = search_all(f"{kept}/search", loaded, workers, identity, [], params)
    yield from _rows(model, options, policy, rows, best_of_n(samples, scored, INTERVALS)[0], samples, subsets)


def _rows(
    model: Named,
    options: SearchOptions,
    policy: _Policy,
    rows: list[dict[str, Any]],
    best: list[dict[str, Any]],
    samples: list[dict[str, Any]],
    subsets: bool,
) -> Iterator[Row]:
    differs = "" if options.n == 8 else "the paper draws 8 candidates"
    if policy.repository != POLICY_OF_PAPER:
        differs = f"the paper's policy is {POLICY_OF_PAPER}"
    sets, rule = [row["set"] for row in rows], f"prm@{options.n} {options.rules}"
    paper = Paper(model.titles, f"prm@{options.n} official", differs or differs_from_paper("search", model.titles))
    yield from search_rows(rule, sets, [float(row["correct"]) for row in rows], paper, subsets)
    for name, values in figures(samples, options.n).items():
        title = name.replace("maj@", "major@")
        theirs = Paper((title,), name, differs or differs_from_paper("search", [title]))
        yield from search_rows(name, sets, values, theirs, subsets)
    for name, (way, score) in RULES.items():
        right = [float(row["right"][name]) for row in best]
        yield from search_rows(f"{way} {options.n}: {score}", sets, right, Paper(), subsets)


def settings_of(options: SearchOptions) -> Search:
    """The settings of the policy's calls and of the search."""
    chosen = {"n": options.n, "preset": "official" if options.rules == "official" else "default"}
    server = {"engine": "openai", "base_url": options.url} if options.url else {}
    return Search.model_construct(**SETTINGS | chosen | server)


def _problems(data: Path, limit: int, given: Path | None) -> Loaded[SearchProblem]:
    if given is not None and not given.is_dir():
        return read_problems(given, limit)
    folder = given or data
    sets = search_sets(folder)
    if not sets:
        raise DataError(f"{folder}: none of the six search sets; name another folder, or a file, with --problems")
    return read_search(folder, sets, limit)


def policy_of(options: SearchOptions) -> _Policy:
    """The policy; raises as ``SearchOptions.read`` does."""
    if options.url:
        from pathfinder.engines.openai_client import connect  # a policy in this process needs no client

        name = connect([options.url], 1, timeout_s=60.0, retries=2, wanted=options.policy).model
        return _Policy(Path(), f"{name} at {options.url}", name)
    if options.policy is None and not POLICY.is_dir():
        raise DataError(
            f"{POLICY}: no such folder; name the model that solves the problems, as in --policy {POLICY_OF_PAPER}"
        )
    folder = POLICY if options.policy is None else model_folder(options.policy)
    pointer = read_hub_model(folder)
    return _Policy(folder, digest_of(digests_of(folder)), pointer.repo if pointer else None)
