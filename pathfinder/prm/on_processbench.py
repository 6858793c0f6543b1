"""ProcessBench with one of our PRMs: predictions and metrics of both decision rules."""

from __future__ import annotations

from pathlib import Path

from pathfinder.benchmarks.bootstrap import INTERVALS
from pathfinder.benchmarks.evaluation import ProcessBenchEvaluation
from pathfinder.benchmarks.readers import read_processbench
from pathfinder.benchmarks.thresholds import sweep
from pathfinder.core.params import Params
from pathfinder.core.steps import Solution, Verdicts
from pathfinder.prm.checkpoints import model_of, titles_of
from pathfinder.prm.readings import preset_of
from pathfinder.prm.rules import RULES, is_correct, until_both
from pathfinder.prm.run_scores import forget, run_scores

RAW = Path("artifacts/raw/processbench")


def evaluate(name: str, params: Params) -> str:
    """Evaluate a run or an authors' checkpoint, write predictions and metrics, and return the result as one line.

    Raises ``DataError`` if ``name`` is neither, or if the model does not fit into memory.
    """
    model_of(name)  # a wrong name is refused before anything is read
    evaluation = ProcessBenchEvaluation(read_processbench(RAW, params.processbench.limit))
    solutions = [Solution(item.id, item.problem, item.steps) for item in evaluation.items]
    stop_of = until_both if params.processbench.early_stop else None
    preset = params.processbench.preset
    scores = run_scores("processbench", name, solutions, params, stop_of, preset_of("processbench", preset))
    rules = RULES if preset == "default" else RULES[::-1]
    answers = {
        rule: evaluation.answers(Verdicts([is_correct(step, rule) for step in steps]) for steps in scores)
        for rule in rules
    }
    rows = evaluation.rows(answers, [{"steps": [step.row() for step in steps]} for steps in scores])
    metrics = evaluation.metrics(answers, INTERVALS) | {"official": evaluation.official(answers["pass1"])}
    metrics |= {"preset": params.processbench.preset} | titles_of(name)
    metrics["too_long"] = scores.count([])
    if params.processbench.early_stop:
        metrics["early_stop"] = {
            "steps": sum(len(solution.steps) for solution in solutions),
            "scored": sum(map(len, scores)),
        }
    else:
        rewards = [[step.reward for step in steps] or None for steps in scores]
        metrics["thresholds"] = sweep(evaluation.items, rewards).summary()
    evaluation.write(name, rows, metrics)
    forget("processbench", name)
    return evaluation.headline(name, metrics)
