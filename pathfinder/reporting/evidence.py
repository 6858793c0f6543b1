"""Statistics from the prediction files: every system's replicates on the three benchmarks, compared pair by pair."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from pathfinder.benchmarks.bootstrap import Spread, pooled
from pathfinder.benchmarks.readers import PRMBenchItem, ProcessBenchItem, read_prmbench, read_processbench
from pathfinder.core.io import read_jsonl
from pathfinder.core.params import Report
from pathfinder.core.runs import MAIN_MIX
from pathfinder.reporting.calibration import Rewards, prmbench_rewards, processbench_rewards
from pathfinder.reporting.comparisons import (
    Comparison,
    Measured,
    System,
    compare,
    gather,
    on_prmbench,
    on_processbench,
    on_search,
)
from pathfinder.reporting.names import CONTROL, PRMBENCH, PROCESSBENCH, SEARCH, Benchmark, name_of, spoken
from pathfinder.reporting.results import Line, Results, Score, lines

RANDOM, MAJORITY = "the random pick", "the policy's majority vote"
ONE_SAMPLE = "one sample of the policy (pass@1)"
BEST_OF_N = {rule: f"its own best of n ({rule})" for rule in ("min", "product", "last", "mean")}
_SEARCH_RIVALS = (ONE_SAMPLE, RANDOM, MAJORITY, *BEST_OF_N.values())
Row = dict[str, Any]
Measure = Callable[[list[Row]], Measured]


class Evidence:
    """The prediction files and their statistics. Each is computed once, on first use; missing files are skipped."""

    def __init__(self, results: Results, predictions: Path, raw: Path, report: Report) -> None:
        self.results, self.systems = results, results.systems
        self.first_runs = {name_of(members[0]): members[0].name for members in self.systems.values()}
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
        measures: dict[Benchmark, Measure] = {
            PROCESSBENCH: partial(on_processbench, self.processbench_items),
            PRMBENCH: partial(on_prmbench, self.prmbench_items),
            SEARCH: on_search,
        }
        found = {}
        for bench, measure in measures.items():
            systems = {name: self._trained(name, bench.key, measure) for name in self.systems}
            systems |= self._search_rivals() if bench is SEARCH else {}
            for name in self._published:
                systems[name] = self._untrained(measure(self.rows(f"{bench.key}/{name}.jsonl")))
            found[bench] = _existing(systems)
        return found

    @cached_property
    def by_set(self) -> dict[str, tuple[Score, list[Comparison]]]:
        """Per search set, the policy's pass@1 and comparisons of the full variant's guided search with its rivals."""
        found = {}
        for name in dict.fromkeys(str(row["set"]) for row in self.rows("sample.jsonl")):
            full = self._trained("full", "search", on_search, name)
            systems = _existing({"full": full} | self._search_rivals(name))
            pairs = [("full", other) for other in (ONE_SAMPLE, MAJORITY, BEST_OF_N["min"])]
            if compared := compare(systems, pairs, name, self._report):
                found[name] = systems[ONE_SAMPLE].level(self._report), compared
        return found

    @cached_property
    def spreads(self) -> dict[Benchmark, Spread | None]:
        """Per benchmark, the variance between our systems' seeds, if some system has several."""
        return {
            bench: pooled(system.replicates for name, system in found.items() if name in self.systems)
            for bench, found in self.measured.items()
        }

    @cached_property
    def lines(self) -> list[Line]:
        """The rows of the main results."""
        levels = {
            bench: {name: found.level(self._report, spread) for name, found in self.measured[bench].items()}
            for bench, spread in self.spreads.items()
            if spread
        }
        best_of_n = self.measured[SEARCH].get(BEST_OF_N["min"])
        return lines(self.results, levels, best_of_n.level(self._report) if best_of_n else None)

    @cached_property
    def comparisons(self) -> list[Comparison]:
        """The comparisons, benchmark by benchmark, whose both sides have predictions.

        The full variant is compared with each other variant on the same mix, with itself on the other mixes, with
        published PRMs, and on search with its rivals.
        """
        pairs = []
        for system, (run, *_) in self.systems.items():
            mix = "" if run.mix == MAIN_MIX else f"-{run.mix}"
            if run.variant != "full":
                pairs.append((f"full{mix}", system))
            elif mix:
                pairs.append(("full", system))
        pairs += [("full", name) for name in (*_SEARCH_RIVALS, *self._published)]
        names = {system: spoken(members[0]) for system, members in self.systems.items()}
        names |= {name: name for name in _SEARCH_RIVALS} | self._published
        found: list[Comparison] = []
        for bench, systems in self.measured.items():
            by_name = {names[name]: system for name, system in systems.items()}
            named = [(names[left], names[right]) for left, right in pairs if left in systems]
            found += compare(by_name, named, bench.title, self._report, self.spreads[bench])
        return found

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

    def _search_rivals(self, only_set: str = "") -> dict[str, System | None]:
        """Guided search's rivals on all sets or one: the policy without a PRM, and the full variant's best of n."""
        rows = self.rows("sample.jsonl", only_set)
        sampled = [row | {"share": sum(row["right"]) / len(row["right"])} for row in rows]
        found = {
            ONE_SAMPLE: self._untrained(on_search(sampled, "share")),
            RANDOM: self._untrained(on_search(self.rows(f"search/{CONTROL}.jsonl", only_set))),
            MAJORITY: self._untrained(on_search(rows, "majority_right")),
        }
        for rule, name in BEST_OF_N.items():
            found[name] = self._trained("full", "best_of_n", partial(_best_of_n, rule), only_set)
        return found

    def _trained(self, system: str, folder: str, measure: Measure, only_set: str = "") -> System | None:
        runs = self.systems.get(system, ())
        return gather(
            {run.seed: measure(self.rows(f"{folder}/{run.name}.jsonl", only_set)) for run in runs}, self._report
        )

    def _untrained(self, measured: Measured) -> System | None:
        return gather({1: measured}, self._report, is_trained=False)


def _existing(systems: Mapping[str, System | None]) -> dict[str, System]:
    return {name: system for name, system in systems.items() if system is not None}


def _best_of_n(rule: str, rows: list[Row]) -> Measured:
    """Best of n by one rule, from rows that hold the choice of each rule."""
    return on_search([row | {"correct": row["right"][rule]} for row in rows])
