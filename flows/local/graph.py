"""The stages of dvc.yaml: what each depends on, the order in which they start, and which of them would run."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any

from evidence.dvc.history import overlap, reached, read_pointer
from evidence.dvc.pipeline import Stage, read_pipeline
from evidence.record.identity import is_code
from ground.io import DataError
from ground.settings import read_yaml
from ground.text import meant
from pathfinder.core.params import PARAMS_FILE, load_params

_STATES = {"modified": "changed", "deleted": "missing", "new": "new", "not in cache": "not in the cache"}


@dataclass(frozen=True, slots=True)
class Graph:
    """Stages in the order of dvc.yaml and, for each, the names of the stages whose outputs it reads.

    ``targets`` are the targets of the active profile, which hold if a run names none; empty for all stages.
    """

    stages: Mapping[str, Stage]
    upstream: Mapping[str, frozenset[str]]
    targets: tuple[str, ...] = ()

    def descendants(self, names: Iterable[str]) -> set[str]:
        """``names`` and every stage that depends on one of them."""
        edges = {name: [other for other, needed in self.upstream.items() if name in needed] for name in self.stages}
        return reached(names, edges.__getitem__)

    def select(self, targets: Iterable[str]) -> set[str]:
        """The stages that ``targets`` depend on: stages with or without variant, or outputs (default: the profile's).

        Raises ``DataError`` if a target matches no stage.
        """
        chosen: set[str] = set()
        for target in [*targets] or self.targets:
            found = {
                stage.name
                for stage in self.stages.values()
                if target in (stage.name, stage.name.partition("@")[0]) or target.rstrip("/") in stage.all_outs
            }
            if not found:
                known = dict.fromkeys([*(name.partition("@")[0] for name in self.stages), *self.stages])
                raise DataError(
                    f"{target}: no stage or output of dvc.yaml; {meant(target, known)}"
                    f"stages are {', '.join(self.stages)}"
                )
            chosen |= found
        return reached(chosen or self.stages, self.upstream.__getitem__)

    def ranks(self) -> dict[str, int]:
        """The length of the longest chain of stages after each stage; a higher rank should start earlier."""
        ranks = dict.fromkeys(self.stages, 0)
        for name in reversed(self.ordered()):
            for needed in self.upstream[name]:
                ranks[needed] = max(ranks[needed], ranks[name] + 1)
        return ranks

    def ordered(self) -> list[str]:
        """Names in an order in which every stage follows its inputs; raises ``DataError`` on a cycle."""
        return [name for level in self._levels() for name in level]

    def width(self, names: set[str]) -> int:
        """The largest number of ``names`` at one depth: an estimate of how many can run concurrently."""
        return max((len(names.intersection(level)) for level in self._levels()), default=0) or 1

    def _levels(self) -> Iterator[list[str]]:
        """The stages in groups that need only the groups before them."""
        sorter = TopologicalSorter(self.upstream)
        try:
            sorter.prepare()
        except CycleError as error:
            raise DataError(f"dvc.yaml: these stages depend on each other: {', '.join(error.args[1])}") from error
        while ready := sorter.get_ready():
            yield sorted(ready, key=list(self.stages).index)
            sorter.done(*ready)


def profile_of(root: Path) -> str:
    """The profile that params.yaml names, or nothing."""
    path = root / PARAMS_FILE
    return str(read_yaml(path).get("profile") or "") if path.is_file() else ""


def load_graph(root: Path) -> Graph:
    """Read ``root/dvc.yaml`` and the targets in ``root/params.yaml``; raises ``DataError`` if one is not valid.

    DVC also runs pipelines whose params.yaml names no profile and has different keys.
    """
    params = read_yaml(root / PARAMS_FILE) if (root / PARAMS_FILE).is_file() else {}
    if "profile" in params:
        load_params(root / PARAMS_FILE)  # as every stage does
    stages = read_pipeline(root)
    upstream = {
        name: frozenset(other for other, made in stages.items() if other != name and meet(made.all_outs, stage.deps))
        for name, stage in stages.items()
    }
    return Graph(stages, upstream, tuple(params.get("targets", ())))


def meet(outs: Iterable[str], deps: Collection[str]) -> bool:
    """Return whether an output is, contains, or is inside a dependency; DVC matches them in the same way."""
    return any(overlap(out, dep) for out in outs for dep in deps)


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
    """The ``.dvc`` files of ``root`` whose content is not in the workspace; raises as ``read_pointer``."""
    pointers = [path for path in sorted(root.glob("*.dvc")) if path.is_file()]
    return [each.name for each in pointers if any(not (root / out).exists() for out in read_pointer(root, each).outs)]


def planned(graph: Graph, status: Mapping[str, Any], locked: set[str], selected: set[str]) -> list[Planned]:
    """The out-of-date stages of ``selected`` in order; ``locked`` are the stages in the lock."""
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
