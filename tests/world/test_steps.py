"""Written steps: every fault can be planted, and steps survive the published separator."""

from __future__ import annotations

import random
from collections import Counter

from pathfinder.core.prompts import STEP_SEPARATOR
from tests.support.stories import STORY
from world.lessons import word_questions
from world.oracle import ERRORS, SUBOPTIMAL, assess
from world.steps import Habits, fault_step, write_solution
from world.story import LEVELS, sample_problem


def test_every_fault_can_be_planted_by_itself_and_word_questions_agree() -> None:
    rng = random.Random("faults")
    planted: Counter[str] = Counter()
    for _ in range(60):
        problem = sample_problem(rng, LEVELS["olympiadbench"])
        assert all(0 <= value <= LEVELS["olympiadbench"].largest for value in problem.values)
        for written in write_solution(problem, rng, Habits(misread=0.5, slip=0.2, idle=0.1)):
            for fault in (*ERRORS, *SUBOPTIMAL):
                verdict = fault_step(problem, written.before, fault, rng)
                if verdict:
                    assert verdict == assess(problem, written.before, verdict.text)
                    assert verdict.faults == (fault,)
                    words = word_questions(verdict)
                    assert "".join(word for word, _ in words) == verdict.text
                    assert any(holds is False for _, holds in words) == (fault not in SUBOPTIMAL[1:])
                    planted[fault] += 1
    missing = {*ERRORS, *SUBOPTIMAL} - set(planted) - {"event"}
    assert not missing


def test_steps_survive_the_published_separator() -> None:
    solution = [w.text for w in write_solution(STORY, random.Random(1), Habits())]
    assert STEP_SEPARATOR.join(solution).split(STEP_SEPARATOR) == solution
