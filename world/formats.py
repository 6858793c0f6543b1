"""The generated world in the upstream file formats: the files that the download stage finds in ``data/``.

The rows have the fields of PRM800K, RLHFlow-Mistral, ProcessBench, PRMBench and the six search sets, with a few of
their known defects. The content depends only on the arguments.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from ground.io import atomic_folder, sha256_file, write_json, write_jsonl
from pathfinder.core.prompts import STEP_SEPARATOR
from world import problem_sets
from world.oracle import INSTRUCTED, State, Verdict, begin, is_on_track
from world.problem_sets import SEARCH_LEVELS, Solver, StoryPool
from world.recipes import CorpusConfig, Instructions
from world.steps import Habits, draw_link, draw_step, safe_step, write_solution
from world.story import LEVELS, Level, Problem

HUMAN = Habits(misread=0.4, slip=0.2, idle=0.08, slips=problem_sets.ALL_SLIPS)
"""The solver whose steps the raters of the PRM800K-like set saw."""
WEAK = Habits(misread=0.6, slip=0.12, idle=0.05, slips=problem_sets.ALL_SLIPS)
"""The weaker generator of the Monte-Carlo-labelled set."""


def write_corpus(folder: Path, config: CorpusConfig, solver: Solver, levels: Mapping[str, Level] = LEVELS) -> None:
    """Write all corpora below ``folder``, and then world.json, the index of configuration, planted defects and files.

    ``solver``, the policy, writes up to half of the solutions of the ProcessBench-like subsets; typed faults of
    simulated solvers fill the rest.
    """
    pool = StoryPool(config, levels)
    benches = {name: problem_sets.processbench_subset(pool, name, solver) for name in levels}
    searches = {name: problem_sets.search_problems(pool, name) for name in SEARCH_LEVELS}
    overlap = [problem for items in benches.values() for problem, _ in items[: config.overlap]]
    overlap += [problem for problems in searches.values() for problem in problems[: config.overlap]]
    phases = ("phase1_train", "phase1_test", "phase2_train", "phase2_test")
    tables: dict[str, dict[str, list[Any]]] = {
        "prm800k": {f"{n}.jsonl.gz": _prm800k(pool, n, overlap if n == "phase1_test" else []) for n in phases},
        "mistral": {"mistral.jsonl.gz": _mistral(pool)},
        "processbench": {f"{name}.json": [row for _, row in items] for name, items in benches.items()},
        "prmbench": {f"small_world_{n}.jsonl": problem_sets.prmbench_class(pool, n) for n in problem_sets.CLASSES},
        "search": {
            f"{name}.jsonl": [problem_sets.search_row(name, i, problem) for i, problem in enumerate(problems)]
            for name, problems in searches.items()
        },
    }
    for part, files in tables.items():
        with atomic_folder(folder / part) as target:
            for name, rows in files.items():
                (write_json if name.endswith(".json") else write_jsonl)(target / name, rows)
    planted = {
        "overlap_with_benchmarks": [problem.text for problem in overlap],
        "overlap_where": "prm800k/phase1_test.jsonl.gz, the first lines",
        "prmbench_error_step_beyond_the_last": 1,
        "prmbench_repeated_ids": 2,
        "processbench_repeated_problems": 1,
    }
    counts = {f"{part}/{name}": {"rows": len(rows)} for part, files in tables.items() for name, rows in files.items()}
    off = {"instructions"} if config.instructions == Instructions() else None  # the index omits default values
    index = {"config": config.model_dump(exclude=off), "planted": planted, "files": files_of(folder, counts)}
    write_json(folder / "world.json", index)


def files_of(folder: Path, known: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Digest and size of every file, and the number of rows where ``known`` names it for a table."""
    found: dict[str, Any] = {}
    for path in sorted(p for p in folder.rglob("*") if p.is_file() and p.name != "world.json"):
        name = path.relative_to(folder).as_posix()
        found[name] = {"sha256": sha256_file(path), "bytes": path.stat().st_size}
        if rows := known.get(name, {}).get("rows"):
            found[name]["rows"] = rows
    return found


def _prm800k(pool: StoryPool, name: str, first: list[Problem]) -> list[Any]:
    config = pool.config
    rng = random.Random(f"{config.seed}/prm800k/{name}")
    problems = [*first, *islice(pool.stories(rng, "train"), max(0, getattr(config, name) - len(first)))]
    phase = int(name.removeprefix("phase")[0])
    return [_prm800k_line(config, rng, phase, problem, i) for i, problem in enumerate(problems)]


def _prm800k_line(config: CorpusConfig, rng: random.Random, phase: int, problem: Problem, number: int) -> Any:
    state, steps, reason = begin(problem), list[Any](), "solution"
    while not state.ended:
        step, after = _rated_step(config, rng, phase, problem, state)
        steps.append(step)
        if after is None:
            reason = "found_error"
            break
        state = after
    question: dict[str, Any] = {"problem": problem.text, "ground_truth_answer": str(problem.answer)}
    if phase == 2:
        written = [w.text for w in write_solution(problem, rng, HUMAN)]
        question |= {
            "ground_truth_solution": STEP_SEPARATOR.join(w.text for w in write_solution(problem, rng, Habits())),
            "pre_generated_steps": written,
            "pre_generated_answer": written[-1].split("{")[1].split("}")[0],
            "pre_generated_verifier_score": round(rng.random(), 6),
        }
    return {
        "labeler": f"rater-{rng.randint(1, 12)}",
        "timestamp": f"2022-{7 + number % 5:02d}-{1 + number % 28:02d}T12:00:00.000000",
        "generation": None if phase == 1 else rng.randint(0, 9),
        "is_quality_control_question": rng.random() < 0.01,
        "is_initial_screening_question": False,
        "question": question,
        "label": {"steps": steps, "total_time": rng.randint(20_000, 400_000), "finish_reason": reason},
    }


def _rated_step(
    config: CorpusConfig, rng: random.Random, phase: int, problem: Problem, state: State
) -> tuple[Any, State | None]:
    """A step with its alternatives, and the state after the chosen step (``None`` if no alternative is usable)."""
    wanted = rng.choices((1, 2, 3, 4), (0.35, 0.3, 0.2, 0.15))[0]
    written: list[Verdict] = []
    for _ in range(4 * wanted):
        candidate = draw_step(problem, state, rng, HUMAN)
        if candidate.text not in [w.text for w in written] or rng.random() < config.repeats:
            written.append(candidate)
        if len(written) == wanted:
            break
    completions = [{"text": w.text, "rating": _rating(config, rng, w), "flagged": False} for w in written]
    good = [i for i, w in enumerate(written) if w.is_correct and completions[i]["rating"] == 1]
    usable = good or [i for i, w in enumerate(written) if w.is_correct and completions[i]["rating"] in (0, 1)]
    step: dict[str, Any] = {"completions": completions, "human_completion": None, "chosen_completion": None}
    if usable:
        step["chosen_completion"] = rng.choice(usable)
        return step, written[step["chosen_completion"]].after
    if phase == 2:
        return step, None
    human = safe_step(problem, state, draw_link(rng, 0.3, problem))
    step["human_completion"] = {"text": human.text, "rating": None, "source": "human", "flagged": False}
    return step, human.after


def _rating(config: CorpusConfig, rng: random.Random, written: Verdict) -> int | None:
    draw, rating = rng.random(), written.rating
    if draw < config.null_ratings:
        return None
    if rating >= 0 and draw > 1 - config.wrong_minus:
        return -1
    if rating < 0 and draw > 1 - config.wrong_plus:
        return 1
    # The same draw decides, so that a changed rate changes only ratings.
    if (kind := written.instructed) and draw < config.null_ratings + getattr(config.instructions, kind):
        return INSTRUCTED[kind]
    return rating


def _mistral(pool: StoryPool) -> list[Any]:
    rng = random.Random(f"{pool.config.seed}/mistral")
    stories = islice(pool.stories(rng, "train"), pool.config.mistral)
    return [_conversation(pool.config, rng, problem) for problem in stories]


def _conversation(config: CorpusConfig, rng: random.Random, problem: Problem) -> Any:
    turns: list[dict[str, str]] = []
    for number, written in enumerate(write_solution(problem, rng, WEAK), start=1):
        on_track = is_on_track(problem, written)
        noise = config.noise_on_track if on_track else config.noise_off_track
        plus = on_track != (rng.random() < noise)
        content = f"Step {number}: {written.text}"
        turns.append({"content": f"{problem.text} {content}" if number == 1 else content, "role": "user"})
        turns.append({"content": "+" if plus else "-", "role": "assistant"})
    return {"conversations": turns}
