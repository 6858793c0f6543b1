"""The registry holds every system of the room and every PRM of the paper's tables."""

from __future__ import annotations

import re
import sys
from importlib import import_module
from pathlib import Path

import pytest

from ground.io import DataError
from pathfinder import baselines
from pathfinder.baselines.adapter import AUTHORS, System
from pathfinder.baselines.registry import FORMS, SYSTEMS, system
from pathfinder.benchmarks import paper
from tests.baselines.authors_scripts import PAIRS


def test_every_method_was_compared() -> None:
    """With the authors' and ProcessBench's scripts; ``tests/published/test_kit_models.py`` has PRMBench's."""
    assert {(name, way) for name, one in SYSTEMS.items() for way in one.methods if way != "prmbench"} == set(PAIRS)


def test_every_prm_of_the_papers_tables_is_a_system() -> None:
    titles = {title for one in SYSTEMS.values() for title in one.titles}
    judges = {row.name for row in paper.PROCESSBENCH_FULL.rows} - {row.name for row in paper.PROCESSBENCH.rows}
    judges |= {"Qwen-2.5-Math-72B", "QwQ-Preview-32B", "Gemini-2.0-flash-exp", "Gemini-2.0-thinking-exp-1219"}
    judges |= {"pass@1", "major@8", "pass@8"}
    rows = {row.name for table in (paper.PROCESSBENCH, paper.PRMBENCH, paper.SEARCH) for row in table.rows}
    theirs = {row for row in rows if row not in judges and not row.startswith("PathFinder")}
    assert theirs == titles
    for one in SYSTEMS.values():  # each system has one row in each of the three tables
        for table in (paper.PROCESSBENCH, paper.PRMBENCH, paper.SEARCH):
            assert sum(table.row(title) is not None for title in one.titles) == 1


def test_every_system_names_its_sources_and_what_they_leave_open() -> None:
    for one in (SYSTEMS | FORMS).values():
        assert AUTHORS in one.methods
        text = sys.modules[type(one.methods[AUTHORS].adapter).__module__].__doc__ or ""
        sources = text.partition("Source")[2]
        assert re.search(r"\w+/[\w-]+@[0-9a-f]{7}\b", sources), "a repository and its commit"
        assert "threshold" in sources


def test_every_system_of_the_room_is_registered() -> None:
    """A system object in any module of the room that the registry forgot would never be evaluated."""
    modules = [path.stem for path in sorted(Path(baselines.__file__).parent.glob("*.py")) if path.stem != "__init__"]
    found = {
        id(value): f"{module}.{name}"
        for module in modules
        for name, value in vars(import_module(f"pathfinder.baselines.{module}")).items()
        if isinstance(value, System)
    }
    registered = {id(one) for one in (SYSTEMS | FORMS).values()}
    assert len(registered) == 9 + 1
    assert [place for number, place in found.items() if number not in registered] == []
    assert registered == found.keys()


def test_no_title_belongs_to_two_systems() -> None:
    titles = [title for one in SYSTEMS.values() for title in one.titles]
    assert len({*titles}) == len(titles)


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(DataError, match="unknown system 'x'; expected one of pathfinder-prm-7b, llemma, math-psa, "):
        system("x")
