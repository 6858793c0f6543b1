"""The prediction files as evidence: each system's replicates on the three benchmarks, compared pair by pair."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
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
Row = dict[str, Any]


class Evidence:
    """Everything that the report reads from predictions; what is not there is left out. Read once, on first use."""

    def __init__(self, runs: Sequence[Run], predictions: Path, raw: Path, report: Report) -> None:
        self.systems = systems(runs)
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
        for name, rows, figure in (
            (RANDOM, self.rows(f"search/{CONTROL}.jsonl"), "correct"),
            (MAJORITY, self.rows("sample.jsonl"), "majority_right"),
        ):
            if rows and (control := gather({1: comparisons.on_search(rows, figure)}, self._report, is_trained=False)):
                search[name] = control
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
        names |= {RANDOM: RANDOM, MAJORITY: MAJORITY}
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
            found += [("full", RANDOM), ("full", MAJORITY)]
        return [pair for pair in found if pair[0] in self.systems]

    def _of_systems(self, folder: str, measure: Callable[[list[Row]], Measured | None]) -> dict[str, System]:
        found = {}
        for system, members in self.systems.items():
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
