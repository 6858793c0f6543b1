"""Statistics from the prediction files: every system's replicates on the three benchmarks, compared pair by pair."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from pathfinder.benchmarks.bootstrap import Estimate, Spread
from pathfinder.benchmarks.readers import PRMBenchItem, ProcessBenchItem, read_prmbench, read_processbench
from pathfinder.core.io import read_jsonl
from pathfinder.core.params import Report
from pathfinder.core.runs import MAIN_MIX
from pathfinder.reporting import comparisons
from pathfinder.reporting.calibration import Rewards, prmbench_rewards, processbench_rewards
from pathfinder.reporting.comparisons import Comparison, Measured, System, compare, gather, spread_of
from pathfinder.reporting.results import (
    CONTROL,
    PRMBENCH,
    PROCESSBENCH,
    SEARCH,
    Benchmark,
    Levels,
    Line,
    Results,
    Score,
    lines,
    name_of,
    spoken,
)

RANDOM, MAJORITY = "the random pick", "the policy's majority vote"
ONE_SAMPLE = "one sample of the policy (pass@1)"
BEST_OF_N = {rule: f"its own best of n ({rule})" for rule in ("min", "product", "last", "mean")}
_SEARCH_RIVALS = (ONE_SAMPLE, RANDOM, MAJORITY, *BEST_OF_N.values())
Row = dict[str, Any]
Measure = Callable[[list[Row]], Measured | None]


class Evidence:
    """The prediction files and their statistics. Each is computed once, on first use; missing files are skipped."""

    def __init__(self, results: Results, predictions: Path, raw: Path, report: Report) -> None:
        self.results, self.systems = results, results.systems
        self._published = {name: results.titles(name)[0] for found in results.published.values() for name in found}
        self._predictions, self._raw, self._report = predictions, raw, report

    def rows(self, name: str, only_set: str = "") -> list[Row]:
        """A prediction file's rows, of one search set if named; empty if the file does not exist."""
        path = self._predictions / name
        rows = (row for _, row in read_jsonl(path)) if path.exists() else ()
        return [row for row in rows if not only_set or row["set"] == only_set]

    @cached_property
    def processbench_items(self) -> Sequence[ProcessBenchItem]:
        """ProcessBench's problems."""
        folder = self._raw / "processbench"
        return read_processbench(folder).items if folder.exists() else []

    @cached_property
    def prmbench_items(self) -> Sequence[PRMBenchItem]:
        """PRMBench's problems."""
        folder = self._raw / "prmbench"
        return read_prmbench(folder).items if folder.exists() else []

    @cached_property
    def measured(self) -> dict[Benchmark, dict[str, System]]:
        """Per benchmark, every system, control and published PRM that has predictions."""
        ways: dict[Benchmark, Measure] = {PROCESSBENCH: self._processbench, PRMBENCH: self._prmbench, SEARCH: _correct}
        found = {bench: self._of_systems(bench.key, measure) for bench, measure in ways.items()}
        found[SEARCH] |= self._search_rivals()
        for bench, measure in ways.items():
            for name in self._published:
                if system := self._untrained(measure(self.rows(f"{bench.key}/{name}.jsonl"))):
                    found[bench][name] = system
        return found

    @cached_property
    def by_set(self) -> dict[str, tuple[Estimate, list[Comparison]]]:
        """Per search set, the policy's pass@1 and comparisons of the full variant's guided search with its rivals."""
        found = {}
        for name in dict.fromkeys(str(row["set"]) for row in self.rows("sample.jsonl")):
            search = self._of_systems("search", _correct, name, only="full")
            search |= self._search_rivals(name)
            pairs = [("full", other) for other in (ONE_SAMPLE, MAJORITY, BEST_OF_N["min"])]
            compared = compare(search, pairs, name, self._report)
            if compared and ONE_SAMPLE in search:
                found[name] = search[ONE_SAMPLE].level(self._report), compared
        return found

    @cached_property
    def levels(self) -> Levels:
        """The score of every system, on each benchmark where some system has several seeds."""
        return {
            bench: {
                name: _score(system.level(self._report, spread))
                for name, system in self.measured[bench].items()
                if name in self.systems
            }
            for bench, spread in self.spreads.items()
            if spread
        }

    @cached_property
    def spreads(self) -> dict[Benchmark, Spread | None]:
        """Per benchmark, the variance between our systems' seeds, if some system has several."""
        return {
            bench: spread_of(system for name, system in found.items() if name in self.systems)
            for bench, found in self.measured.items()
        }

    @cached_property
    def lines(self) -> list[Line]:
        """The rows of the main results."""
        best_of_n = self.measured[SEARCH].get(BEST_OF_N["min"])
        return lines(self.results, self.levels, _score(best_of_n.level(self._report)) if best_of_n else None)

    @cached_property
    def comparisons(self) -> dict[Benchmark, list[Comparison]]:
        """Per benchmark, a comparison for each of ``pairs``."""
        names = {system: spoken(members[0]) for system, members in self.systems.items()}
        names |= {name: name for name in _SEARCH_RIVALS} | self._published
        return {
            bench: compare(
                {names[name]: system for name, system in found.items()},
                [(names[left], names[right]) for left, right in self.pairs(bench)],
                bench.title,
                self._report,
                self.spreads[bench],
            )
            for bench, found in self.measured.items()
        }

    def pairs(self, benchmark: Benchmark) -> list[tuple[str, str]]:
        """The names of systems to compare.

        The full variant is compared with each other variant on the same mix, with itself on the other mixes, with
        published PRMs, and on search with its rivals.
        """
        found = []
        for system, (run, *_) in self.systems.items():
            mix = "" if run.mix == MAIN_MIX else f"-{run.mix}"
            if run.variant != "full":
                found.append((f"full{mix}", system))
            elif mix:
                found.append(("full", system))
        rivals = _SEARCH_RIVALS if benchmark == SEARCH else ()
        found += [("full", name) for name in (*rivals, *self._published)]
        return [pair for pair in found if pair[0] in self.systems]

    @property
    def first_runs(self) -> dict[str, str]:
        """Each system's first run, by the system's name in tables."""
        return {name_of(members[0]): members[0].name for members in self.systems.values()}

    @cached_property
    def rewards(self) -> dict[str, dict[str, Rewards]]:
        """The rewards of each system's first run on both benchmarks, if they cover correct and incorrect steps.

        Runs that stopped early are left out on ProcessBench, because they score only some of the steps.
        """
        found: dict[str, dict[str, Rewards]] = {"ProcessBench": {}, "PRMBench": {}}
        for name, run in self.first_runs.items():
            if run not in self.results.stopped_early:
                rows = self.rows(f"processbench/{run}.jsonl")
                found["ProcessBench"][name] = processbench_rewards(self.processbench_items, rows)
            found["PRMBench"][name] = prmbench_rewards(self.prmbench_items, self.rows(f"prmbench/{run}.jsonl"))
        return {
            bench: {name: each for name, each in rewards.items() if each.has_both} for bench, rewards in found.items()
        }

    def _search_rivals(self, only_set: str = "") -> dict[str, System]:
        """Guided search's rivals on all sets or one: the policy without a PRM, and the full variant's best of n."""
        rows = self.rows("sample.jsonl", only_set)
        sampled = [row | {"share": sum(row["right"]) / len(row["right"])} for row in rows]
        found = {
            ONE_SAMPLE: self._untrained(_share("share", sampled)),
            RANDOM: self._untrained(_correct(self.rows(f"search/{CONTROL}.jsonl", only_set))),
            MAJORITY: self._untrained(_share("majority_right", sampled)),
        }
        for rule, name in BEST_OF_N.items():
            found[name] = self._of_systems("best_of_n", partial(_chosen, rule), only_set, only="full").get("full")
        return {name: system for name, system in found.items() if system is not None}

    def _untrained(self, measured: Measured | None) -> System | None:
        return gather({1: measured}, self._report, is_trained=False) if measured else None

    def _of_systems(self, folder: str, measure: Measure, only_set: str = "", only: str = "") -> dict[str, System]:
        found = {}
        for system, members in self.systems.items():
            if only and system != only:
                continue
            measured = {run.seed: measure(self.rows(f"{folder}/{run.name}.jsonl", only_set)) for run in members}
            if gathered := gather({seed: run for seed, run in measured.items() if run}, self._report):
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


def _correct(rows: list[Row]) -> Measured | None:
    return _share("correct", rows)


def _chosen(rule: str, rows: list[Row]) -> Measured | None:
    """Best of n by one rule, from rows that hold the choice of each rule."""
    return _correct([row | {"correct": row["right"][rule]} for row in rows])


def _score(estimate: Estimate) -> Score:
    return Score(estimate.value, estimate.low, estimate.high)
