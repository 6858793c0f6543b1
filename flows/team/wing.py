"""A team's additions to every run (flows/__init__.py): places, notices, and reports of runs that were killed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from flows.dvc import Dvc
    from flows.graph import Graph
    from flows.places import Places


def places(dvc: Dvc, graph: Graph, address: str) -> Places:
    """The folder of the run and the pools of infra/resources.yaml."""
    from flows.team.pools.away import Away
    from flows.team.pools.table import needs

    return Away(dvc, graph, needs(dvc.root, graph.stages), address)


def tell(flow: Any, flow_run: Any, state: Any) -> None:
    """Send a notice of a run that failed or crashed."""
    from flows.team.notices import hooks

    hooks.tell(flow, flow_run, state)


def report_killed(**run: Any) -> None:
    """Report the end of a run whose process was killed."""
    from flows.team.notices import killed

    killed.report_killed(**run)


def state(root: Path) -> Iterator[str]:
    """The lines of `pathfinder team`."""
    from flows.team import view

    yield from view.state(root)
