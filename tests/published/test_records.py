from __future__ import annotations

from typing import Any

from ground.io import text_digest
from pathfinder.core.prompts import STEP_SEPARATOR, judge_context
from pathfinder.data.monte_carlo import read_monte_carlo
from pathfinder.data.prm800k import read_prm800k
from pathfinder.data.upstream import Reading, UnreadableError
from tests.published.kept import cases, differences


def records(reading: Reading, score: str, indent: int, scores: dict[int | None, int | None]) -> list[dict[str, Any]]:
    """The records in the form of the published file; a rating is written as ``scores`` says."""
    found = []
    for rated in reading.records:
        prefix = reading.trunk[: rated.step_index]
        found.append(
            {"question": reading.problem, "prev_steps": STEP_SEPARATOR.join(prefix), "curr_step": rated.text}
            | {score: scores[rated.rating]}
            | {"context": text_digest(judge_context(reading.problem, prefix, rated.text, indent))}
        )
    return found


def test_records_of_prm800k() -> None:
    def ours(solution: dict[str, Any]) -> Any:
        reading = read_prm800k(solution, "official")
        return records(reading, "human_score", 16, {rating: rating for rating in (-1, 0, 1, None)})

    assert not differences(cases("records", "create_new_dataset"), ours)


def test_records_of_conversations() -> None:
    def ours(dataset: list[Any]) -> Any:
        found = []
        for example in dataset:
            try:
                reading = read_monte_carlo(example, "official")
            except UnreadableError:
                continue
            found += records(reading, "mistral_score", 20, {1: 1, -1: 0, None: -1})
        return found

    assert not differences(cases("records", "process_mistral_dataset"), ours)
