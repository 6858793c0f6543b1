"""Evaluate a chat model on a benchmark, as a judge of complete solutions.

Reads   artifacts/raw/<benchmark>; the servers in critic.base_urls; params: critic
Writes  artifacts/predictions/<benchmark>/<critic>.jsonl, metrics/<benchmark>/<critic>.json (percent)
Run     python -m stages.critic critic-gpt-4o processbench

A profile lists its judges under ``critics``. Answers are kept in ``.pathfinder/critics``, so the same command resumes
after a kill, a server that was down (exit status 75) or a spent budget (69). See docs/judge.md.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from evidence.record.stage import stage
from pathfinder.benchmarks.bootstrap import INTERVALS
from pathfinder.core.params import load_params
from pathfinder.judge.critics import critic_named, criticise

RAW = Path("artifacts/raw")


@stage
def main(name: Annotated[str, "an LLM judge of docs/judge.md"], benchmark: Literal["processbench", "prmbench"]) -> None:
    """Run the stage."""
    critic = critic_named(name)
    profile = load_params()
    limit = {"processbench": profile.processbench.limit, "prmbench": profile.prmbench.limit}[benchmark]
    print(criticise(critic, benchmark, RAW / benchmark, profile.critic, INTERVALS, limit))


if __name__ == "__main__":
    main()
