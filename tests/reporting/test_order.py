"""The modules of the report import each other in one direction only."""

from __future__ import annotations

from pathlib import Path

import pytest

from evidence.record.closure import imported_names

ROOT = Path(__file__).resolve().parents[2]
ROOM = ROOT / "pathfinder/reporting"
ORDER = (
    "names",
    "origins",
    "results",
    "finished",
    "cells",
    "card",
    "comparisons",
    "calibration",
    "evidence",
    "tables",
    "paper_tables",
    "plots",
    "claims",
    "opening",
    "faults",
    "record_flow",
    "account",
    "mistakes",
    "contents",
    "exports",
    "index",
)
"""Each module may import only those before it."""


def test_every_module_has_its_place() -> None:
    modules = {path.stem for path in ROOM.glob("*.py") if path.stem != "__init__"}
    assert sorted(ORDER) == sorted(modules | {"index"})


@pytest.mark.parametrize("module", ORDER)
def test_imports_point_down(module: str) -> None:
    prefix = "pathfinder.reporting."
    files = [*(ROOM / module).glob("*.py")] or [ROOM / f"{module}.py"]
    imported = {
        name.removeprefix(prefix).partition(".")[0]
        for file in files
        for name in imported_names(file, ROOT)
        if name.startswith(prefix)
    }
    assert imported - {module} <= set(ORDER[: ORDER.index(module)])
    assert imported or module in {"names", "origins", "calibration", "index"}
