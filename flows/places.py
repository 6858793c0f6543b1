"""The places where the stages of a run execute: its own folder, unless a package below ``flows`` adds places."""

from __future__ import annotations

from collections.abc import Collection
from typing import Annotated

from pydantic import Field

from flows.local.dvc import Dvc, OnLine, State
from flows.local.graph import Graph
from ground.io import PathfinderError, TransientError
from ground.settings import Section

Count = Annotated[int, Field(ge=0)]


class Retries(Section):
    """How often a stage is tried again: after a ``transient`` error, a ``lost`` worker, and any other ``error``."""

    transient: Count = 3
    lost: Count = 1
    error: Count = 0


class WorkerLost(PathfinderError, RuntimeError):
    """The worker of a stage, or its machine, is gone."""


def class_of(error: object) -> str:
    """The name of the class of an error, as ``Retries`` has it."""
    if isinstance(error, WorkerLost):
        return "lost"
    return "transient" if isinstance(error, TransientError) or getattr(error, "transient", False) else "error"


class Places:
    """The places of a run's stages: all run in its folder. A subclass may send stages to other machines."""

    def __init__(self, dvc: Dvc, graph: Graph, address: str) -> None:
        self.dvc, self.root, self.graph, self.address = dvc, dvc.root, graph, address
        self.pushed: set[str] = set()
        """The stages whose outs are on the remote ``address`` already, so that the run need not push them."""

    def is_here(self, name: str) -> bool:
        """Return whether a stage runs in the folder of the run, where it takes one of the run's jobs."""
        return True

    def retries(self, name: str) -> Retries:
        """How often a stage is tried again."""
        return Retries()

    def check(self, stages: Collection[str]) -> None:
        """Raise ``DataError`` before any stage starts if one of ``stages`` cannot run at its place."""

    def run(self, name: str, force: bool, on_line: OnLine) -> State:
        """Run a stage if it is out of date, or restore its outs from the cache; raises as ``Dvc.reproduce`` does."""
        return self.dvc.reproduce(name, force, on_line)

    def push(self, *names: str) -> None:
        """Send the outs of stages to the remote; raises as ``Dvc.push`` does."""
        self.dvc.push(*names)
        self.pushed.update(names)

    def stop(self) -> None:
        """End the stages that run, at every place."""
        self.dvc.stop()
