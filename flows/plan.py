"""The stages that a run would execute, with reasons derived from DVC's status."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evidence.record.identity import is_code
from flows.graph import Graph
from ground.settings import read_yaml

_STATES = {"modified": "changed", "deleted": "missing", "new": "new", "not in cache": "not in the cache"}


@dataclass(frozen=True, slots=True)
class Planned:
    """A stage of the plan; it is not ``certain`` to run if that depends on the outputs of earlier stages."""

    name: str
    reasons: tuple[str, ...]
    certain: bool


def out_of_date(graph: Graph, status: Mapping[str, Any]) -> set[str]:
    """The stages in DVC's status, and every stage that depends on one of them."""
    return graph.descendants(name for name in status if name in graph.stages)


def missing_data(root: Path) -> list[str]:
    """The ``.dvc`` files of ``root`` whose content is not in the workspace."""
    pointers = [path for path in sorted(root.glob("*.dvc")) if path.is_file()]
    return [p.name for p in pointers if any(not (root / out["path"]).exists() for out in read_yaml(p).get("outs", ()))]


def planned(graph: Graph, status: Mapping[str, Any], locked: set[str], selected: set[str]) -> list[Planned]:
    """The out-of-date stages of ``selected`` in order; ``locked`` are the stages in dvc.lock."""
    stale = out_of_date(graph, status)
    plan = []
    for name in graph.ordered():
        if name in stale & selected:
            before = sorted(graph.upstream[name] & stale)
            reasons = tuple(_reasons(status[name], name in locked)) if name in status else ()
            waits = (f"needs {', '.join(before)}",) if before else ()
            plan.append(Planned(name, reasons or waits, bool(reasons)))
    return plan


def _reasons(entries: Sequence[Any], is_locked: bool) -> Iterator[str]:
    if not is_locked:
        yield "never run"
        return
    for entry in entries:
        if not isinstance(entry, dict):
            yield "command changed" if entry == "changed command" else str(entry)
            continue
        for kind, paths in entry.items():
            for path, state in paths.items():
                if isinstance(state, dict):  # the keys of a parameter file
                    yield from (f"parameter {key} {_STATES.get(change, change)}" for key, change in state.items())
                else:
                    what = "output" if kind == "changed outs" else "code" if is_code(path) else "input"
                    yield f"{what} {path} {_STATES.get(state, state)}"
