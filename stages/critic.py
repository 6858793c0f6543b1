"""Put a chat model through a benchmark as a judge of whole solutions.

    python -m stages.critic critic-gpt-4o processbench

Reads ``artifacts/raw/<benchmark>`` and asks the servers at ``critic.base_urls``; writes
``artifacts/predictions/<benchmark>/<critic>.jsonl`` and ``metrics/<benchmark>/<critic>.json`` (percent). A profile
lists the judges under ``critics``. Answers are kept in ``.pathfinder/critics``: the same command after a kill,
an absent server (exit status 75) or a spent budget (69) goes on from there. docs/critics.md tells the whole.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from stages.core.critics import BENCHMARKS, Endpoint, critic, criticise, headline
from stages.core.io import transient_status
from stages.core.metering import Budget, budget_status
from stages.core.params import load_params
from stages.lineage.record import recorded

RAW = Path("artifacts/raw")


def main(argv: Sequence[str] | None = None) -> None:
    """Run the stage."""
    parser = argparse.ArgumentParser(prog="python -m stages.critic", description=__doc__.splitlines()[0])
    parser.add_argument("critic")
    parser.add_argument("benchmark", choices=BENCHMARKS)
    asked = parser.parse_args(argv)
    one = critic(asked.critic)
    benchmark = next(name for name in BENCHMARKS if name == asked.benchmark)
    profile = load_params()
    params = profile.critic
    limit = {"processbench": profile.processbench.limit, "prmbench": profile.prmbench.limit}[benchmark]
    endpoint = Endpoint(tuple(params.base_urls), params.concurrency, params.timeout_s, params.retries)
    budget = Budget(params.max_calls, params.max_tokens_total, params.max_hours, params.price_per_million_tokens)
    with transient_status(), budget_status(), recorded("critic", f"{one.name} {benchmark}"):
        metrics = criticise(
            one, benchmark, RAW / benchmark, endpoint, profile.report, params.votes, params.preset, limit, budget
        )
        print(headline(one, benchmark, metrics))


if __name__ == "__main__":
    main()
