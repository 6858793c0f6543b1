"""The small world in the upstream file formats: what the download stage finds in ``data/``.

Shapes follow PRM800K, RLHFlow-Mistral, ProcessBench, PRMBench and the six search sets field by field, with some of
their known defects in small, counted doses. Everything is a function of ``WorldConfig``; ``data/world.json`` states
the configuration, the defects and overlaps planted, and every file's digest.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pathfinder.core.io import atomic_folder, read_json, read_jsonl, sha256_file, write_json, write_jsonl
from pathfinder.core.prompts import STEP_SEPARATOR
from pathfinder.world import problem_sets
from pathfinder.world.problem_sets import Solver, WorldConfig, problems_of
from pathfinder.world.steps import Habits, Written, assess_written, draw_step, link_of, safe_step, write_solution
from pathfinder.world.story import LEVELS, Level, Problem, State, begin

CONVERTERS = ("prm800k", "mistral", "processbench", "prmbench", "search")
HUMAN = Habits(misread=0.4, slip=0.2, idle=0.08, slips=problem_sets.ALL_SLIPS)
"""Candidates that the raters of the PRM800K-like set saw."""
WEAK = Habits(misread=0.6, slip=0.12, idle=0.05, slips=problem_sets.ALL_SLIPS)
"""The weaker generator behind the Monte-Carlo-labelled set."""


def write_corpus(
    folder: Path, config: WorldConfig, solver: Solver | None = None, levels: Mapping[str, Level] = LEVELS
) -> dict[str, Any]:
    """Write all corpora below ``folder`` and, last, ``folder/world.json``; returns what stands in it.

    ``solver`` (the policy) supplies the solutions of the ProcessBench-like subsets; without one they come from a
    simulated solver with typed faults. Models already in ``folder/models`` are listed with the rest.
    """
    seen: set[str] = set()
    benches = {name: problem_sets.processbench_subset(config, name, seen, solver, levels) for name in levels}
    searches = {name: problem_sets.search_problems(config, name, seen, levels) for name in SEARCH_SETS}
    overlap = [p for items in benches.values() for p, _ in items[: config.overlap]]
    overlap += [p for problems in searches.values() for p in problems[: config.overlap]]
    tables: dict[str, list[Any]] = {}
    for name in ("phase1_train", "phase1_test", "phase2_train", "phase2_test"):
        first = overlap if name == "phase1_test" else []
        tables[f"prm800k/{name}.jsonl.gz"] = _prm800k(config, name, first, seen, levels)
    tables["mistral/mistral.jsonl.gz"] = _mistral(config, seen, levels)
    for name in problem_sets.CLASSES:
        tables[f"prmbench/small_world_{name}.jsonl"] = problem_sets.prmbench_class(config, name, seen, levels)
    for name, problems in searches.items():
        tables[f"search/{name}.jsonl"] = [problem_sets.search_row(name, i, p) for i, p in enumerate(problems)]
    for part in CONVERTERS:
        with atomic_folder(folder / part) as place:
            for path, rows in tables.items():
                if path.startswith(f"{part}/"):
                    write_jsonl(place / path.removeprefix(f"{part}/"), rows)
            if part == "processbench":
                for name, items in benches.items():
                    write_json(place / f"{name}.json", [row for _, row in items])
    return write_index(folder, config, overlap)


SEARCH_SETS = tuple(problem_sets.SEARCH_LEVELS)


def write_index(folder: Path, config: WorldConfig, overlap: list[Problem]) -> dict[str, Any]:
    """Write ``world.json``: configuration, planted defects, and every file with its digest."""
    index = {
        "config": asdict(config),
        "planted": {
            "overlap_with_benchmarks": [problem.text for problem in overlap],
            "overlap_where": "prm800k/phase1_test.jsonl.gz, the first lines",
            "prmbench_error_step_beyond_the_last": 1,
            "prmbench_repeated_ids": 2,
            "processbench_repeated_problems": 1,
        },
        "files": _files(folder),
    }
    write_json(folder / "world.json", index)
    return index


def renew_index(folder: Path) -> None:
    """Bring the digests of ``world.json`` up to date after the models have changed."""
    write_json(folder / "world.json", read_json(folder / "world.json") | {"files": _files(folder)})


def _files(folder: Path) -> dict[str, Any]:
    """Digest, size and, where a file has rows, their number."""
    paths = sorted(p for p in folder.rglob("*") if p.is_file() and p.name != "world.json")
    files: dict[str, Any] = {}
    for path in paths:
        entry: dict[str, Any] = {"sha256": sha256_file(path), "bytes": path.stat().st_size}
        if path.parent.parent.name != "models":
            rows = read_json(path) if path.suffix == ".json" else list(read_jsonl(path))
            entry["rows"] = len(rows)
        files[str(path.relative_to(folder))] = entry
    return files


def _prm800k(
    config: WorldConfig, name: str, first: list[Problem], seen: set[str], levels: Mapping[str, Level]
) -> list[Any]:
    rng = random.Random(f"{config.seed}/prm800k/{name}")
    source = problems_of(rng, "train", tuple(levels), seen, levels)
    count = int(getattr(config, name))
    problems = [*first, *(next(source) for _ in range(count - len(first)))]
    phase = int(name[5])
    return [_prm800k_line(config, rng, phase, problem, i) for i, problem in enumerate(problems)]


def _prm800k_line(config: WorldConfig, rng: random.Random, phase: int, problem: Problem, number: int) -> Any:
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
    config: WorldConfig, rng: random.Random, phase: int, problem: Problem, state: State
) -> tuple[Any, State | None]:
    """One step with its alternatives, and the state after the chosen text; ``None`` where no good one was found."""
    wanted = rng.choices((1, 2, 3, 4), (0.35, 0.3, 0.2, 0.15))[0]
    written: list[Written] = []
    for _ in range(4 * wanted):
        candidate = assess_written(problem, state, draw_step(problem, state, rng, HUMAN))
        if candidate.text not in [w.text for w in written] or rng.random() < config.repeats:
            written.append(candidate)
        if len(written) == wanted:
            break
    completions = [{"text": w.text, "rating": _rating(config, rng, w), "flagged": False} for w in written]
    good = [i for i, w in enumerate(written) if w.verdict.rating == 1 and completions[i]["rating"] == 1]
    usable = good or [i for i, w in enumerate(written) if w.verdict.sound and completions[i]["rating"] in (0, 1)]
    step: dict[str, Any] = {"completions": completions, "human_completion": None, "chosen_completion": None}
    if usable:
        step["chosen_completion"] = rng.choice(usable)
        return step, written[step["chosen_completion"]].verdict.state
    if phase == 2:
        return step, None
    human = assess_written(problem, state, safe_step(problem, state, link_of(rng, 0.3)))
    step["human_completion"] = {"text": human.text, "rating": None, "source": "human", "flagged": False}
    return step, human.verdict.state


def _rating(config: WorldConfig, rng: random.Random, written: Written) -> int | None:
    draw, rating = rng.random(), written.verdict.rating
    if draw < config.null_ratings:
        return None
    if rating >= 0 and draw > 1 - config.wrong_minus:
        return -1
    if rating < 0 and draw > 1 - config.wrong_plus:
        return 1
    return rating


def _mistral(config: WorldConfig, seen: set[str], levels: Mapping[str, Level]) -> list[Any]:
    rng = random.Random(f"{config.seed}/mistral")
    source = problems_of(rng, "train", tuple(levels), seen, levels)
    return [_conversation(config, rng, next(source)) for _ in range(config.mistral)]


def _conversation(config: WorldConfig, rng: random.Random, problem: Problem) -> Any:
    turns: list[dict[str, str]] = []
    for number, written in enumerate(write_solution(problem, rng, WEAK), start=1):
        after = written.verdict.state
        early = after.ended and written.before.done < len(problem.events)
        on_track = after.value == problem.values[after.done] and not early
        noise = config.noise_on_track if on_track else config.noise_off_track
        plus = on_track != (rng.random() < noise)
        content = f"Step {number}: {written.text}"
        turns.append({"content": f"{problem.text} {content}" if number == 1 else content, "role": "user"})
        turns.append({"content": "+" if plus else "-", "role": "assistant"})
    return {"conversations": turns}
