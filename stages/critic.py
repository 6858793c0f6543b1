"""Put a chat model through a benchmark as a judge of whole solutions.

    python -m stages.critic critic-gpt-4o processbench

Reads ``artifacts/raw/<benchmark>`` and asks the servers at ``critic.base_urls``; writes
``artifacts/predictions/<benchmark>/<critic>.jsonl`` and ``metrics/<benchmark>/<critic>.json`` (percent). A profile
lists the judges under ``critics``. Answers are kept in ``.pathfinder/critics``: the same command after a kill,
an absent server (exit status 75) or a spent budget (69) goes on from there. docs/critics.md tells the whole.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pathfinder.core.params import load_params
from pathfinder.engines.metering import Budget
from pathfinder.judge.critics import Endpoint, critic, criticise, headline
from pathfinder.provenance.stage import stage

RAW = Path("artifacts/raw")


@stage
def main(
    name: Annotated[str, "an LLM judge of docs/critics.md"], benchmark: Literal["processbench", "prmbench"]
) -> None:
    """Run the stage."""
    one = critic(name)
    profile = load_params()
    params = profile.critic
    limit = {"processbench": profile.processbench.limit, "prmbench": profile.prmbench.limit}[benchmark]
    endpoint = Endpoint(tuple(params.base_urls), params.concurrency, params.timeout_s, params.retries)
    budget = Budget(params.max_calls, params.max_tokens_total, params.max_hours, params.price_per_million_tokens)
    metrics = criticise(
        one, benchmark, RAW / benchmark, endpoint, profile.report, params.votes, params.preset, limit, budget
    )
    print(headline(one, benchmark, metrics))


if __name__ == "__main__":
    main()
