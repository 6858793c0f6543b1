"""Put a published PRM through a benchmark.

    python -m stages.baseline math-shepherd processbench

Reads ``artifacts/raw/<benchmark>`` and the system's model folder ``artifacts/raw/models/<system>``; writes
``artifacts/predictions/<benchmark>/<system>.jsonl`` and ``metrics/<benchmark>/<system>.json`` (percent). A profile
lists the systems to measure under ``baselines``.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from stages.core.baselines.evaluate import HEADLINES, evaluate, headline
from stages.core.baselines.registry import system
from stages.core.params import load_params
from stages.lineage.record import recorded

RAW = Path("artifacts/raw")


def main(argv: Sequence[str] | None = None) -> None:
    """Run the stage."""
    parser = argparse.ArgumentParser(prog="python -m stages.baseline", description=__doc__.splitlines()[0])
    parser.add_argument("system")
    parser.add_argument("benchmark", choices=tuple(HEADLINES))
    asked = parser.parse_args(argv)
    one = system(asked.system)
    benchmark = next(name for name in HEADLINES if name == asked.benchmark)
    params = load_params()
    limit = {"processbench": params.processbench.limit, "prmbench": params.prmbench.limit}[benchmark]
    with recorded("baseline", f"{one.name} {benchmark}"):
        model = RAW / "models" / one.name
        metrics = evaluate(one, model, benchmark, RAW / benchmark, params.score, params.report, limit)
        print(headline(one, benchmark, metrics))


if __name__ == "__main__":
    main()
