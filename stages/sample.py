"""Sample whole solutions from the policy, without a PRM: pass@1, maj@n and pass@n, which the search must beat.

Reads   artifacts/raw/search, artifacts/raw/models/policy; params: search, score.processes
Writes  artifacts/predictions/sample.jsonl, metrics/sample.json (percent; docs/search.md)
Run     python -m stages.sample

Temperature, top-p and grading are the search's, so that the results are comparable.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

from evidence.record.stage import stage
from ground.io import remove, write_jsonl
from pathfinder.benchmarks.accuracy import metrics
from pathfinder.benchmarks.bootstrap import INTERVALS
from pathfinder.core.metrics import write_metrics
from pathfinder.core.params import load_params
from pathfinder.engines.workers import STATE, Workers, chunk_folder
from pathfinder.models.footprint import require
from pathfinder.policy.evaluate import identity_of, read_problems, search_preset
from pathfinder.policy.metrics import Details, Sample
from pathfinder.policy.policy import POLICY, deciding, policy_cards, policy_servers
from pathfinder.policy.samples import draw_all, figures, grade_all, open_sampling

PREDICTIONS = Path("artifacts/predictions/sample.jsonl")
METRICS = Path("metrics/sample.json")


@stage
def main() -> None:
    """Run the stage."""
    params = load_params()
    settings, preset = params.search, search_preset(params)
    loaded = read_problems(params)
    content = deciding(settings) | {"problems": identity_of(loaded.items)}
    folder = chunk_folder("sample", content, [POLICY])
    each, check = policy_cards(settings), partial(require, "sample", params, {"policy": POLICY})
    with (
        policy_servers(settings, params.score.processes if each else 1, each, check) as (urls, count),
        Workers(partial(open_sampling, settings, urls), count, each) as workers,
    ):
        drawn = draw_all(loaded.items, workers, folder, settings.batch_size, "sample")
    rows, failures = grade_all(loaded.items, drawn, preset)
    table = metrics([row["set"] for row in rows], figures(rows, settings.n), INTERVALS)
    details = Details(
        defects=loaded.defects,
        grading_failures=dict(failures),
        not_graded=failures.total(),
        samples=settings.n * len(rows),
        samples_without_answer=sum(answer is None for row in rows for answer in row["answers"]),
        samples_cut=sum(finish == "length" for row in rows for finish in row["finish"]),
        samples_too_long=sum(finish == "too_long" for row in rows for finish in row["finish"]),
    )
    found = Sample(**loaded.accounting(), **table, details=details)
    write_jsonl(PREDICTIONS, rows)
    write_metrics(METRICS, found)
    remove(STATE / "sample")
    print("sample: " + ", ".join(f"{name} {value:.1f}" for name, value in found.average.items()))


if __name__ == "__main__":
    main()
