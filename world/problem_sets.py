"""The world's benchmarks with exact labels: ProcessBench-like, PRMBench-like and search problems."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count, cycle, islice
from typing import Any

from world.oracle import ERRORS, LINKS, Verdict, answer_text, assess_to_error, begin
from world.recipes import CorpusConfig
from world.steps import Habits, draw_link, fault_step, safe_step, write_solution
from world.story import Level, Problem, Split, sample_from

Solver = Callable[[list[Problem], str], list[list[str]]]
"""Writes one solution (its steps) for each of the first problems; the text names the purpose and seeds the draw."""

ALL_SLIPS = tuple(fault for fault in ERRORS if fault != "misreading")
SOLVERS = (
    Habits(misread=0.5, slip=0.12, idle=0.03, slips=ALL_SLIPS),
    Habits(misread=0.3, slip=0.2, idle=0.03, slips=ALL_SLIPS),
    Habits(misread=0.2, slip=0.08, flourish=0.4, slips=ALL_SLIPS),
)
"""Simulated solvers of the ProcessBench-like subsets; the policy writes the other solutions."""
WRONG_SHARES = {"gsm8k": 0.5, "math": 0.6, "olympiadbench": 0.65, "omnimath": 0.75}
"""Share of items with an incorrect step, close to ProcessBench's (0.52, 0.59, 0.66, 0.76)."""
RIGHT_ANSWER_SHARE = 0.15
"""Share, among the items with an incorrect step, of items whose final answer is still correct."""

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
"""PRMBench's classes as it spells them, and the world's faults that represent them."""
CONFIDENT = LINKS[-1]

SEARCH_LEVELS: dict[str, str] = {
    "math": "math",
    "amc23": "math",
    "aime24": "omnimath",
    "college_math": "gsm8k",
    "minerva_math": "gsm8k",
    "olympiadbench": "olympiadbench",
}


@dataclass(frozen=True, slots=True)
class StoryPool:
    """The stories of one corpus, without repeated texts."""

    config: CorpusConfig
    levels: Mapping[str, Level]
    seen: set[str] = field(default_factory=set)

    def stories(self, rng: random.Random, split: Split, *names: str) -> Iterator[Problem]:
        """Endless new stories of a split; the named levels (default: all) take turns."""
        for name in cycle(names or self.levels):
            while (problem := sample_from(rng, self.levels[name], split)).text in self.seen:
                pass
            self.seen.add(problem.text)
            yield problem


def processbench_subset(pool: StoryPool, name: str, solver: Solver) -> list[tuple[Problem, Any]]:
    """Items of a subset with their problems, in quotas: correct, and incorrect with a right or a wrong final answer."""
    size = pool.config.processbench
    rng = random.Random(f"{pool.config.seed}/processbench/{name}")
    problems = pool.stories(rng, "benchmark", name)
    wrong = round(size * WRONG_SHARES[name])
    lucky = round(wrong * RIGHT_ANSWER_SHARE)
    quotas = {(False, False): wrong - lucky, (False, True): lucky, (True, True): size - wrong}
    items: list[tuple[Problem, Any]] = []
    for batch in count():
        drawn = list(islice(problems, 2 * size))
        for problem, generator, steps in _solutions(drawn, rng, solver, f"processbench/{name}/{batch}"):
            row = {"id": "", "generator": generator, "problem": problem.text, "steps": steps}
            verdicts = assess_to_error(problem, steps)
            last, answered = verdicts[-1], steps[-1] == answer_text(problem.answer)
            if last is None or not steps[-1].startswith("The answer is") or not quotas[last.is_correct, answered]:
                continue
            quotas[last.is_correct, answered] -= 1
            label = -1 if last.is_correct else len(verdicts) - 1
            items.append((problem, row | {"final_answer_correct": answered, "label": label}))
        if len(items) == size:
            break
    rng.shuffle(items)
    items[-1] = (items[0][0], items[0][1] | {"generator": "repeated"})  # the real subsets repeat problems too
    for i, (_, row) in enumerate(items):
        row["id"] = f"{name}-{i}"
    return items


def _solutions(
    problems: list[Problem], rng: random.Random, solver: Solver, purpose: str
) -> Iterator[tuple[Problem, str, list[str]]]:
    """Solutions by the policy and by simulated solvers in turn; the solvers make faults of every kind."""
    sampled = iter(solver(problems[::2], purpose))
    for i, problem in enumerate(problems):
        habit = rng.randrange(len(SOLVERS))
        simulated = [written.text for written in write_solution(problem, rng, SOLVERS[habit])]
        by_policy = next(sampled, None) if i % 2 == 0 else None
        yield (problem, "small-world-policy", by_policy) if by_policy else (problem, f"simulated-{habit}", simulated)


def prmbench_class(pool: StoryPool, name: str) -> list[Any]:
    """Rows of one class; ``multi_solutions`` has only correct alternatives."""
    rng = random.Random(f"{pool.config.seed}/prmbench/{name}")
    problems = pool.stories(rng, "benchmark", "math", "olympiadbench", "omnimath")
    rows: list[Any] = []
    while len(rows) < pool.config.prmbench:
        row = _prmbench_row(next(problems), rng, name)
        if row is not None:
            rows.append(row | {"idx": f"small_world_{name}_{len(rows)}"})
    if name == "multi_solutions":
        rows[1]["idx"] = rows[2]["idx"] = rows[0]["idx"]
    if name == "step_contradiction":
        rows[0]["error_steps"] = [*rows[0]["error_steps"], len(rows[0]["modified_process"]) + 1]
    return rows


def _prmbench_row(problem: Problem, rng: random.Random, name: str) -> dict[str, Any] | None:
    if problem.is_sum and name in ("confidence", "multi_solutions"):
        return None  # the steps of a sum have only one wording
    original = [written.text for written in write_solution(problem, rng, Habits())]
    faults, errors = CLASSES[name], list[int]()
    if faults:
        planted = _planted(problem, rng, rng.choice(faults), confident=name == "confidence")
        if planted is None:
            return None
        modified, errors = planted
    else:
        modified = [written.text for written in write_solution(problem, rng, Habits(flourish=1.0))]
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
    """A solution with one fault, continued from its result, and the place of the fault (from 1)."""
    at = rng.randrange(len(problem.events) + 1)
    state, steps = begin(problem), list[str]()
    while not state.ended:
        link = CONFIDENT if confident else draw_link(rng, 0.15, problem)
        written: Verdict | None
        if len(steps) == at:
            written = fault_step(problem, state, fault, rng, link)
        else:
            written = safe_step(problem, state, LINKS[0] if confident and rng.random() >= 0.5 else link)
        if written is None or (len(steps) != at and not written.is_correct):
            return None  # the fault does not fit, or the incorrect value left the range; take the next story
        steps.append(written.text)
        state = written.after
    return (steps, [at + 1]) if at < len(steps) else None


def search_problems(pool: StoryPool, name: str) -> list[Problem]:
    """The problems of a search set."""
    problems = pool.stories(random.Random(f"{pool.config.seed}/search/{name}"), "search", SEARCH_LEVELS[name])
    return [next(problems) for _ in range(pool.config.search)]


def search_row(name: str, number: int, problem: Problem) -> dict[str, Any]:
    """A problem with the columns and the answer key of its set."""
    text, answer = problem.text, str(problem.answer)
    solution = "\n".join(w.text for w in write_solution(problem, random.Random(0), Habits(flourish=0.0)))
    rows: dict[str, dict[str, Any]] = {
        "math": {
            "problem": text,
            "level": "Level 2",
            "solution": solution,
            "subject": "Small World",
            "unique_id": f"test/small_world/{number}.json",
            "answer": answer,
        },
        "amc23": {"id": number, "problem": text, "answer": float(problem.answer), "url": "", "question": text},
        "aime24": {"id": number, "problem": text, "solution": solution, "answer": answer, "url": "", "question": text},
        "college_math": {
            "data_source": "small_world",
            "question_number": f"exercise.{number}",
            "question": text,
            "answer": f"${answer}$",
            "license": "Apache-2.0",
            "data_topic": "small_world.arithmetic",
        },
        "minerva_math": {"problem": text, "solution": solution, "type": "Small World", "idx": number},
        "olympiadbench": {
            "id": number,
            "subfield": "Small World",
            "context": None,
            "question": text,
            "solution": [solution],
            "final_answer": [answer],
            "is_multiple_answer": False,
            "unit": None,
            "answer_type": "Numerical",
            "error": None,
        },
    }
    return rows[name]
