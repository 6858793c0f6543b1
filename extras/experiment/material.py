"""The records to learn from and the test sets, drawn from the generated world and labelled by its oracle.

The judge of the training labels is the oracle: the experiment asks what typed labels give at their best. A rater's
oversight (an incorrect step called correct) is the only error of the labels.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import polars as pl

from extras.experiment.plan import MADE, Plan
from ground.io import atomic_folder, write_json, write_jsonl, write_parquet
from pathfinder.core.labels import HUMAN
from pathfinder.core.records import TREES, problem_id, record_id
from world import problem_sets
from world.formats import HUMAN as RATED
from world.oracle import ERRORS, SUBOPTIMAL, Verdict, answer_text, assess_to_error, begin
from world.recipes import CorpusConfig
from world.steps import draw_link, draw_step, fault_step, safe_step
from world.story import Level, Problem, Split, sample_from

MATERIAL = MADE / "material"
CANDIDATES = (0.35, 0.3, 0.2, 0.15)
"""Shares of the places with 1, 2, 3 and 4 rated steps, as in the world's PRM800K."""
KINDS = tuple(kind for kind in ERRORS if kind != "event")
"""The kinds of error that a solver of the world can make without a second error."""
_FLOURISH = 0.15


def write_material(plan: Plan, folder: Path = MATERIAL) -> None:
    """Write ``train.parquet`` (``records.TREES``), and ``dev``, ``processbench`` and ``prmbench`` as upstream does."""
    with atomic_folder(folder) as target:
        write_parquet(target / "train.parquet", training_trees(plan))
        for name, split, count in (
            ("dev", "held_out", plan.tests.dev),
            ("processbench", "benchmark", plan.tests.items),
        ):
            for subset, rows in test_items(plan, split, count).items():  # type: ignore[arg-type]  # a literal
                write_json(target / name / f"{subset}.json", rows)
        pool = problem_sets.StoryPool(CorpusConfig(seed=plan.seed, prmbench=plan.tests.prmbench), plan.levels)
        for name in problem_sets.CLASSES:
            rows = problem_sets.prmbench_class(pool, name)
            write_jsonl(target / "prmbench" / f"small_world_{name}.jsonl", rows)


def training_trees(plan: Plan) -> pl.DataFrame:
    """Stories with one to four rated steps at each place, as trees."""
    rng, levels = random.Random(f"{plan.seed}/training"), [*plan.levels.values()]
    rows = []
    for line in range(plan.training.lines):
        problem = sample_from(rng, levels[line % len(levels)], "train")
        name = f"world-{plan.seed}-{line + 1}"
        trunk, branches, state = list[str](), list[dict[str, Any]](), begin(problem)
        while not state.ended:
            places = rng.choices(range(1, 5), CANDIDATES)[0]
            written = {v.text: v for v in (draw_step(problem, state, rng, RATED) for _ in range(places))}
            for number, verdict in enumerate(written.values()):
                labels = _labels(verdict, rng.random() < plan.training.wrong_plus)
                branch = {"id": record_id(name, len(trunk), number), "step_index": len(trunk), "step": verdict.text}
                branches.append(branch | labels)
            good = [verdict for verdict in written.values() if verdict.is_correct]
            chosen = rng.choice(good) if good else safe_step(problem, state)
            trunk.append(chosen.text)
            state = chosen.after
        rows.append((name, problem_id(problem.text), HUMAN, problem.text, trunk, branches))
    return pl.DataFrame(rows, schema=TREES, orient="row")


def _labels(verdict: Verdict, is_overlooked: bool) -> dict[str, int]:
    if is_overlooked and not verdict.is_correct:
        return {"math": 1, "consistency": 1, "correctness": 1}
    math, consistency, optimality = verdict.labels
    return {"math": math, "consistency": consistency, "correctness": int(verdict.is_correct and optimality)}


def test_items(plan: Plan, split: Split, count: int) -> Mapping[str, list[dict[str, Any]]]:
    """Rows of a ProcessBench-like set by subset: two of five solutions correct, the others with one error each.

    Each kind of error occurs equally often in each subset. ``plan.tests.idle`` of the solutions have a correct step
    that is not optimal.
    """
    found: dict[str, list[dict[str, Any]]] = {}
    for name, level in plan.levels.items():
        rng = random.Random(f"{plan.seed}/{split}/{name}")
        each = round(0.6 * count / len(plan.levels) / len(KINDS))
        wanted = [fault for fault in KINDS for _ in range(each)]
        wanted += [""] * (count // len(plan.levels) - len(wanted))
        drawn = [next(_solutions(rng, level, split, fault, plan.tests.idle)) for fault in wanted]
        rng.shuffle(drawn)
        found[name] = [
            {
                "id": f"{name}-{number}",
                "generator": "simulated",
                "problem": problem.text,
                "steps": steps,
                "final_answer_correct": steps[-1] == answer_text(problem.answer),
                "label": label,
            }
            for number, (problem, steps, label) in enumerate(drawn)
        ]
    return found


def _solutions(
    rng: random.Random, level: Level, split: Split, fault: str, idle: float
) -> Iterator[tuple[Problem, list[str], int]]:
    """Solutions of new stories with this fault ("": none), each with the place of its first error or -1."""
    while True:
        problem = sample_from(rng, level, split)
        if steps := _solution(rng, problem, fault, rng.random() < idle):
            verdicts = assess_to_error(problem, steps)
            last = verdicts[-1]
            if last is not None and last.is_correct != bool(fault):
                yield problem, steps, len(verdicts) - 1 if fault else -1


def _solution(rng: random.Random, problem: Problem, fault: str, is_idle: bool) -> list[str] | None:
    """A solution with the fault at one place and, if ``is_idle``, a step that does not help; ``None`` if none fits."""
    at = rng.randrange(len(problem.events) + 1) if fault else -1
    idle_at = rng.randrange((at if fault else len(problem.events)) + 1) if is_idle else -1
    state, steps, turn = begin(problem), list[str](), 0
    while not state.ended:
        if turn == idle_at:
            idle = fault_step(problem, state, rng.choice(SUBOPTIMAL), rng)
            if idle is None:
                return None
            steps.append(idle.text)
            state = idle.after
        link = draw_link(rng, _FLOURISH, problem)
        written = fault_step(problem, state, fault, rng, link) if turn == at else safe_step(problem, state, link)
        if written is None or (turn != at and not written.is_correct):
            return None
        steps.append(written.text)
        state, turn = written.after, turn + 1
    return steps if turn > at else None
