"""The modules of the report import each other in one direction only."""

from __future__ import annotations

from pathlib import Path

import pytest

from evidence.record.identity import imported_names

ROOT = Path(__file__).resolve().parents[2]
ROOM = ROOT / "pathfinder/reporting"
ORDER = (
    "origins",
    "names",
    "results",
    "finished",
    "cells",
    "card",
    "comparisons",
    "calibration",
    "evidence",
    "tables",
    "paper_tables",
    "claims",
    "page.opening",
    "page.faults",
    "page.record_flow",
    "page.account",
    "page.mistakes",
    "page.registered",
    "page.decided",
    "page.contents",
    "page.exports",
    "index",
)
"""Each module may import only those before it."""


def module_of(name: str) -> str:
    """The entry of ``ORDER`` that a name of a module below the room belongs to; the index is one entry."""
    return (
        name.partition(".")[0]
        if name.startswith("index")
        else ".".join(name.split(".")[: 1 + name.startswith("page.")])
    )


def test_every_module_has_its_place() -> None:
    names = [".".join(path.relative_to(ROOM).with_suffix("").parts) for path in ROOM.rglob("*.py")]
    assert set(ORDER) == {module_of(name) for name in names if not name.endswith("__init__")}


@pytest.mark.parametrize("module", ORDER)
def test_imports_point_down(module: str) -> None:
    prefix = "pathfinder.reporting."
    stem = module.replace(".", "/")
    files = [*(ROOM / stem).glob("*.py")] or [ROOM / f"{stem}.py"]
    imported = {
        module_of(name.removeprefix(prefix))
        for file in files
        for name in imported_names(file, ROOT)
        if name.startswith(prefix)
    } - {"page"}
    assert imported - {module} <= set(ORDER[: ORDER.index(module)])
    assert imported or module in {"origins", "calibration", "index"}
