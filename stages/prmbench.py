"""Judge every step of PRMBench with one PRM.

    python -m stages.prmbench full

Reads ``artifacts/raw/prmbench`` and ``models/<run>``; writes ``artifacts/predictions/prmbench/<run>.jsonl``
(rows that the published evaluator reads) and ``metrics/prmbench/<run>.json`` (percent). Two rules are reported:
``pass1``, the published one (a step is sound when both first-pass probabilities reach the threshold), and ``both``,
the default (its reward does).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from pathfinder.benchmarks.prmbench import baselines, with_interval
from pathfinder.benchmarks.readers import PRMBenchItem, read_prmbench
from pathfinder.core.io import write_json, write_jsonl
from pathfinder.core.params import load_params
from pathfinder.core.progress import Progress
from pathfinder.core.runs import parse_run
from pathfinder.models.footprint import require
from pathfinder.prm.scorers import open_scorer
from pathfinder.prm.scoring import Solution, StepScore
from pathfinder.provenance.stage import stage

RAW = Path("artifacts/raw/prmbench")
PREDICTIONS = Path("artifacts/predictions/prmbench")
METRICS = Path("metrics/prmbench")
RULES = ("pass1", "both")


@stage
def main(run: Annotated[str, "VARIANT[-MIX][-sSEED], as in params.yaml"]) -> None:
    """Run the stage."""
    parse_run(run)
    params = load_params()
    require("prmbench", params, {"base": Path("models") / run})
    loaded = read_prmbench(RAW, params.prmbench.limit)
    items = loaded.items
    solutions = [Solution(item.idx, item.problem, item.steps) for item in items]
    with (
        open_scorer(Path("models") / run, params.score) as scorer,
        Progress(f"prmbench {run}", len(items), "solutions") as progress,
    ):
        scores = scorer.score(solutions, on_done=progress.advance)
    labels = {
        rule: {
            item.idx: [is_sound(step, rule, params.prmbench.threshold) for step in steps]
            for item, steps in zip(items, scores, strict=True)
        }
        for rule in RULES
    }
    rows = [
        _row(item, steps, labels["pass1"][item.idx], labels["both"][item.idx])
        for item, steps in zip(items, scores, strict=True)
    ]
    write_jsonl(PREDICTIONS / f"{run}.jsonl", rows)
    rules = {rule: with_interval(items, labels[rule], params.report) for rule in RULES}
    metrics = loaded.accounting() | rules["both"]
    metrics |= {"rules": rules, "baselines": baselines(items, params.report), "defects": loaded.defects}
    write_json(METRICS / f"{run}.json", metrics)
    print(f"prmbench {run}: PRMScore {rules['both']['overall']:.1f} (pass 1: {rules['pass1']['overall']:.1f})")


def is_sound(step: StepScore, rule: str, threshold: float) -> bool:
    """Whether the rule calls a step sound: its first-pass probabilities, or its reward, reach ``threshold``."""
    first = [p for p in (step.math, step.consistency, step.error_free) if p is not None]
    return all(p >= threshold for p in (first if rule == "pass1" and first else [step.reward]))


def _row(item: PRMBenchItem, steps: Sequence[StepScore], pass1: list[bool], both: list[bool]) -> dict[str, Any]:
    return {
        "idx": item.idx,
        "classification": item.classification,
        "scores": {"step_level_validity_labels": both, "step_level_validity_labels_pass1": pass1},
        "steps": [
            {"math": s.math, "consistency": s.consistency, "error_free": s.error_free, "reward": s.reward}
            for s in steps
        ],
    }


if __name__ == "__main__":
    main()
