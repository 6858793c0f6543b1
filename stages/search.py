"""Reward-guided search (prm@n) with one PRM, or with the control that picks a random sample.

    python -m stages.search full
    python -m stages.search random
    python -m stages.search math-shepherd

Reads ``artifacts/raw/search``, ``artifacts/raw/models/policy`` and, but for the control, ``models/<run>`` and the
whole solutions of ``artifacts/predictions/sample.jsonl``, of which the PRM chooses too (best of n). Writes
``artifacts/predictions/search/<run>.jsonl`` (rows as the published script has them), for a PRM
``artifacts/predictions/best_of_n/<run>.jsonl``, and ``metrics/search/<run>.json`` (percent; docs/search.md).
``score.preset: official-search`` searches and grades as published. Somebody else's PRM (docs/baselines.md) is read from
``artifacts/raw/models/<system>``.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from stages.core.accuracy import by_set
from stages.core.baselines.adapter import AUTHORS
from stages.core.baselines.registry import SYSTEMS
from stages.core.baselines.scorer import BaselineScorer
from stages.core.benchmarks import read_search
from stages.core.best_of_n import best_of_n, score_samples
from stages.core.footprint import require
from stages.core.grading import Grader, Preset, gold_of
from stages.core.io import DataError, read_jsonl, sha256_file, write_json, write_jsonl
from stages.core.journal import Journal
from stages.core.params import Params, load_params
from stages.core.policy import KeptPolicy, Policy, open_policy
from stages.core.prm import PRM, open_scorer
from stages.core.runs import parse_run
from stages.core.scoring import Candidates
from stages.core.search import RandomPick, Round, Scored, StepScorer, in_chunks, journal, search
from stages.lineage.record import recorded

RAW = Path("artifacts/raw/search")
MODELS = Path("artifacts/raw/models")
POLICY = MODELS / "policy"
SAMPLES = Path("artifacts/predictions/sample.jsonl")
PREDICTIONS = Path("artifacts/predictions/search")
CHOSEN = Path("artifacts/predictions/best_of_n")
METRICS = Path("metrics/search")
CONTROL = "random"


class PRMPick:
    """A PRM as a scorer of candidate steps; a negative first-pass label of ours rejects one, as published."""

    def __init__(self, scorer: PRM, rejects: bool = True) -> None:
        self._rounds, self._rejects = scorer.rounds(), rejects

    def __call__(self, rounds: Sequence[Round]) -> list[list[Scored]]:
        """All candidates of all open problems in one batch, over the trunks that the round before left."""
        asked = {r.name: Candidates(r.problem, r.prefix, r.steps) for r in rounds}
        scores = self._rounds.score(asked)
        return [[Scored(step.reward, self._rejects and step.has_error) for step in scores[r.name]] for r in rounds]


def main(argv: Sequence[str] | None = None) -> None:
    """Run the stage."""
    parser = argparse.ArgumentParser(prog="python -m stages.search", description=__doc__.splitlines()[0])
    parser.add_argument("run", help="VARIANT[-MIX][-sSEED], random, or the name of a baseline")
    asked = parser.parse_args(argv).run
    run = asked if asked == CONTROL or asked in SYSTEMS else parse_run(asked).name
    params = load_params()
    settings = params.search
    preset: Preset = "official" if params.score.preset == "official-search" else "repaired"
    stage = ("control", None) if run == CONTROL else ("search", run)
    if preset == "official" and settings.strategy != "greedy":
        raise DataError("params.yaml: preset official-search is a greedy search; set search.strategy to greedy")
    folder = MODELS / run if run in SYSTEMS else Path("models") / run
    scored = {} if run == CONTROL else {"base": folder}
    require("sample" if run == CONTROL else "search", params, {"policy": POLICY} | scored)
    with recorded(*stage), Grader() as grader, ExitStack() as stack:
        loaded = read_search(RAW, settings.sets, settings.limit)
        policy: Policy = open_policy(settings, POLICY)
        identity = settings.model_dump() | {"run": run, "score": params.score.model_dump()}
        scorer: StepScorer = RandomPick(settings.seed)
        models: list[Path] = [POLICY]
        chosen: dict[str, Any] = {}
        if run != CONTROL:
            models.append(folder)
            prm: PRM
            if run in SYSTEMS:
                chosen = {"system": run, "titles": list(SYSTEMS[run].titles)}
                method = SYSTEMS[run].methods[AUTHORS]
                prm = BaselineScorer(folder, method, params.score.dtype, params.score.token_budget)
            else:
                prm = stack.enter_context(open_scorer(folder, params.score))
            scorer = PRMPick(prm, rejects=run not in SYSTEMS)
            chosen["best_of_n"] = _best_of_n(run, prm, identity, models, params)
        chunks = journal("search", identity, loaded.items, models)
        draws = stack.enter_context(Journal(chunks / "draws.jsonl"))  # what a chunk that was ended had drawn
        policy = KeptPolicy(policy, draws)
        rows = in_chunks(
            loaded.items,
            settings.batch_size,
            chunks,
            lambda chunk: search(chunk, policy, scorer, settings, preset),
            f"search {run}",
        )
        draws.path.unlink()
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
        details = _details(rows, settings.batch_size)
        details |= {
            "defects": loaded.defects,
            "grading_failures": dict(grader.failures),
            "not_graded": grader.failures.total(),
        }
        write_json(METRICS / f"{run}.json", loaded.accounting() | table | chosen | {"details": details})
        averages = {figure: average} | chosen.get("best_of_n", {}).get("average", {})
        print(f"search {run}: " + ", ".join(f"{name} {value:.1f}" for name, value in averages.items()))


def _best_of_n(run: str, prm: PRM, identity: dict[str, Any], models: list[Path], params: Params) -> dict[str, Any]:
    """Score and choose the sample stage's solutions, chunk by chunk as the search goes; the figures."""
    samples = [row for _, row in read_jsonl(SAMPLES)]
    folder = journal("best_of_n", identity | {"samples": sha256_file(SAMPLES)}, [], models)
    scored = in_chunks(
        samples, params.search.batch_size, folder, lambda chunk: score_samples(prm, chunk), f"best of n {run}"
    )
    rows, figures = best_of_n(samples, scored, params.report)
    write_jsonl(CHOSEN / f"{run}.jsonl", rows)
    return figures


def _details(rows: list[dict[str, Any]], batch_size: int) -> dict[str, Any]:
    rounds = [entry for row in rows for entry in row["iteration_history"]]
    chunks = [rows[start : start + batch_size] for start in range(0, len(rows), batch_size)]
    return {
        # a problem's rounds wait for each other; problems that advance together share a call
        "policy_calls": sum(max(row["rounds"] for row in chunk) for chunk in chunks),
        "policy_calls_one_problem_at_a_time": sum(row["rounds"] for row in rows),
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
