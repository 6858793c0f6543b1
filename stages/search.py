"""Run reward-guided search (prm@n) and best of n with one PRM.

Reads   artifacts/raw/search, artifacts/raw/models/policy, artifacts/predictions/sample.jsonl and models/<run> or, for
        a published PRM (docs/benchmarks.md), artifacts/raw/models/<system>; params: score, search
Writes  artifacts/predictions/search/<run>.jsonl (the published script's rows),
        artifacts/predictions/best_of_n/<run>.jsonl, metrics/search/<run>.json (percent; docs/search.md)
Run     python -m stages.search full

The search and best of n read the quality of a step, which is its reward; the metrics also have best of n by soundness.
``search.preset: official`` searches and grades as published.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Any

from evidence.record.stage import stage
from ground.io import read_jsonl, remove, sha256_file, write_jsonl
from pathfinder.baselines.opening import open_prm
from pathfinder.baselines.registry import SYSTEMS
from pathfinder.benchmarks.bootstrap import INTERVALS
from pathfinder.core.metrics import write_metrics
from pathfinder.core.params import Params, load_params
from pathfinder.core.readings import OWN, reading_for, readings_of
from pathfinder.engines.workers import STATE, Workers, chunk_folder
from pathfinder.models.folders import open_model
from pathfinder.models.footprint import require
from pathfinder.policy.best_of_n import best_of_n
from pathfinder.policy.choosing import READING
from pathfinder.policy.evaluate import BEST_OF_N, open_search, read_problems, score_all, search_all, search_preset
from pathfinder.policy.metrics import BestOfN
from pathfinder.policy.policy import POLICY, deciding, policy_servers
from pathfinder.prm.evaluate import decisive
from pathfinder.prm.opening import FETCHED, cards_needed, model_of, titles_of
from pathfinder.prm.steps import preset_of

SAMPLES = Path("artifacts/predictions/sample.jsonl")
PREDICTIONS = Path("artifacts/predictions/search")
CHOSEN = Path("artifacts/predictions/best_of_n")
METRICS = Path("metrics/search")


@stage
def main(run: Annotated[str, "VARIANT[-MIX][-sSEED], or a published PRM of docs/benchmarks.md"]) -> None:
    """Run the stage."""
    system = SYSTEMS.get(run)
    folder = FETCHED / run if system else model_of(run)
    params = load_params()
    search_preset(params)  # fails early: loading the models takes minutes
    prompt = preset_of("search", params.search.preset)
    identity, models = {"run": run, "score": decisive(params.score)}, [POLICY, folder]
    is_served = system is None and params.score.engine == "vllm"
    processes, each = (1, cards_needed(params.score)) if is_served else (params.score.processes, 1)
    guide = partial(open_prm, folder, params.score, run if system else None, preset=prompt)
    check = partial(require, "baseline_search" if system else "search", params, {"policy": POLICY, "base": folder})
    with (
        policy_servers(params.search, processes, each, check) as (urls, count),
        Workers(partial(open_search, params, guide, urls, rejects=system is None), count, each) as workers,
    ):
        figures = _best_of_n(run, workers, deciding(params.search) | identity, models, params)
        rows, metrics = search_all(f"search/{run}", read_problems(params), workers, identity, models, params)
    if system:
        others: dict[str, Any] = {"system": run, "titles": list(system.titles), "reading": OWN}
    else:
        others = titles_of(run) | {"reading": reading_for(READING, readings_of(open_model(folder).variant))}
    metrics = metrics.model_copy(update={"best_of_n": figures} | others)
    write_jsonl(PREDICTIONS / f"{run}.jsonl", rows)
    write_metrics(METRICS / f"{run}.json", metrics)
    for kept in ("search", BEST_OF_N):
        remove(STATE / kept / run)
    averages = {f"prm@{params.search.n}": metrics.average} | figures.average
    print(f"search {run}: " + ", ".join(f"{name} {value:.1f}" for name, value in averages.items()))


def _best_of_n(run: str, workers: Workers, identity: dict[str, Any], models: list[Path], params: Params) -> BestOfN:
    """Score the sample stage's solutions in chunks, choose among them, write the choices and return the figures."""
    samples = [row for _, row in read_jsonl(SAMPLES)]
    folder = chunk_folder(f"{BEST_OF_N}/{run}", identity | {"samples": sha256_file(SAMPLES)}, models)
    scored = score_all(samples, workers, folder, params.search.batch_size, f"best of n {run}")
    rows, figures = best_of_n(samples, scored, INTERVALS)
    write_jsonl(CHOSEN / f"{run}.jsonl", rows)
    return figures


if __name__ == "__main__":
    main()
