"""Find the first incorrect step of every ProcessBench solution with one of our PRMs.

Reads   artifacts/raw/processbench, models/<run>
Writes  artifacts/predictions/processbench/<run>.jsonl, metrics/processbench/<run>.json (percent)
Run     python -m stages.processbench full

Two decision rules are reported, from the same forward pass. ``both`` is the paper's algorithm 1: a step is incorrect if
its reward is below 0.5. ``pass1`` is the published code's rule: a step is incorrect if a first-pass label is negative.
``processbench.preset`` selects the main rule: ``both`` for default, ``pass1`` for official. With official, the stage
stops with an error where the published runner does: at a step whose likeliest token is neither label. Either way,
``official`` in the metrics holds rule ``pass1`` in the published evaluator's arithmetic.

``thresholds`` in the metrics shows what other thresholds of the reward would give. With ``processbench.early_stop``,
scoring of a solution ends at the step where both rules have found an error. The predictions are the same, but later
steps have no scores, so the metrics hold ``early_stop`` (steps in all, steps scored) instead of ``thresholds``.

A solution that is longer than the model's context has no prediction: it counts as a miss, and in ``too_long``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pathfinder.benchmarks.evaluation import ProcessBenchEvaluation
from pathfinder.benchmarks.readers import read_processbench
from pathfinder.benchmarks.thresholds import sweep
from pathfinder.core.params import load_params
from pathfinder.core.steps import Solution
from pathfinder.prm.readings import preset_of
from pathfinder.prm.rules import RULES, is_correct, until_both
from pathfinder.prm.run_scores import forget, run_scores
from pathfinder.provenance.stage import stage

RAW = Path("artifacts/raw/processbench")


@stage
def main(run: Annotated[str, "VARIANT[-MIX][-sSEED], as in params.yaml"]) -> None:
    """Run the stage."""
    params = load_params()
    evaluation = ProcessBenchEvaluation(read_processbench(RAW, params.processbench.limit))
    solutions = [Solution(item.id, item.problem, item.steps) for item in evaluation.items]
    stop_of = until_both if params.processbench.early_stop else None
    preset = params.processbench.preset
    scores = run_scores("processbench", run, solutions, params, stop_of, preset_of("processbench", preset))
    rules = RULES if preset == "default" else RULES[::-1]
    answers = {
        rule: evaluation.answers([is_correct(step, rule) for step in steps] or None for steps in scores)
        for rule in rules
    }
    rows = evaluation.rows(answers, [{"steps": [step.row() for step in steps]} for steps in scores])
    metrics = evaluation.metrics(answers, params.report) | {"official": evaluation.official(answers["pass1"])}
    metrics["preset"] = params.processbench.preset
    metrics["too_long"] = scores.count([])
    if params.processbench.early_stop:
        metrics["early_stop"] = {
            "steps": sum(len(solution.steps) for solution in solutions),
            "scored": sum(map(len, scores)),
        }
    else:
        rewards = [[step.reward for step in steps] or None for steps in scores]
        metrics["thresholds"] = sweep(evaluation.items, rewards).summary()
    evaluation.write(run, rows, metrics)
    forget("processbench", run)
    print(evaluation.headline(run, metrics))


if __name__ == "__main__":
    main()
