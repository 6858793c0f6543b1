from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ground.io import write_json, write_jsonl
from pathfinder.benchmarks.grade import grade
from pathfinder.benchmarks.grading import Grader, gold_of
from tests.published.kept import cases, differences

COLUMNS = {"olympiadbench": "final_answer", "minerva_math": "solution"}


@pytest.fixture(scope="module")
def grader() -> Iterator[Grader]:
    with Grader() as grader:
        yield grader


def test_pairs_of_answers_get_the_published_verdict(grader: Grader) -> None:
    def verdict(pair: list[str]) -> bool:
        return grader.is_right((pair[0],), pair[1], "official")

    assert not differences(cases("answers", "verify_ans"), verdict)


def test_the_key_of_minerva_is_the_only_box_or_the_whole_text() -> None:
    assert not differences(cases("answers", "extract_boxed"), lambda key: gold_of("minerva_math", key, "official")[0])


def test_the_results_folder_of_the_published_search_gets_its_figures(tmp_path: Path) -> None:
    def ours(given: dict[str, Any]) -> dict[str, float]:
        for name, rows in given.items():
            write_json(tmp_path / "results" / name / "result-0-None.json", rows)
            problems = [{"problem": row["question"], COLUMNS.get(name, "answer"): row["gt_answer"]} for row in rows]
            write_jsonl(tmp_path / "data" / f"{name}.jsonl", problems)
        found = grade("search", tmp_path / "results", tmp_path / "data", "official")
        return {name: value / 100 for name, value in (found["sets"] | {"average": found["average"]}).items()}

    assert not differences(cases("answers", ""), ours)
