"""A stage imports little before it knows its parameters: importing torch and transformers takes seconds."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SERVED = ("label", "critic", "sample", "control", "processbench", "prmbench", "search")
"""The stages that may leave every model to a server."""


def test_a_stage_that_asks_servers_does_not_wait_for_torch(root: Path) -> None:
    """The memory check of a machine without a GPU does not load it either."""
    names = ", ".join(f"stages.{name}" for name in SERVED)
    code = f"""
import sys, {names}
from pathfinder.models import cards
cards._has_driver = lambda: False
assert cards.this_device().kind == "cpu"
print(*[name for name in ("torch", "transformers") if hasattr(sys.modules.get(name), "__file__")])
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
