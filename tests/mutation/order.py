"""A pytest plugin: run the fastest tests first, so that most mutants end after milliseconds.

mutmut records how long each test takes; its fork server passes the tests of a mutant in no order.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

DURATIONS = Path("mutmut-stats.json")
"""Where mutmut records durations, seen from its folder ``mutants``."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sort the tests by their recorded duration; a new test comes first."""
    if DURATIONS.exists():
        seconds = json.loads(DURATIONS.read_text())["duration_by_test"]
        items.sort(key=lambda item: seconds.get(item.nodeid, 0.0))
