"""PRMBench with one of our PRMs: predictions and metrics of three decision rules."""

from __future__ import annotations

from pathlib import Path

from pathfinder.benchmarks.bootstrap import INTERVALS
from pathfinder.benchmarks.evaluation import PRMBenchEvaluation
from pathfinder.benchmarks.readers import read_prmbench
from pathfinder.core.params import Params
from pathfinder.core.steps import Solution, StepScore, Verdicts
from pathfinder.prm.checkpoints import model_of, titles_of
from pathfinder.prm.readings import preset_of
from pathfinder.prm.run_scores import forget, run_scores
from pathfinder.tree.passes import Mode

RAW = Path("artifacts/raw/prmbench")
RULES = ("both", "pass1", "official")


def evaluate(name: str, params: Params) -> str:
    """Evaluate a run or an authors' checkpoint, write predictions and metrics, and return the result as one line.

    Raises ``DataError`` if ``name`` is neither, or if the model does not fit into memory.
    """
    model_of(name)  # a wrong name is refused before anything is read
    evaluation = PRMBenchEvaluation(read_prmbench(RAW, params.prmbench.limit))
    solutions = [Solution(item.id, item.problem, item.steps) for item in evaluation.items]
    scores = run_scores("prmbench", name, solutions, params)
    official = run_scores(
        "prmbench", name, solutions, params, preset=preset_of("prmbench", "official"), mode=Mode.FIRST
    )
    threshold, read = params.prmbench.threshold, {"both": scores, "pass1": scores, "official": official}
    rules = RULES if params.prmbench.preset == "default" else (RULES[-1], *RULES[:-1])
    answers = {
        rule: evaluation.answers(
            Verdicts([is_correct(step, rule, threshold) for step in steps]) for steps in read[rule]
        )
        for rule in rules
    }
    columns = [
        {"steps": [step.row() for step in steps], "steps_official": [probabilities(step) for step in published]}
        for steps, published in zip(scores, official, strict=True)
    ]
    rows = evaluation.rows(answers, columns)
    metrics = evaluation.metrics(answers, INTERVALS) | {"official": evaluation.official(answers["official"])}
    metrics |= {"preset": params.prmbench.preset, "too_long": scores.count([])} | titles_of(name)
    evaluation.write(name, rows, metrics)
    forget("prmbench", name)
    return evaluation.headline(name, metrics)


def is_correct(step: StepScore, rule: str, threshold: float) -> bool:
    """Whether the decision rule calls the step correct; without first-pass labels the reward decides in every rule."""
    decisive = (step.reward,) if rule == "both" else probabilities(step).values()
    return all(p >= threshold for p in decisive)


def probabilities(step: StepScore) -> dict[str, float]:
    """The probabilities that decide in the published runner: those of the first pass."""
    return dict(step.first) if step.first else {"reward": step.reward}
