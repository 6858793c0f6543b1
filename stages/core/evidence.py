"""The prediction files as evidence: each system's replicates on the three benchmarks, compared pair by pair."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from stages.core import comparisons
from stages.core.benchmarks import PRMBenchItem, ProcessBenchItem, read_prmbench, read_processbench
from stages.core.comparisons import Comparison, Measured, System, compare, gather
from stages.core.io import read_jsonl
from stages.core.params import Report
from stages.core.results import CONTROL, Levels, Score, spoken
from stages.core.runs import MAIN_MIX, Run, systems

PROCESSBENCH, PRMBENCH, SEARCH = "ProcessBench mean F1", "PRMScore", "search accuracy"
RANDOM, MAJORITY = "the random pick", "the policy's majority vote"
BEST_OF_N = {rule: f"its own best of n by {rule}" for rule in ("min", "product", "last", "mean")}
Row = dict[str, Any]


class Evidence:
    """Everything that the report reads from predictions; what is not there is left out. Read once, on first use."""

    def __init__(
        self, runs: Sequence[Run], predictions: Path, raw: Path, report: Report, others: Mapping[str, str] | None = None
    ) -> None:
        self.systems = systems(runs)
        self._others = dict(others or {})  # other people's PRMs: their files' names, and what they are called
        self._predictions, self._raw, self._report = predictions, raw, report

    def rows(self, name: str) -> list[Row]:
        """A prediction file's rows, or none where it is not there."""
        path = self._predictions / name
        return [row for _, row in read_jsonl(path)] if path.exists() else []

    @cached_property
    def processbench_items(self) -> Sequence[ProcessBenchItem]:
        """The benchmark itself."""
        folder = self._raw / "processbench"
        return read_processbench(folder).items if folder.exists() else []

    @cached_property
    def prmbench_items(self) -> Sequence[PRMBenchItem]:
        """The benchmark itself."""
        folder = self._raw / "prmbench"
        return read_prmbench(folder).items if folder.exists() else []

    @cached_property
    def measured(self) -> dict[str, dict[str, System]]:
        """For each benchmark the systems, by name, of which predictions are there; the controls among them."""
        processbench = self._of_systems("processbench", self._processbench)
        prmbench = self._of_systems("prmbench", self._prmbench)
        search = self._of_systems("search", lambda rows: comparisons.on_search(rows, "correct"))
        controls: list[tuple[dict[str, System], str, Measured | None]] = [
            (search, RANDOM, _if_any(self.rows(f"search/{CONTROL}.jsonl"), "correct")),
            (search, MAJORITY, _if_any(self.rows("sample.jsonl"), "majority_right")),
        ]
        for other in self._others:
            controls.append((processbench, other, self._processbench(self.rows(f"processbench/{other}.jsonl"))))
            controls.append((prmbench, other, self._prmbench(self.rows(f"prmbench/{other}.jsonl"))))
            controls.append((search, other, _if_any(self.rows(f"search/{other}.jsonl"), "correct")))
        for found, name, measured in controls:
            if measured and (control := gather({1: measured}, self._report, is_trained=False)):
                found[name] = control
        for rule, name in BEST_OF_N.items():
            if chosen := self._of_systems("best_of_n", partial(_chosen, rule), only="full").get("full"):
                search[name] = chosen
        return {"processbench": processbench, "prmbench": prmbench, "search": search}

    @cached_property
    def levels(self) -> Levels:
        """The level of every system that was trained from several seeds."""
        return {
            bench: {
                name: Score(level.value, level.low, level.high)
                for name, system in found.items()
                if len(self.systems.get(name, ())) > 1 and (level := system.level(self._report))
            }
            for bench, found in self.measured.items()
        }

    @cached_property
    def comparisons(self) -> dict[str, list[Comparison]]:
        """For each benchmark: each pair of ``pairs``, then guided search against what needs no PRM."""
        names = {system: spoken(members[0]) for system, members in self.systems.items()}
        names |= {name: name for name in (RANDOM, MAJORITY, *BEST_OF_N.values())} | self._others
        titles = {"processbench": PROCESSBENCH, "prmbench": PRMBENCH, "search": SEARCH}
        return {
            bench: compare(
                {names[name]: system for name, system in found.items()},
                [(names[left], names[right]) for left, right in self.pairs(bench)],
                titles[bench],
                self._report,
            )
            for bench, found in self.measured.items()
        }

    def pairs(self, benchmark: str) -> list[tuple[str, str]]:
        """Names of systems: the full variant and each other on the same mix, and the mixes of the full variant."""
        found = []
        for system, (run, *_) in self.systems.items():
            mix = "" if run.mix == MAIN_MIX else f"-{run.mix}"
            if run.variant != "full":
                found.append((f"full{mix}", system))
            elif mix:
                found.append(("full", system))
        if benchmark == "search":
            found += [("full", name) for name in (RANDOM, MAJORITY, *BEST_OF_N.values())]
        found += [("full", other) for other in self._others]
        return [pair for pair in found if pair[0] in self.systems]

    def _of_systems(
        self, folder: str, measure: Callable[[list[Row]], Measured | None], only: str = ""
    ) -> dict[str, System]:
        found = {}
        for system, members in self.systems.items():
            if only and system != only:
                continue
            runs = {
                run.seed: measured
                for run in members
                if (rows := self.rows(f"{folder}/{run.name}.jsonl")) and (measured := measure(rows))
            }
            if gathered := gather(runs, self._report):
                found[system] = gathered
        return found

    def _processbench(self, rows: list[Row]) -> Measured | None:
        keys = {(row["subset"], row["id"]) for row in rows}
        items = [item for item in self.processbench_items if (item.subset, item.id) in keys]
        return comparisons.on_processbench(items, rows) if items else None

    def _prmbench(self, rows: list[Row]) -> Measured | None:
        keys = {row["idx"] for row in rows}
        items = [item for item in self.prmbench_items if item.idx in keys]
        return comparisons.on_prmbench(items, rows) if items else None


def _if_any(rows: list[Row], figure: str) -> Measured | None:
    return comparisons.on_search(rows, figure) if rows else None


def _chosen(rule: str, rows: list[Row]) -> Measured:
    """Best of n by one rule, from rows of what each rule chose."""
    return comparisons.on_search([row | {"correct": row["right"][rule]} for row in rows], "correct")
