from __future__ import annotations

from pathlib import Path
from typing import Any

from ground.io import write_json, write_jsonl
from pathfinder.benchmarks.grade import grade
from pathfinder.benchmarks.readers import SUBSETS
from tests.published.kept import Case, cases, differences

NAMES = {"error acc": "error_acc", "correct acc": "correct_acc", "f1": "f1"}
RUNS = cases("processbench", "main")


def test_the_folder_of_the_published_runner_gets_its_figures(tmp_path: Path) -> None:
    def ours(given: dict[str, Any]) -> Any:
        for name in SUBSETS:
            rows = [{key: value for key, value in item.items() if key != "predicted"} for item in given["data"][name]]
            write_json(tmp_path / "data" / f"{name}.json", rows)
        for name, rows in given["files"].items():
            write_jsonl(tmp_path / "out" / name, rows)
        found = grade("processbench", tmp_path / "out", tmp_path / "data", "official")["subsets"]
        return [{"config": name} | {theirs: found[name][mine] for theirs, mine in NAMES.items()} for name in SUBSETS]

    read = [Case({"data": run.input, "files": run.output["files"]}, run.output["results"]) for run in RUNS]
    assert not differences(read, ours)
