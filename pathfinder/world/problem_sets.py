"""The small world's benchmarks: ProcessBench-like, PRMBench-like and search problems, with exact labels."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pathfinder.world.steps import (
    Habits,
    Written,
    assess_written,
    fault_step,
    link_of,
    safe_step,
    write_solution,
)
from pathfinder.world.story import (
    CONSISTENCY_FAULTS,
    LEVELS,
    MATH_FAULTS,
    Level,
    Problem,
    Split,
    assess_all,
    begin,
    sample_problem,
    split_of,
)

Solver = Callable[[list[Problem], str], list[list[str]]]
"""Writes one solution (its steps) for each problem; the text names the purpose and seeds the draw."""

ALL_SLIPS = tuple(fault for fault in (*MATH_FAULTS, *CONSISTENCY_FAULTS) if fault != "misreading")
SOLVERS = (
    Habits(misread=0.5, slip=0.12, idle=0.03, slips=ALL_SLIPS),
    Habits(misread=0.3, slip=0.2, idle=0.03, slips=ALL_SLIPS),
    Habits(misread=0.2, slip=0.08, flourish=0.4, slips=ALL_SLIPS),
)
"""Simulated solvers of the ProcessBench-like subsets, where the policy's own solutions are not at hand."""
WRONG_SHARES = {"gsm8k": 0.5, "math": 0.6, "olympiadbench": 0.65, "omnimath": 0.75}
"""Share of items with a wrong step, about as in ProcessBench (0.52, 0.59, 0.66, 0.76)."""
RIGHT_ANSWER_SHARE = 0.15
"""Share of the items with a wrong step whose final answer is right all the same."""

CLASSES: dict[str, tuple[str, ...]] = {
    "redundency": ("repetition", "restatement"),
    "circular": ("circular",),
    "counterfactual": ("amount", "verb"),
    "step_contradiction": ("carried", "contradiction", "answer"),
    "domain_inconsistency": ("unit", "person", "name"),
    "confidence": ("arithmetic",),
    "missing_condition": ("skipped", "early"),
    "deception": ("misreading", "operation", "operand"),
    "multi_solutions": (),
}
"""PRMBench's classes in its spelling, and the faults that stand for them here."""
CONFIDENT = ", so clearly "

SEARCH_LEVELS: dict[str, str] = {
    "math": "math",
    "amc23": "math",
    "aime24": "omnimath",
    "college_math": "gsm8k",
    "minerva_math": "gsm8k",
    "olympiadbench": "olympiadbench",
}


@dataclass(frozen=True, slots=True)
class WorldConfig:
    """Sizes and rates of the corpus; the defaults are what is shipped."""

    seed: int = 11
    phase1_train: int = 500
    phase1_test: int = 60
    phase2_train: int = 1900
    phase2_test: int = 100
    mistral: int = 1600
    processbench: int = 150
    prmbench: int = 50
    search: int = 50
    wrong_minus: float = 0.02  # sound steps that a rater calls wrong
    wrong_plus: float = 0.01  # wrong steps that a rater calls right
    null_ratings: float = 0.004
    repeats: float = 0.03  # alternatives that repeat another word for word
    noise_on_track: float = 0.05  # Monte-Carlo "-" although the true answer is still within reach
    noise_off_track: float = 0.1  # Monte-Carlo "+" although it is not
    overlap: int = 2  # problems of each benchmark subset and search set that the first phase's test file holds too


def problems_of(
    rng: random.Random, split: Split, names: tuple[str, ...], seen: set[str], levels: Mapping[str, Level] = LEVELS
) -> Iterator[Problem]:
    """Endless distinct problems of a split, the named levels in turn; ``seen`` grows."""
    while True:
        for name in names:
            while True:
                problem = sample_problem(rng, levels[name])
                if split_of(problem) == split and problem.text not in seen:
                    seen.add(problem.text)
                    yield problem
                    break


def processbench_subset(
    config: WorldConfig, name: str, seen: set[str], solver: Solver | None, levels: Mapping[str, Level] = LEVELS
) -> list[tuple[Problem, Any]]:
    """Items of a subset, each with its problem: quotas of wrong, right-answer-with-wrong-step and clean solutions."""
    rng = random.Random(f"{config.seed}/processbench/{name}")
    problems = problems_of(rng, "benchmark", (name,), seen, levels)
    wrong = round(config.processbench * WRONG_SHARES[name])
    lucky = round(wrong * RIGHT_ANSWER_SHARE)
    quotas = {"wrong": wrong - lucky, "lucky": lucky, "clean": config.processbench - wrong}
    items: list[tuple[Problem, Any]] = []
    batch = 0
    while any(quotas.values()):
        drawn = [next(problems) for _ in range(2 * config.processbench)]
        for problem, generator, steps in _solutions(drawn, rng, solver, f"processbench/{name}/{batch}"):
            row = _processbench_row(problem, steps)
            kind = None if row is None else _kind(row)
            if row is not None and kind is not None and quotas[kind]:
                quotas[kind] -= 1
                items.append((problem, {"id": "", "generator": generator, "problem": problem.text} | row))
        batch += 1
    rng.shuffle(items)
    items[-1] = (items[0][0], items[0][1] | {"generator": "repeated"})  # the real subsets repeat problems too
    for i, (_, row) in enumerate(items):
        row["id"] = f"{name}-{i}"
    return items


def _solutions(
    problems: list[Problem], rng: random.Random, solver: Solver | None, purpose: str
) -> Iterator[tuple[Problem, str, list[str]]]:
    """Solutions by the policy, where there is one, and by simulated solvers (with faults of every kind) in turn."""
    policy = iter(solver(problems[::2], purpose) if solver is not None else [])
    for i, problem in enumerate(problems):
        habit = rng.randrange(len(SOLVERS))
        simulated = [written.text for written in write_solution(problem, rng, SOLVERS[habit])]
        sampled = next(policy, None) if i % 2 == 0 else None
        yield (
            (problem, f"simulated-{habit}", simulated) if sampled is None else (problem, "small-world-policy", sampled)
        )


def _processbench_row(problem: Problem, steps: list[str]) -> dict[str, Any] | None:
    """Steps, final answer and label; ``None`` where the oracle cannot tell."""
    label = -1
    for i, verdict in enumerate(assess_all(problem, steps)):
        if verdict is None:
            return None
        if not verdict.sound:
            label = i
            break
    last = steps[-1]
    if not last.startswith("The answer is"):
        return None
    correct = last == f"The answer is \\boxed{{{problem.answer}}}."
    return {"steps": steps, "final_answer_correct": correct, "label": label}


def _kind(row: dict[str, Any]) -> str:
    if row["label"] == -1:
        return "clean"
    return "lucky" if row["final_answer_correct"] else "wrong"


def prmbench_class(config: WorldConfig, name: str, seen: set[str], levels: Mapping[str, Level] = LEVELS) -> list[Any]:
    """Rows of one class; ``multi_solutions`` has right alternatives only."""
    rng = random.Random(f"{config.seed}/prmbench/{name}")
    problems = problems_of(rng, "benchmark", ("math", "olympiadbench", "omnimath"), seen, levels)
    rows: list[Any] = []
    while len(rows) < config.prmbench:
        row = _prmbench_row(next(problems), rng, name)
        if row is not None:
            rows.append(row | {"idx": f"small_world_{name}_{len(rows)}"})
    if name == "multi_solutions":
        rows[1]["idx"] = rows[2]["idx"] = rows[0]["idx"]
    if name == "step_contradiction":
        rows[0]["error_steps"] = [*rows[0]["error_steps"], len(rows[0]["modified_process"]) + 1]
    return rows


def _prmbench_row(problem: Problem, rng: random.Random, name: str) -> dict[str, Any] | None:
    original = [written.text for written in write_solution(problem, rng, Habits())]
    faults = CLASSES[name]
    if not faults:
        modified, errors = [w.text for w in write_solution(problem, rng, Habits(flourish=1.0))], list[int]()
    else:
        planted = _planted(problem, rng, rng.choice(faults), confident=name == "confidence")
        if planted is None:
            return None
        modified, errors = planted
    return {
        "original_question": problem.text,
        "modified_question": problem.text,
        "original_process": original,
        "modified_process": modified,
        "modified_steps": errors,
        "error_steps": errors,
        "reason": f"Planted fault: {name}." if errors else "",
        "question": problem.text,
        "classification": name,
    } | ({} if faults else {"ground_truth": str(problem.answer)})


def _planted(problem: Problem, rng: random.Random, fault: str, confident: bool) -> tuple[list[str], list[int]] | None:
    """A solution with one fault, carried on in good faith, and its place (from 1)."""
    places = len(problem.events) + 1
    at = rng.randrange(places)
    state, steps = begin(problem), list[str]()
    while not state.ended:
        link = CONFIDENT if confident else link_of(rng, 0.15)
        if len(steps) == at:
            text = fault_step(problem, state, fault, rng, link)
            if text is None:
                return None
        else:
            text = safe_step(problem, state, link if not confident else CONFIDENT if rng.random() < 0.5 else ", so ")
        written: Written = assess_written(problem, state, text)
        if len(steps) != at and not written.verdict.sound:
            return None  # the wrong value left the range: another story serves better
        steps.append(text)
        state = written.verdict.state
    return (steps, [at + 1]) if at < len(steps) else None


def search_problems(
    config: WorldConfig, name: str, seen: set[str], levels: Mapping[str, Level] = LEVELS
) -> list[Problem]:
    """The problems of a search set."""
    rng = random.Random(f"{config.seed}/search/{name}")
    problems = problems_of(rng, "search", (SEARCH_LEVELS[name],), seen, levels)
    return [next(problems) for _ in range(config.search)]


def search_row(name: str, number: int, problem: Problem) -> Any:
    """A problem with the answer key of its set."""
    answer = str(problem.answer)
    solution = "\n".join(w.text for w in write_solution(problem, random.Random(0), Habits(flourish=0.0)))
    match name:
        case "math":
            return {
                "problem": problem.text,
                "level": "Level 2",
                "solution": solution,
                "subject": "Small World",
                "unique_id": f"test/small_world/{number}.json",
                "answer": answer,
            }
        case "amc23":
            return {
                "id": number,
                "problem": problem.text,
                "answer": float(problem.answer),
                "url": "",
                "question": problem.text,
            }
        case "aime24":
            row = {"id": number, "problem": problem.text, "solution": solution, "answer": answer, "url": ""}
            return row | {"question": problem.text}
        case "college_math":
            return {
                "data_source": "small_world",
                "question_number": f"exercise.{number}",
                "question": problem.text,
                "answer": f"${answer}$",
                "license": "Apache-2.0",
                "data_topic": "small_world.arithmetic",
            }
        case "minerva_math":
            return {"problem": problem.text, "solution": solution, "type": "Small World", "idx": number}
        case "olympiadbench":
            return {
                "id": number,
                "subfield": "Small World",
                "context": None,
                "question": problem.text,
                "solution": [solution],
                "final_answer": [answer],
                "is_multiple_answer": False,
                "unit": None,
                "answer_type": "Numerical",
                "error": None,
            }
    raise ValueError(f"unknown search set {name!r}; expected one of {tuple(SEARCH_LEVELS)}")
