from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ground.io import DataError, write_jsonl
from pathfinder.benchmarks.grade import grade
from pathfinder.benchmarks.readers import CORRECT, read_prmbench
from tests.published.kept import Case, cases, differences

RUNS = cases("prmbench", "evaluate_function")
MEANS = ("correct_step_acc", "wrong_step_acc", "total_step_acc", "first_error_acc", "similarity")
SHARES = ("precision", "recall", "f1", "negative_precision", "negative_recall", "negative_f1")


def data_of(given: dict[str, Any], folder: Path) -> Path:
    write_jsonl(folder / "data" / "rows.jsonl", given["rows"])
    return folder / "data"


def test_rows_become_the_items_of_the_kit(tmp_path: Path) -> None:
    def items(given: dict[str, Any]) -> Any:
        found = read_prmbench(data_of(given, tmp_path)).items
        return [
            {"idx": item.idx, "question": item.problem, "steps": list(item.steps)}
            | {"error_steps": list(item.error_steps), "classification": item.classification}
            for item in found
        ]

    read = [Case(run.input, run.output["items"]) for run in RUNS if "items" in run.output]
    assert not differences(read, items)


def graded(given: dict[str, Any], folder: Path, lines: list[Any]) -> dict[str, Any]:
    write_jsonl(folder / "predictions.jsonl", lines)
    return grade("prmbench", folder / "predictions.jsonl", data_of(given, folder), "official")


def test_predictions_get_the_figures_of_the_kit_and_the_table_made_of_them(tmp_path: Path) -> None:
    def figures(given: dict[str, Any]) -> Any:
        try:
            found = graded(given, tmp_path, given["results"])
        except DataError:
            return {"raises": "AssertionError"}
        details = found["details"]
        types = {name: {key: tally[name] for key, tally in details["classes"].items()} for name in (*MEANS, *SHARES)}
        names = {"task_name": "prmtest_classified", "model_name": "reasoneval"}
        total = {name: details["total"][name] for name in (*MEANS, *SHARES)}
        score = {name: value / 100 for name, value in (*found["classes"].items(), ("overall", found["overall"]))}
        return {
            "figures": {"total_hallucination_results": total, "hallucination_type_results": types, **names}
            | {"validitiy_rate": details["validity_rate"]},
            "table": score,
        }

    read = [
        Case(run.input, {key: run.output[key] for key in ("figures", "table") if key in run.output} or run.output)
        for run in RUNS
    ]
    assert not differences(read, figures)


@pytest.mark.parametrize("preset", ["official", "repaired"])
@pytest.mark.parametrize("form", ["checkpoint", "log"])
def test_every_file_of_the_kit_is_graded_like_its_results(tmp_path: Path, form: str, preset: Any) -> None:
    runs = [run for run in RUNS if run.output.get("files")]
    assert len(runs) >= 8
    for run in runs:
        data = data_of(run.input, tmp_path)
        found = []
        for lines in (run.input["results"], run.output["files"][form]):
            write_jsonl(tmp_path / "predictions.jsonl", lines)
            found.append(grade("prmbench", tmp_path / "predictions.jsonl", data, preset))
        plain, kit = found
        assert [kit[key] for key in ("classes", "categories", "overall")] == [
            plain[key] for key in ("classes", "categories", "overall")
        ]
        tallies = [{k: v for k, v in one["details"]["classes"].items() if k != CORRECT} for one in found]
        assert tallies[0] == tallies[1]
