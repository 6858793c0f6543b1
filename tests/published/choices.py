"""How search-and-learn chooses among the answers to a problem.

``latex2sympy2_extended``, which the project has, takes the place of its ancestor ``latex2sympy2``; both give these
cases the same forms.
"""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any

from latex2sympy2_extended import latex2sympy

from tests.published.sources import Differs, Source, absent

REPOSITORY, MATH, SCORE = "huggingface/search-and-learn", "src/sal/utils/math.py", "src/sal/utils/score.py"
POOLS = (
    ("1", "2", "3"),
    ("12", "-12", "120"),
    ("\\frac{1}{2}", "\\frac{2}{4}", "2"),
    ("2x+1", "1+2x", "x"),
    ("x^2", "y", "5"),
    ("1", "", "2"),
)
SCORES = (0.0, 0.125, 0.25, 0.5, 0.75, 1.0)
"""Exact in binary, so that sums can tie."""
EMPTY = "docs/search.md: an empty answer has a vote"


def record(sources: Mapping[str, Source]) -> list[dict[str, Any]]:
    """The three choices, and the score of a solution's steps."""
    sal = sources[REPOSITORY]
    with absent("latex2sympy2", "word2number", latex2sympy2={"latex2sympy": latex2sympy}):
        math, score = (sal.package("src", f"sal.utils.{name}") for name in ("math", "score"))

    def naive(given: dict[str, Any]) -> str:
        found = math.compute_naive_pred({"preds@1": given["answers"], "agg_scores@1": given["scores"]}, 1)
        return str(found["pred_naive@1"]).removeprefix("\\boxed{").removesuffix("}")

    def weighted(given: dict[str, Any]) -> str:
        return str(math.find_answer_with_largest_sum(**given))

    def most(given: dict[str, Any]) -> str:
        return str(math.find_majority_answer(given["answers"]))

    def scores(steps: list[float]) -> dict[str, float]:
        return {rule: score.aggregate_scores(steps, rule) for rule in ("min", "prod", "last")}

    problems = _problems()
    choices = {"compute_naive_pred": naive, "find_answer_with_largest_sum": weighted, "find_majority_answer": most}
    return [
        *(
            sal.recorded(MATH, name, run, [given if run(given) else Differs(given, EMPTY) for given in problems])
            for name, run in choices.items()
        ),
        sal.recorded(SCORE, "aggregate_scores", scores, [_steps(Random(number)) for number in range(12)]),
    ]


def _problems() -> list[dict[str, Any]]:
    problems = []
    for number in range(60):
        rng = Random(number)
        pool = POOLS[number % len(POOLS)]
        count = rng.choice((1, 2, 4, 8))
        answers = [rng.choice(pool) for _ in range(count)]
        problems.append({"answers": answers, "scores": [rng.choice(SCORES) for _ in answers]})
    return problems


def _steps(rng: Random) -> list[float]:
    return [rng.random() for _ in range(rng.randint(1, 6))]
