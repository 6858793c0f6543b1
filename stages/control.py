"""Run the search with a random pick in place of the PRM: the result that guidance by a PRM has to beat.

Reads   artifacts/raw/search, artifacts/raw/models/policy; params: search, report
Writes  artifacts/predictions/search/random.jsonl (the published script's rows),
        metrics/search/random.json (percent; docs/search.md)
Run     python -m stages.control
"""

from __future__ import annotations

from pathlib import Path

from pathfinder.core.io import write_json, write_jsonl
from pathfinder.core.params import load_params
from pathfinder.models.footprint import require
from pathfinder.policy.evaluate import POLICY, search_all
from pathfinder.policy.search import random_pick
from pathfinder.provenance.stage import stage

PREDICTIONS = Path("artifacts/predictions/search/random.jsonl")
METRICS = Path("metrics/search/random.json")


@stage
def main() -> None:
    """Run the stage."""
    params = load_params()
    require("sample", params, {"policy": POLICY})
    pick = random_pick(params.search.seed)
    rows, metrics = search_all("control", pick, {"run": "random"}, [POLICY], params, rejects=False)
    write_jsonl(PREDICTIONS, rows)
    write_json(METRICS, metrics)
    print(f"search random: prm@{params.search.n} {metrics['average']:.1f}")


if __name__ == "__main__":
    main()
