"""Put a published PRM through a benchmark.

    python -m stages.baseline math-shepherd processbench

Reads ``artifacts/raw/<benchmark>`` and the system's model folder ``artifacts/raw/models/<system>``; writes
``artifacts/predictions/<benchmark>/<system>.jsonl`` and ``metrics/<benchmark>/<system>.json`` (percent). A profile
lists the systems to measure under ``baselines``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pathfinder.baselines.evaluate import evaluate, headline
from pathfinder.baselines.registry import system
from pathfinder.core.params import load_params
from pathfinder.provenance.stage import stage

RAW = Path("artifacts/raw")


@stage
def main(
    name: Annotated[str, "a published PRM of docs/baselines.md"], benchmark: Literal["processbench", "prmbench"]
) -> None:
    """Run the stage."""
    one = system(name)
    params = load_params()
    limit = {"processbench": params.processbench.limit, "prmbench": params.prmbench.limit}[benchmark]
    model = RAW / "models" / one.name
    metrics = evaluate(one, model, benchmark, RAW / benchmark, params.score, params.report, limit)
    print(headline(one, benchmark, metrics))


if __name__ == "__main__":
    main()
