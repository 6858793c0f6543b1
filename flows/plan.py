"""What a run would do and why: DVC's status, read as reasons."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from flows.graph import Graph
from pathfinder.provenance.identity import is_code

_FILE_STATES = {"modified": "changed", "deleted": "missing", "new": "new", "not in cache": "not in the cache"}


@dataclass(frozen=True, slots=True)
class Planned:
    """A stage that a run would look at: why, and whether that is certain or depends on what comes before it."""

    name: str
    reasons: tuple[str, ...]
    certain: bool


def out_of_date(graph: Graph, status: Mapping[str, Any]) -> set[str]:
    """Stages that DVC's status names, and every stage that needs one of them."""
    return graph.descendants(name for name in status if name in graph.stages)


def missing_data(root: Path) -> list[str]:
    """``.dvc`` files beside dvc.yaml whose content is not in the workspace."""
    missing = []
    for pointer in sorted(root.glob("*.dvc")):
        if pointer.is_file():
            outs = (yaml.safe_load(pointer.read_text(encoding="utf-8")) or {}).get("outs", ())
            if any(not (root / out["path"]).exists() for out in outs):
                missing.append(pointer.name)
    return missing


def planned(graph: Graph, status: Mapping[str, Any], locked: set[str], selected: set[str]) -> list[Planned]:
    """The stages of ``selected`` that a run would look at, in order; ``locked`` are those that dvc.lock knows."""
    stale = out_of_date(graph, status)
    plan = []
    for name in graph.ordered():
        if name in stale & selected:
            before = sorted(graph.upstream[name] & stale)
            reasons = tuple(_reasons(status[name], name in locked)) if name in status else ()
            waits = (f"needs {', '.join(before)}",) if before else ()
            plan.append(Planned(name, reasons or waits, bool(reasons)))
    return plan


def _reasons(entries: Sequence[Any], known: bool) -> Iterator[str]:
    if not known:
        yield "never run"
        return
    for entry in entries:
        if not isinstance(entry, dict):
            yield "command changed" if entry == "changed command" else str(entry)
            continue
        for kind, paths in entry.items():
            for path, state in paths.items():
                yield from _reason(kind, path, state)


def _reason(kind: str, path: str, state: Any) -> Iterator[str]:
    if isinstance(state, dict):  # the keys of a parameter file
        yield from (f"parameter {key} {_FILE_STATES.get(what, what)}" for key, what in state.items())
    else:
        what = "output" if kind == "changed outs" else "code" if is_code(path) else "input"
        yield f"{what} {path} {_FILE_STATES.get(state, state)}"
