"""The stages, for runs under one fault at one system call; importing this module imports all of them."""

from __future__ import annotations

from importlib import import_module

from evidence.record.identity import code_digest
from tests.campaigns.faults.shim.checkpoint_task import warm
from tests.campaigns.faults.smallrun import STAGES

_MODULES = {name: import_module(f"stages.{name}") for name, _ in STAGES}

warm()
for name in ("prepare", "build", "train"):
    code_digest(name)  # the code does not change during a campaign


def stage(argv: list[str]) -> None:
    """Run the stage ``argv[0]`` with the other arguments."""
    _MODULES[argv[0]].main(argv[1:])
