"""Run the search with random picks instead of a PRM; guidance by a PRM must beat this result.

Reads   artifacts/raw/search, artifacts/raw/models/policy; params: search, score.processes
Writes  artifacts/predictions/search/random.jsonl (the published script's rows),
        metrics/search/random.json (percent; docs/search.md)
Run     python -m stages.control
"""

from __future__ import annotations

from contextlib import nullcontext
from functools import partial
from pathlib import Path

from evidence.record.stage import stage
from ground.io import remove, write_jsonl
from pathfinder.core.metrics import write_metrics
from pathfinder.core.params import load_params
from pathfinder.engines.workers import STATE, Workers
from pathfinder.models.footprint import require
from pathfinder.policy.evaluate import open_search, read_problems, search_all
from pathfinder.policy.policy import POLICY, policy_cards, policy_servers
from pathfinder.policy.search import RandomPick

PREDICTIONS = Path("artifacts/predictions/search/random.jsonl")
METRICS = Path("metrics/search/random.json")


@stage
def main() -> None:
    """Run the stage."""
    params = load_params()
    each, check = policy_cards(params.search), partial(require, "control", params, {"policy": POLICY})
    with policy_servers(params.search, params.score.processes if each else 1, each, check) as (urls, count):
        pick = partial(nullcontext, RandomPick(params.search.seed))
        job = partial(open_search, params, pick, urls, rejects=False)
        with Workers(job, count, each) as workers:
            rows, metrics = search_all("control", read_problems(params), workers, {"run": "random"}, [POLICY], params)
    write_jsonl(PREDICTIONS, rows)
    write_metrics(METRICS, metrics)
    remove(STATE / "control")
    print(f"search random: prm@{params.search.n} {metrics.average:.1f}")


if __name__ == "__main__":
    main()
