"""The plan: reasons in words, from DVC's status."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from flows.local.graph import Planned, load_graph, missing_data, out_of_date, planned
from tests.flows.conftest import PIPELINE


def test_reasons_name_code_inputs_parameters_and_outputs(tmp_path: Path) -> None:
    (tmp_path / "dvc.yaml").write_text(PIPELINE)
    graph = load_graph(tmp_path)
    status: dict[str, list[Any]] = {
        "numbers": [
            {
                "changed deps": {
                    "make.py": "modified",
                    "pathfinder/core": "modified",
                    "params.yaml": {"count": "modified"},
                }
            },
            "changed command",
        ],
        "square@odd": [{"changed outs": {"out/odd.txt": "deleted"}}],
        "data.dvc": [{"changed outs": {"data": "deleted"}}],
    }
    assert out_of_date(graph, status) == set(graph.stages)
    locked = {"numbers", "square@even", "square@odd"}
    assert planned(graph, status, locked, {"numbers", "square@odd", "square@even"}) == [
        Planned(
            "numbers",
            ("input make.py changed", "code pathfinder/core changed", "parameter count changed", "command changed"),
            True,
        ),
        Planned("square@even", ("needs numbers",), False),
        Planned("square@odd", ("output out/odd.txt missing",), True),
    ]
    assert planned(graph, {"total": []}, set(), set(graph.stages)) == [Planned("total", ("never run",), True)]
    assert planned(graph, {}, locked, set(graph.stages)) == []


def test_missing_content_of_dvc_files(tmp_path: Path) -> None:
    (tmp_path / ".dvc").mkdir()
    (tmp_path / "data.dvc").write_text(f"wdir: in\nouts:\n- {{path: data, md5: {'a' * 32}}}\n")
    assert missing_data(tmp_path) == ["data.dvc"]
    (tmp_path / "in/data").mkdir(parents=True)
    assert missing_data(tmp_path) == []
