from __future__ import annotations

from typing import Any

from pathfinder.benchmarks.grading import extract_boxed
from pathfinder.benchmarks.readers import SearchProblem
from pathfinder.engines.sampling import Completion
from pathfinder.policy import search as searching
from tests.published.kept import cases, differences
from tests.support.searches import Script, Table, settings


def test_boxes_are_found_as_published() -> None:
    assert not differences(cases("search", "extract_boxed"), extract_boxed)


def test_characters_are_legal_as_published() -> None:
    def legal(character: str) -> bool:
        return bool(searching._candidates([Completion(f"{character}.\n\n", 1, "stop")], (), "official"))

    assert not differences(cases("search", "is_math_answer_valid"), legal)


def test_whole_searches_end_as_published() -> None:
    def ours(given: dict[str, Any]) -> Any:
        draws = given["draws"]

        def say(_: str, number: int, draw: int) -> tuple[str, str]:
            return draws[min(number, len(draws)) - 1][draw], "stop"

        problem = SearchProblem("math", "0", "Q?", "3")
        chosen = settings(n=8, max_rounds=30)
        (row,) = searching.search([problem], Script(say), Table(given["rewards"]), chosen, "official")
        keys = ("question", "iteration_history", "final_steps", "gt_answer", "pred_answer")
        return [{key: row[key] for key in keys}]

    assert not differences(cases("search", "main"), ours)
