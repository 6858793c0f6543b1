"""Whole solutions from the policy alone: pass@1, maj@n and pass@n, the rows that the search has to beat.

    python -m stages.sample

Reads ``artifacts/raw/search`` and ``artifacts/raw/models/policy``; writes ``artifacts/predictions/sample.jsonl`` and
``metrics/sample.json`` (percent). Temperature and top-p are the search's, so that the rows can be compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pathfinder.benchmarks.accuracy import metrics
from pathfinder.benchmarks.grading import Grader, gold_of, last_boxed, pass_at_k
from pathfinder.benchmarks.readers import SearchProblem, read_search
from pathfinder.core.io import write_json, write_jsonl
from pathfinder.core.params import Search, load_params
from pathfinder.engines.generate import Sampling
from pathfinder.models.footprint import require
from pathfinder.policy.policy import Policy, open_policy, safe_prompt
from pathfinder.policy.search import in_chunks, journal
from pathfinder.provenance.stage import stage

RAW = Path("artifacts/raw/search")
POLICY = Path("artifacts/raw/models/policy")
PREDICTIONS = Path("artifacts/predictions/sample.jsonl")
METRICS = Path("metrics/sample.json")


@stage
def main() -> None:
    """Run the stage."""
    params = load_params()
    settings = params.search
    require("sample", params, {"policy": POLICY})
    with Grader() as grader:
        loaded = read_search(RAW, settings.sets, settings.limit)
        policy = open_policy(settings, POLICY)
        folder = journal("sample", settings.model_dump(), loaded.items, [POLICY])
        drawn = in_chunks(
            loaded.items, settings.batch_size, folder, lambda chunk: solve(policy, chunk, settings), "sample"
        )
        rows = [_graded(grader, problem, row) for problem, row in zip(loaded.items, drawn, strict=True)]
        write_jsonl(PREDICTIONS, rows)
        n = settings.n
        figures: dict[str, Sequence[float]] = {
            "pass@1": [sum(row["right"]) / n for row in rows],
            f"maj@{n}": [float(row["majority_right"]) for row in rows],
            f"pass@{n}": [pass_at_k(sum(row["right"]), n, n) for row in rows],
        }
        table = metrics([row["set"] for row in rows], figures, params.report)
        details = {
            "defects": loaded.defects,
            "grading_failures": dict(grader.failures),
            "not_graded": grader.failures.total(),
            "samples": n * len(rows),
            "samples_without_answer": sum(answer is None for row in rows for answer in row["answers"]),
            "samples_cut": sum(finish == "length" for row in rows for finish in row["finish"]),
        }
        write_json(METRICS, loaded.accounting() | table | {"details": details})
        print("sample: " + ", ".join(f"{name} {value:.1f}" for name, value in table["average"].items()))


def solve(policy: Policy, problems: Sequence[SearchProblem], settings: Search) -> list[dict[str, Any]]:
    """``n`` whole solutions of each problem."""
    prompts = [safe_prompt(policy, problem.problem, []) for problem in problems for _ in range(settings.n)]
    keys = [f"{settings.seed}/{p.set}/{p.id}/solution/{i}" for p in problems for i in range(settings.n)]
    sampling = Sampling(settings.temperature, settings.top_p, settings.solution_tokens)
    drawn = policy.sample(prompts, keys, sampling)
    rows = []
    for place, problem in enumerate(problems):
        mine = drawn[place * settings.n : (place + 1) * settings.n]
        rows.append(
            {
                "set": problem.set,
                "id": problem.id,
                "question": problem.problem,
                "gt_answer": problem.key,
                "solutions": [completion.text for completion in mine],
                "finish": [completion.finish for completion in mine],
                "answers": [last_boxed(completion.text) for completion in mine],
            }
        )
    return rows


def _graded(grader: Grader, problem: SearchProblem, row: dict[str, Any]) -> dict[str, Any]:
    gold = gold_of(problem.set, problem.key, "repaired")
    majority = grader.majority(row["answers"])
    return row | {
        "right": [grader.is_right(gold, answer) for answer in row["answers"]],
        "majority": majority,
        "majority_right": grader.is_right(gold, majority),
    }


if __name__ == "__main__":
    main()
