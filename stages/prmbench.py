"""Judge every step of PRMBench with one of our PRMs.

Reads   artifacts/raw/prmbench, models/<run>
Writes  artifacts/predictions/prmbench/<run>.jsonl, metrics/prmbench/<run>.json (percent)
Run     python -m stages.prmbench full

Three decision rules are reported. ``both``: a step is correct if its reward reaches ``prmbench.threshold``. ``pass1``:
a step is correct if all its first-pass probabilities reach the threshold. ``official``: rule ``pass1`` with the
published runner's prompt and its softmax over the whole vocabulary. ``prmbench.preset`` selects the main rule: ``both``
for default, ``official`` for official. The first two share a forward pass. The published prompt has another system
text, so ``official`` scores the benchmark a second time. ``official`` in the metrics holds that rule in the published
evaluator's arithmetic. The published evaluator reads the predictions. A solution that is longer than the model's
context has no prediction: its row is invalid, and ``too_long`` counts it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pathfinder.benchmarks.evaluation import PRMBenchEvaluation
from pathfinder.benchmarks.readers import read_prmbench
from pathfinder.core.params import load_params
from pathfinder.core.steps import Solution, StepScore
from pathfinder.prm.readings import preset_of
from pathfinder.prm.run_scores import forget, run_scores
from pathfinder.provenance.stage import stage
from pathfinder.tree.passes import Mode

RAW = Path("artifacts/raw/prmbench")
RULES = ("both", "pass1", "official")


@stage
def main(run: Annotated[str, "VARIANT[-MIX][-sSEED], as in params.yaml"]) -> None:
    """Run the stage."""
    params = load_params()
    evaluation = PRMBenchEvaluation(read_prmbench(RAW, params.prmbench.limit))
    solutions = [Solution(item.id, item.problem, item.steps) for item in evaluation.items]
    scores = run_scores("prmbench", run, solutions, params)
    official = run_scores("prmbench", run, solutions, params, preset=preset_of("prmbench", "official"), mode=Mode.FIRST)
    threshold, read = params.prmbench.threshold, {"both": scores, "pass1": scores, "official": official}
    rules = RULES if params.prmbench.preset == "default" else (RULES[-1], *RULES[:-1])
    answers = {
        rule: evaluation.answers([is_correct(step, rule, threshold) for step in steps] or None for steps in read[rule])
        for rule in rules
    }
    columns = [
        {"steps": [step.row() for step in steps], "steps_official": [probabilities(step) for step in published]}
        for steps, published in zip(scores, official, strict=True)
    ]
    rows = evaluation.rows(answers, columns)
    metrics = evaluation.metrics(answers, params.report) | {"official": evaluation.official(answers["official"])}
    metrics |= {"preset": params.prmbench.preset, "too_long": scores.count([])}
    evaluation.write(run, rows, metrics)
    forget("prmbench", run)
    print(evaluation.headline(run, metrics))


def is_correct(step: StepScore, rule: str, threshold: float) -> bool:
    """Whether the decision rule calls the step correct; without first-pass labels the reward decides in every rule."""
    decisive = (step.reward,) if rule == "both" else probabilities(step).values()
    return all(p >= threshold for p in decisive)


def probabilities(step: StepScore) -> dict[str, float]:
    """The probabilities that decide in the published runner: those of the first pass."""
    return dict(step.first) if step.first else {"reward": step.reward}


if __name__ == "__main__":
    main()
