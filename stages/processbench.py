"""Find the first wrong step of every ProcessBench solution with one PRM.

    python -m stages.processbench full

Reads ``artifacts/raw/processbench`` and ``models/<run>``; writes
``artifacts/predictions/processbench/<run>.jsonl`` and ``metrics/processbench/<run>.json`` (percent). Two rules
are reported: ``pass1``, the published one (a step is wrong when a first-pass label is), and ``both``, the default
(the paper's algorithm 1: its reward is under one half). ``thresholds`` says what other thresholds of the reward would
give. With ``processbench.early_stop`` a solution is scored up to the step at which both rules have found an error: the
same predictions from fewer tokens. Later steps then have no row, and ``early_stop``, with the number of steps and of
those scored, stands in the place of ``thresholds``, which need every step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

from pathfinder.benchmarks.processbench import NO_ERROR, baselines, by_generator, with_interval
from pathfinder.benchmarks.readers import ProcessBenchItem, read_processbench
from pathfinder.benchmarks.thresholds import sweep
from pathfinder.core.io import write_json, write_jsonl
from pathfinder.core.params import load_params
from pathfinder.core.progress import Progress
from pathfinder.core.runs import parse_run
from pathfinder.models.footprint import require
from pathfinder.prm.scorers import open_scorer
from pathfinder.prm.scoring import Solution, StepScore
from pathfinder.provenance.stage import stage

RAW = Path("artifacts/raw/processbench")
PREDICTIONS = Path("artifacts/predictions/processbench")
METRICS = Path("metrics/processbench")
RULES = ("pass1", "both")


@stage
def main(run: Annotated[str, "VARIANT[-MIX][-sSEED], as in params.yaml"]) -> None:
    """Run the stage."""
    parse_run(run)
    params = load_params()
    require("processbench", params, {"base": Path("models") / run})
    loaded = read_processbench(RAW, params.processbench.limit)
    items = loaded.items
    solutions = [Solution(item.id, item.problem, item.steps) for item in items]
    with (
        open_scorer(Path("models") / run, params.score) as scorer,
        Progress(f"processbench {run}", len(items), "solutions") as progress,
    ):
        if params.processbench.early_stop:
            scores = scorer.score_until(solutions, until_both(len(items)), progress.advance)
        else:
            scores = scorer.score(solutions, on_done=progress.advance)
    places = {rule: [first_error(steps, rule) for steps in scores] for rule in RULES}
    keys = [(item.subset, item.id) for item in items]
    rules = {
        rule: with_interval(items, dict(zip(keys, found, strict=True)), params.report) for rule, found in places.items()
    }
    rows = [
        _row(item, steps, first, both)
        for item, steps, first, both in zip(items, scores, places["pass1"], places["both"], strict=True)
    ]
    write_jsonl(PREDICTIONS / f"{run}.jsonl", rows)
    metrics = loaded.accounting() | rules["both"]
    metrics |= {"rules": rules, "baselines": baselines(items, params.report), "defects": loaded.defects}
    metrics["generators"] = by_generator(items, dict(zip(keys, places["both"], strict=True)))
    if params.processbench.early_stop:
        metrics["early_stop"] = {"steps": sum(len(i.steps) for i in items), "scored": sum(map(len, scores))}
    else:
        metrics["thresholds"] = sweep(items, [[step.reward for step in steps] for steps in scores]).summary()
    write_json(METRICS / f"{run}.json", metrics)
    both, pass1 = rules["both"]["mean_f1"], rules["pass1"]["mean_f1"]
    print(f"processbench {run}: mean F1 {both:.1f} (pass 1: {pass1:.1f})")


def first_error(steps: Sequence[StepScore], rule: str) -> int:
    """Place of the first step that the rule calls wrong, or -1."""
    wrong = [_is_wrong(step, rule) for step in steps]
    return wrong.index(True) if True in wrong else NO_ERROR


def until_both(count: int) -> Callable[[int, int, StepScore], bool]:
    """Where to stop each of ``count`` solutions: at the step with which every rule has called one wrong."""
    waiting = [set(RULES) for _ in range(count)]

    def stop(number: int, place: int, step: StepScore) -> bool:
        del place  # steps come in order
        waiting[number] -= {rule for rule in RULES if _is_wrong(step, rule)}
        return not waiting[number]

    return stop


def _is_wrong(step: StepScore, rule: str) -> bool:
    return step.has_error if rule == "pass1" else step.reward < 0.5


def _row(item: ProcessBenchItem, steps: Sequence[StepScore], pass1: int, both: int) -> dict[str, Any]:
    return {
        "subset": item.subset,
        "id": item.id,
        "prediction": both,
        "prediction_pass1": pass1,
        "label": item.label,
        "steps": [
            {"math": s.math, "consistency": s.consistency, "error_free": s.error_free, "reward": s.reward}
            for s in steps
        ],
    }


if __name__ == "__main__":
    main()
