"""The generated benchmarks: exact labels, classes and answer keys."""

from __future__ import annotations

from pathlib import Path

from ground.io import read_json, read_jsonl
from tests.support.stories import SMALL, read_again
from world.oracle import assess_all
from world.problem_sets import CLASSES, SEARCH_LEVELS
from world.story import LEVELS


def _solution_labels(problem_text: str, steps: list[str]) -> list[bool | None]:
    problem = read_again(problem_text)
    return [None if verdict is None else verdict.is_correct for verdict in assess_all(problem, steps)]


def test_processbench_labels_are_exact(corpus: Path) -> None:
    for name in LEVELS:
        rows = read_json(corpus / "processbench" / f"{name}.json")
        assert len(rows) == SMALL.processbench
        for row in rows:
            correct = _solution_labels(row["problem"], row["steps"])
            assert row["label"] == (correct.index(False) if False in correct else -1)
            answer = f"\\boxed{{{read_again(row['problem']).answer}}}"
            assert row["final_answer_correct"] == (answer in row["steps"][-1])
        assert any(row["label"] >= 0 and row["final_answer_correct"] for row in rows)


def test_prmbench_classes(corpus: Path) -> None:
    for name, faults in CLASSES.items():
        rows = [row for _, row in read_jsonl(corpus / "prmbench" / f"small_world_{name}.jsonl")]
        assert {row["classification"] for row in rows} == {name}
        for row in rows:
            verdicts = assess_all(read_again(row["modified_question"]), row["modified_process"])
            wrong = [i for i, v in enumerate(verdicts, start=1) if v is not None and v.faults]
            assert [i for i in row["error_steps"] if i <= len(verdicts)] == wrong
            assert all(f in faults for v in verdicts if v is not None for f in v.faults)
            originals = assess_all(read_again(row["original_question"]), row["original_process"])
            assert all(v is not None and not v.faults for v in originals)
    beyond = read_jsonl(corpus / "prmbench" / "small_world_step_contradiction.jsonl")
    assert sum(max(row["error_steps"]) > len(row["modified_process"]) for _, row in beyond) == 1


def test_search_sets_keep_their_answer_keys(corpus: Path) -> None:
    rows = {name: next(read_jsonl(corpus / "search" / f"{name}.jsonl"))[1] for name in SEARCH_LEVELS}
    truth = {name: read_again(row.get("problem", row.get("question"))).answer for name, row in rows.items()}
    assert rows["amc23"]["answer"] == float(truth["amc23"])
    assert rows["math"]["answer"] == str(truth["math"])
    assert rows["college_math"]["answer"] == f"${truth['college_math']}$"
    assert rows["olympiadbench"]["final_answer"] == [str(truth["olympiadbench"])]
    assert "answer" not in rows["minerva_math"]
    assert f"\\boxed{{{truth['minerva_math']}}}" in rows["minerva_math"]["solution"]
