"""The prediction files as evidence: each system's replicates on the three benchmarks, compared pair by pair."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from pathfinder.benchmarks.bootstrap import Estimate, Spread
from pathfinder.benchmarks.readers import PRMBenchItem, ProcessBenchItem, read_prmbench, read_processbench
from pathfinder.core.io import read_jsonl
from pathfinder.core.params import Report
from pathfinder.core.runs import MAIN_MIX, Run, systems
from pathfinder.reporting import comparisons
from pathfinder.reporting.comparisons import Comparison, Measured, System, compare, gather, spread_of
from pathfinder.reporting.results import CONTROL, Levels, Score, spoken

PROCESSBENCH, PRMBENCH, SEARCH = "ProcessBench mean F1", "PRMScore", "search accuracy"
RANDOM, MAJORITY = "the random pick", "the policy's majority vote"
ONE_SAMPLE = "one sample of the policy (pass@1)"
BEST_OF_N = {rule: f"its own best of n by {rule}" for rule in ("min", "product", "last", "mean")}
_BESIDE_SEARCH = (ONE_SAMPLE, RANDOM, MAJORITY, *BEST_OF_N.values())
_ONE_RIGHT = "share_right"
Row = dict[str, Any]


class Evidence:
    """Everything that the report reads from predictions; what is not there is left out. Read once, on first use."""

    def __init__(
        self, runs: Sequence[Run], predictions: Path, raw: Path, report: Report, others: Mapping[str, str] | None = None
    ) -> None:
        self.systems = systems(runs)
        self._others = dict(others or {})  # other people's PRMs: their files' names, and what they are called
        self._predictions, self._raw, self._report = predictions, raw, report

    def rows(self, name: str, only_set: str = "") -> list[Row]:
        """A prediction file's rows (of one search set), or none where it is not there."""
        path = self._predictions / name
        rows = (row for _, row in read_jsonl(path)) if path.exists() else ()
        return [row for row in rows if not only_set or row["set"] == only_set]

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
        search = self._of_systems("search", partial(_share, "correct")) | self._beside_search()
        controls: list[tuple[dict[str, System], str, Measured | None]] = []
        for other in self._others:
            controls.append((processbench, other, self._processbench(self.rows(f"processbench/{other}.jsonl"))))
            controls.append((prmbench, other, self._prmbench(self.rows(f"prmbench/{other}.jsonl"))))
            controls.append((search, other, _share("correct", self.rows(f"search/{other}.jsonl"))))
        for found, name, measured in controls:
            if control := self._untrained(measured):
                found[name] = control
        return {"processbench": processbench, "prmbench": prmbench, "search": search}

    @cached_property
    def by_set(self) -> dict[str, tuple[Estimate, list[Comparison]]]:
        """For each search set: the policy's pass@1 there, and guided search of the full variant against rivals."""
        found = {}
        for name in dict.fromkeys(str(row["set"]) for row in self.rows("sample.jsonl")):
            search = self._of_systems("search", partial(_share, "correct"), name, only="full")
            search |= self._beside_search(name)
            pairs = [("full", other) for other in (ONE_SAMPLE, MAJORITY, BEST_OF_N["min"])]
            compared = compare(search, pairs, name, self._report)
            if compared and ONE_SAMPLE in search:
                found[name] = search[ONE_SAMPLE].level(self._report), compared
        return found

    def _beside_search(self, only_set: str = "") -> dict[str, System]:
        """What guided search has to beat, on all sets or one: without a PRM, and best of n by the full variant."""
        sampled = self.rows("sample.jsonl", only_set)
        found = {
            ONE_SAMPLE: self._untrained(_share(_ONE_RIGHT, [row | {_ONE_RIGHT: _mean(row)} for row in sampled])),
            RANDOM: self._untrained(_share("correct", self.rows(f"search/{CONTROL}.jsonl", only_set))),
            MAJORITY: self._untrained(_share("majority_right", sampled)),
        }
        for rule, name in BEST_OF_N.items():
            found[name] = self._of_systems("best_of_n", partial(_chosen, rule), only_set, only="full").get("full")
        return {name: system for name, system in found.items() if system is not None}

    def _untrained(self, measured: Measured | None) -> System | None:
        return gather({1: measured}, self._report, is_trained=False) if measured else None

    @cached_property
    def levels(self) -> Levels:
        """The level of every system, on each benchmark where any was trained from several seeds."""
        return {
            bench: {
                name: Score(level.value, level.low, level.high)
                for name, system in self.measured[bench].items()
                if name in self.systems and (level := system.level(self._report, spread))
            }
            for bench, spread in self.spreads.items()
            if spread
        }

    @cached_property
    def best_of_n(self) -> Score | None:
        """The full variant's best of n by the minimum of its rewards, where it was measured."""
        system = self.measured["search"].get(BEST_OF_N["min"])
        level = system.level(self._report) if system else None
        return Score(level.value, level.low, level.high) if level else None

    @cached_property
    def spreads(self) -> dict[str, Spread | None]:
        """For each benchmark what our systems' figures vary by between training seeds, where any has several."""
        return {
            bench: spread_of(system for name, system in found.items() if name in self.systems)
            for bench, found in self.measured.items()
        }

    @cached_property
    def comparisons(self) -> dict[str, list[Comparison]]:
        """For each benchmark: each pair of ``pairs``, then guided search against what needs no PRM."""
        names = {system: spoken(members[0]) for system, members in self.systems.items()}
        names |= {name: name for name in _BESIDE_SEARCH} | self._others
        titles = {"processbench": PROCESSBENCH, "prmbench": PRMBENCH, "search": SEARCH}
        return {
            bench: compare(
                {names[name]: system for name, system in found.items()},
                [(names[left], names[right]) for left, right in self.pairs(bench)],
                titles[bench],
                self._report,
                self.spreads[bench],
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
            found += [("full", name) for name in _BESIDE_SEARCH]
        found += [("full", other) for other in self._others]
        return [pair for pair in found if pair[0] in self.systems]

    def _of_systems(
        self, folder: str, measure: Callable[[list[Row]], Measured | None], only_set: str = "", only: str = ""
    ) -> dict[str, System]:
        found = {}
        for system, members in self.systems.items():
            if only and system != only:
                continue
            runs = {
                run.seed: measured
                for run in members
                if (rows := self.rows(f"{folder}/{run.name}.jsonl", only_set)) and (measured := measure(rows))
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


def _share(figure: str, rows: list[Row]) -> Measured | None:
    return comparisons.on_search(rows, figure) if rows else None


def _chosen(rule: str, rows: list[Row]) -> Measured | None:
    """Best of n by one rule, from rows of what each rule chose."""
    return _share("correct", [row | {"correct": row["right"][rule]} for row in rows])


def _mean(row: Row) -> float:
    """The share of a problem's samples that are right."""
    return sum(row["right"]) / len(row["right"])
