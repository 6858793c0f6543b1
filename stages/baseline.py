"""Evaluate a published PRM on a benchmark.

Reads   artifacts/raw/<benchmark>, artifacts/raw/models/<system>
Writes  artifacts/predictions/<benchmark>/<system>.jsonl, metrics/<benchmark>/<system>.json (percent)
Run     python -m stages.baseline math-shepherd processbench

A profile lists the systems to evaluate under ``baselines``. The authors' checkpoint ``pathfinder-prm-7b`` is evaluated
like the runs (``stages.processbench``, ``stages.prmbench``).
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from evidence.record.stage import stage
from pathfinder.baselines.evaluate import evaluate
from pathfinder.baselines.registry import system as system_named
from pathfinder.benchmarks.evaluation import BenchmarkName
from pathfinder.core.params import load_params
from pathfinder.prm.evaluate import evaluate_prmbench, evaluate_processbench
from pathfinder.prm.opening import CHECKPOINTS

RAW = Path("artifacts/raw")


@stage
def main(system: Annotated[str, "a published PRM of docs/benchmarks.md"], benchmark: BenchmarkName) -> None:
    """Run the stage."""
    params = load_params()
    if system in CHECKPOINTS:
        ours = {"processbench": evaluate_processbench, "prmbench": evaluate_prmbench}
        print(ours[benchmark](system, params))
        return
    published = system_named(system)
    limit = {"processbench": params.processbench.limit, "prmbench": params.prmbench.limit}[benchmark]
    model = RAW / "models" / published.name
    print(evaluate(published, model, benchmark, RAW / benchmark, params, limit))


if __name__ == "__main__":
    main()
