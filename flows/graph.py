"""Dependencies between stages, and the order in which the stages should start."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from pathfinder.core.io import DataError
from pathfinder.provenance.pipeline import Stage, read_pipeline


@dataclass(frozen=True, slots=True)
class Graph:
    """Stages in the order of dvc.yaml and, for each, the names of the stages whose outputs it reads."""

    stages: Mapping[str, Stage]
    upstream: Mapping[str, frozenset[str]]

    def ancestors(self, names: Iterable[str]) -> set[str]:
        """``names`` and every stage that one of them depends on."""
        return _closure(names, self.upstream)

    def descendants(self, names: Iterable[str]) -> set[str]:
        """``names`` and every stage that depends on one of them."""
        downstream = {
            name: [other for other, needed in self.upstream.items() if name in needed] for name in self.stages
        }
        return _closure(names, downstream)

    def select(self, targets: Iterable[str]) -> set[str]:
        """The stages that ``targets`` depend on: names with or without variant, or output paths (default: all stages).

        Raises ``DataError`` if a target matches no stage.
        """
        chosen: set[str] = set()
        for target in targets:
            path = target.rstrip("/")
            found = {
                stage.name
                for stage in self.stages.values()
                if target in (stage.name, stage.name.partition("@")[0]) or path in stage.all_outs
            }
            if not found:
                raise DataError(f"{target}: no stage or output of dvc.yaml; stages are {', '.join(self.stages)}")
            chosen |= found
        return self.ancestors(chosen or self.stages)

    def ranks(self) -> dict[str, int]:
        """The length of the longest chain of stages after each stage; a higher rank should start earlier."""
        ranks = dict.fromkeys(self.stages, 0)
        for name in reversed(list(self.ordered())):
            for needed in self.upstream[name]:
                ranks[needed] = max(ranks[needed], ranks[name] + 1)
        return ranks

    def ordered(self) -> Iterator[str]:
        """Names in an order in which every stage follows its inputs; raises ``DataError`` on a cycle."""
        done: set[str] = set()
        waiting = list(self.stages)
        while waiting:
            ready = [name for name in waiting if self.upstream[name] <= done]
            if not ready:
                raise DataError(f"dvc.yaml: these stages depend on each other: {', '.join(waiting)}")
            yield from ready
            done.update(ready)
            waiting = [name for name in waiting if name not in done]

    def width(self, names: Iterable[str]) -> int:
        """The largest number of ``names`` at one depth: an estimate of how many can run concurrently."""
        depth: dict[str, int] = {}
        for name in self.ordered():
            depth[name] = 1 + max((depth[other] for other in self.upstream[name]), default=0)
        return max(Counter(depth[name] for name in names).values(), default=1)


def load_graph(root: Path) -> Graph:
    """Read ``root/dvc.yaml``; raises ``DataError`` if it is not valid."""
    stages = read_pipeline(root)
    upstream = {
        stage.name: frozenset(
            other.name for other in stages.values() if other is not stage and _feeds(other, stage.deps)
        )
        for stage in stages.values()
    }
    return Graph(stages, upstream)


def _closure(names: Iterable[str], edges: Mapping[str, Iterable[str]]) -> set[str]:
    found: set[str] = set()
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting.extend(edges[name])
    return found


def _feeds(stage: Stage, deps: Iterable[str]) -> bool:
    """Whether an output is, contains, or is inside a dependency; DVC matches them in the same way."""
    outs = [PurePosixPath(out) for out in stage.all_outs]
    needs = [PurePosixPath(dep) for dep in deps]
    return any(out.is_relative_to(need) or need.is_relative_to(out) for out in outs for need in needs)
