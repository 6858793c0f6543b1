"""Reward-guided search (prm@n) with one PRM, or with the control that picks a random sample.

    python -m stages.search full
    python -m stages.search random

Reads ``artifacts/raw/search``, ``artifacts/raw/models/policy`` and, but for the control, ``models/<run>``; writes
``artifacts/predictions/search/<run>.jsonl`` (rows as the published script has them) and
``metrics/search/<run>.json`` (percent). ``score.preset: official-search`` searches and grades as published.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from stages.core.accuracy import by_set
from stages.core.benchmarks import read_search
from stages.core.grading import Grader, Preset, gold_of
from stages.core.io import write_json, write_jsonl
from stages.core.params import load_params
from stages.core.policy import open_policy
from stages.core.runs import parse_run
from stages.core.scoring import Candidates
from stages.core.search import RandomPick, Round, Scored, StepScorer, in_chunks, journal, search
from stages.core.served_scoring import PRM, open_scorer
from stages.lineage.record import recorded

RAW = Path("artifacts/raw/search")
POLICY = Path("artifacts/raw/models/policy")
PREDICTIONS = Path("artifacts/predictions/search")
METRICS = Path("metrics/search")
CONTROL = "random"


class PRMPick:
    """A PRM as a scorer of candidate steps; a negative first-pass label rejects one, as published."""

    def __init__(self, scorer: PRM) -> None:
        self._rounds = scorer.rounds()

    def __call__(self, rounds: Sequence[Round]) -> list[list[Scored]]:
        """All candidates of all open problems in one batch, over the trunks that the round before left."""
        asked = {r.name: Candidates(r.problem, r.prefix, r.steps) for r in rounds}
        scores = self._rounds.score(asked)
        return [[Scored(step.reward, step.has_error) for step in scores[r.name]] for r in rounds]


def main(argv: Sequence[str] | None = None) -> None:
    """Run the stage."""
    parser = argparse.ArgumentParser(prog="python -m stages.search", description=__doc__.splitlines()[0])
    parser.add_argument("run", help="VARIANT[-MIX][-sSEED], or random")
    asked = parser.parse_args(argv).run
    run = asked if asked == CONTROL else parse_run(asked).name
    params = load_params()
    settings = params.search
    preset: Preset = "official" if params.score.preset == "official-search" else "repaired"
    stage = ("control", None) if run == CONTROL else ("search", run)
    with recorded(*stage), Grader() as grader, ExitStack() as stack:
        loaded = read_search(RAW, settings.sets, settings.limit)
        policy = open_policy(settings, POLICY)
        scorer: StepScorer
        if run == CONTROL:
            scorer, models = RandomPick(settings.seed), [POLICY]
        else:
            models = [POLICY, Path("models") / run]
            scorer = PRMPick(stack.enter_context(open_scorer(models[1], params.score)))
        identity = settings.model_dump() | {"run": run, "score": params.score.model_dump()}
        rows = in_chunks(
            loaded.items,
            settings.batch_size,
            journal("search", identity, loaded.items, models),
            lambda chunk: search(chunk, policy, scorer, settings, preset),
            f"search {run}",
        )
        for problem, row in zip(loaded.items, rows, strict=True):
            row["correct"] = grader.is_right(gold_of(problem.set, problem.key, preset), row["pred_answer"], preset)
        write_jsonl(PREDICTIONS / f"{run}.jsonl", rows)
        sets = [row["set"] for row in rows]
        means, average, interval = by_set(sets, [float(row["correct"]) for row in rows], params.report)
        figure = f"prm@{settings.n}"
        table = {
            "sets": {name: {figure: mean, "n": sets.count(name)} for name, mean in means.items()},
            "average": average,
            "interval": interval,
        }
        details = _details(rows) | {"defects": loaded.defects, "grading_failures": dict(grader.failures)}
        write_json(METRICS / f"{run}.json", loaded.accounting() | table | {"details": details})
        print(f"search {run}: {figure} {average:.1f}")


def _details(rows: list[dict[str, Any]]) -> dict[str, Any]:
    rounds = [entry for row in rows for entry in row["iteration_history"]]
    return {
        "finished": sum(row["finished"] for row in rows),
        "without_step": sum(not row["final_steps"] for row in rows),
        "without_answer": sum(row["pred_answer"] is None for row in rows),
        "rounds": len(rounds),
        "rounds_without_choice": sum(entry["chosen_step"] is None for entry in rounds),
        "candidates": sum(len(entry["candidates_info"]) for entry in rounds),
        "candidates_rejected": sum("rejected" in c for entry in rounds for c in entry["candidates_info"]),
    }


if __name__ == "__main__":
    main()
