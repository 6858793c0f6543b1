"""Judge every step of PRMBench with one of our PRMs.

Reads   artifacts/raw/prmbench, models/<run>
Writes  artifacts/predictions/prmbench/<run>.jsonl, metrics/prmbench/<run>.json (percent)
Run     python -m stages.prmbench full

Two decision rules are reported. ``both``, the default: a step is correct if its reward reaches ``prmbench.threshold``.
``pass1``, the published code's rule: a step is correct if all its first-pass probabilities reach the threshold.
The published evaluator reads the predictions.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pathfinder.benchmarks.evaluation import PRMBenchEvaluation
from pathfinder.benchmarks.readers import read_prmbench
from pathfinder.core.params import load_params
from pathfinder.core.steps import Solution, StepScore
from pathfinder.prm.run_scores import run_scores
from pathfinder.provenance.stage import stage

RAW = Path("artifacts/raw/prmbench")
RULES = ("both", "pass1")


@stage
def main(run: Annotated[str, "VARIANT[-MIX][-sSEED], as in params.yaml"]) -> None:
    """Run the stage."""
    params = load_params()
    evaluation = PRMBenchEvaluation(read_prmbench(RAW, params.prmbench.limit))
    solutions = [Solution(item.id, item.problem, item.steps) for item in evaluation.items]
    scores = run_scores("prmbench", run, solutions, params)
    threshold = params.prmbench.threshold
    answers = {
        rule: evaluation.answers([is_correct(step, rule, threshold) for step in steps] for steps in scores)
        for rule in RULES
    }
    rows = evaluation.rows(answers, [{"steps": [step.row() for step in steps]} for steps in scores])
    metrics = evaluation.metrics(answers, params.report)
    evaluation.write(run, rows, metrics)
    print(evaluation.headline(run, metrics))


def is_correct(step: StepScore, rule: str, threshold: float) -> bool:
    """Whether the decision rule calls the step correct; without first-pass labels the reward decides in both."""
    probabilities = step.first.values() if rule == "pass1" and step.first else (step.reward,)
    return all(p >= threshold for p in probabilities)


if __name__ == "__main__":
    main()
