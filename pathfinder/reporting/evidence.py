"""Statistics from the prediction files: every system's replicates on the three benchmarks, compared pair by pair."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import Any, Protocol

from ground.io import read_jsonl
from pathfinder.benchmarks.bootstrap import Spread, pooled
from pathfinder.benchmarks.prmbench import VALIDITY
from pathfinder.benchmarks.readers import read_prmbench, read_processbench
from pathfinder.core.params import Report
from pathfinder.core.prompts import VARIANTS as BY_NAME
from pathfinder.core.readings import reading_for, readings_of
from pathfinder.core.runs import Run
from pathfinder.policy.choosing import COLUMNS, RULES
from pathfinder.reporting import comparisons
from pathfinder.reporting.calibration import Rewards, prmbench_rewards, processbench_rewards
from pathfinder.reporting.comparisons import Comparison, Measured, System, compare, gather
from pathfinder.reporting.names import (
    CONTROL,
    PRMBENCH,
    PROCESSBENCH,
    SEARCH,
    VARIANTS,
    Benchmark,
    marked,
    name_of,
    spoken,
)
from pathfinder.reporting.origins import from_files, made
from pathfinder.reporting.results import Line, Results, Score, lines

FULL = VARIANTS["full"]
RANDOM, MAJORITY = "the random pick", "the policy's majority vote"
ONE_SAMPLE = "one sample of the policy (pass@1)"
BEST_OF_N = {rule: f"its own {way} n ({score})" for rule, (way, score) in RULES.items()}
_FILES_KEPT = 8
"""Prediction files in memory at a time: the seeds of our systems, which several rules read in turn."""
_BETWEEN = "variance between seeds"
Row = dict[str, Any]
Measure = Callable[[list[Row]], Measured]


class Truth(Protocol):
    """The true faults of the steps of generated problems."""

    @property
    def kinds(self) -> Mapping[str, tuple[str, ...]]:
        """The names of the faults by kind: ``mathematics``, ``consistency``, ``not optimal``."""

    def faults(self, problem: str, steps: Sequence[str]) -> list[tuple[str, ...] | None] | None:
        """The faults of each step (``None``: unknown); ``None`` for a problem that is not generated."""


def _read(path: Path) -> list[Row]:
    """The rows of a prediction file, without the candidates of a search: most of its bytes, and no statistic."""
    return [{key: value for key, value in row.items() if key != "iteration_history"} for _, row in read_jsonl(path)]


class Evidence:
    """The prediction files and their statistics. Each is computed once, on first use; missing files are skipped."""

    def __init__(
        self, results: Results, predictions: Path, raw: Path, report: Report, truth: Truth | None = None
    ) -> None:
        self.results, self.truth = results, truth
        self.systems = {spoken(members[0]): members for members in results.systems}
        self.first_runs = {name_of(members[0]): members[0].name for members in results.systems}
        self._published = {results.titles(name)[0]: name for found in results.published.values() for name in found}
        self._predictions, self.report = predictions, report
        self._read = lru_cache(maxsize=_FILES_KEPT)(_read)
        processbench, prmbench = raw / "processbench", raw / "prmbench"
        self.processbench_items = read_processbench(processbench).items if processbench.exists() else []
        self.prmbench_items = read_prmbench(prmbench).items if prmbench.exists() else []
        self._measures: dict[Benchmark, Measure] = {
            PROCESSBENCH: partial(comparisons.on_processbench, self.processbench_items),
            PRMBENCH: partial(comparisons.on_prmbench, self.prmbench_items),
            SEARCH: comparisons.on_search,
        }
        self._items = {PROCESSBENCH.key: _files_in(processbench), PRMBENCH.key: _files_in(prmbench)}

    def files(self, name: str) -> tuple[str, ...]:
        """A prediction file and the files of the benchmark's items, for the origin of what is measured on both."""
        return (self._predictions / name).as_posix(), *self._items.get(name.partition("/")[0], ())

    def rows(self, name: str, only_set: str = "") -> list[Row]:
        """A prediction file's rows, of one search set if named; empty if the file does not exist."""
        path = self._predictions / name
        rows = self._read(path) if path.exists() else ()
        return [row for row in rows if not only_set or row["set"] == only_set]

    @cached_property
    def measured(self) -> dict[Benchmark, dict[str, System]]:
        """Per benchmark, every system, control and published PRM that has predictions."""
        found = {}
        for bench, measure in self._measures.items():
            systems = {name: self._trained(name, bench.key, measure) for name in self.systems}
            systems |= self._search_rivals() if bench is SEARCH else {}
            for title, name in self._published.items():
                file, metrics = f"{bench.key}/{name}.jsonl", self.results.published[bench].get(name)
                systems[title] = self._untrained(measure(self.rows(file)), file, metrics.reading if metrics else "")
            found[bench] = _existing(systems)
        return found

    @cached_property
    def is_toy(self) -> bool:
        """True if the benchmarks are generated: the truth of their problems is known."""
        items = (self.processbench_items[:1], self.prmbench_items[:1])
        problems = [item.problem for found in items for item in found]
        return bool(problems) and all(self.truth and self.truth.faults(problem, ()) is not None for problem in problems)

    @cached_property
    def by_set(self) -> dict[str, tuple[Score, list[Comparison]]]:
        """Per search set, the policy's pass@1 and comparisons of the full variant's guided search with its rivals."""
        found, sets = {}, dict.fromkeys(str(row["set"]) for row in self.rows("sample.jsonl"))
        measure = partial(self._trained, folder="search", measure=comparisons.on_search)
        ours = {system: {name: measure(system, only_set=name) for name in sets} for system in self.systems}
        for name in sets:
            mine = {system: measured[name] for system, measured in ours.items()}
            systems = _existing(mine | self._search_rivals(name))
            pairs = [(FULL, other) for other in (ONE_SAMPLE, MAJORITY, BEST_OF_N["min"])]
            if compared := compare(systems, pairs, name, self.report, self._between(systems)):
                found[name] = systems[ONE_SAMPLE].level(self.report), compared
        return found

    @cached_property
    def spreads(self) -> dict[Benchmark, Spread | None]:
        """Per benchmark, the variance between our systems' seeds, if some system has several."""
        return {bench: self._between(found) for bench, found in self.measured.items()}

    def _between(self, found: Mapping[str, System]) -> Spread | None:
        """The variance between the seeds of our systems among ``found``, with their files as its origin."""
        ours = [system for name, system in found.items() if name in self.systems]
        spread = pooled(system.replicates for system in ours)
        files = dict.fromkeys(file for system in ours if len(system.seeds) > 1 for file in system.files)
        return spread and replace(spread, variance=made(_BETWEEN, spread.variance, [from_files(_BETWEEN, files)]))

    @cached_property
    def lines(self) -> list[Line]:
        """The rows of the main results."""
        levels = {bench: self._levels(self.measured[bench], spread) for bench, spread in self.spreads.items() if spread}
        found = {rule: self.measured[SEARCH].get(BEST_OF_N[rule]) for rule in ("min", "weighted_min")}
        chosen = {rule: system.level(self.report, self.spreads[SEARCH]) for rule, system in found.items() if system}
        return lines(self.results, levels, chosen, {rule: self._levels_by(rule) for rule in COLUMNS})

    def _levels(self, found: Mapping[str, System], spread: Spread | None) -> dict[str, Score]:
        """The scores by name, without our systems of which a seed is missing, because the label counts all seeds."""
        return {
            name: system.level(self.report, spread)
            for name, system in found.items()
            if name not in self.systems or len(system.seeds) == len(self.systems[name])
        }

    def _levels_by(self, rule: str) -> dict[str, Score]:
        """Each of our systems' score if a rule chooses among whole solutions, by spoken name."""
        measure = partial(_best_of_n, rule)
        found = _existing({name: self._trained(name, "best_of_n", measure) for name in self.systems})
        return self._levels(found, self._between(found))

    @cached_property
    def compared(self) -> list[Comparison]:
        """The comparisons, benchmark by benchmark, whose both sides have predictions.

        The full variant is compared with each other variant on the same mix, with itself on the other mixes, with
        published PRMs, and on search with its rivals.
        """
        pairs = self._pairs + [
            (FULL, rival) for rival in (ONE_SAMPLE, RANDOM, MAJORITY, *BEST_OF_N.values(), *self._published)
        ]
        found: list[Comparison] = []
        for bench, systems in self.measured.items():
            found += compare(systems, pairs, bench.title, self.report, self.spreads[bench])
        return found

    @cached_property
    def compared_as_published(self) -> list[Comparison]:
        """The comparisons among our systems under the published rule of PRMBench, if the main rule is another one.

        ProcessBench's published rule reads soundness, as ours does. The search has no other rule, because another rule
        would lead to other steps.
        """
        if PRMBENCH in self.results.official:
            return []
        measure = partial(_as_published, self._measures[PRMBENCH])
        systems = _existing(
            {
                name: self._trained(name, PRMBENCH.key, measure, reading=reading_as_published(runs[0].variant))
                for name, runs in self.systems.items()
            }
        )
        return compare(systems, self._pairs, PRMBENCH.title, self.report, self._between(systems))

    @property
    def _pairs(self) -> list[tuple[str, str]]:
        """The full variant and each other variant on the same mix, and the full variant on the main and other mixes."""
        pairs = []
        for name, (run, *_) in self.systems.items():
            full = spoken(replace(run, variant="full"))
            pairs += [(full, name)] if run.variant != "full" else [(FULL, name)] if name != FULL else []
        return pairs

    @cached_property
    def rewards(self) -> dict[str, dict[str, Rewards]]:
        """The rewards of each system's first run on both benchmarks, if they cover correct and incorrect steps.

        A system is named with its reading if it lacks the benchmark's.

        Systems that object to no step are left out, because their curves say nothing. On ProcessBench so are runs that
        stopped early, because they score only some of the steps.
        """
        readers: dict[str, tuple[Benchmark, Callable[[list[Row]], Rewards]]] = {
            "ProcessBench": (PROCESSBENCH, partial(processbench_rewards, self.processbench_items)),
            "PRMBench": (PRMBENCH, partial(prmbench_rewards, self.prmbench_items)),
        }
        found: dict[str, dict[str, Rewards]] = {title: {} for title in readers}
        for title, (bench, read) in readers.items():
            for run, *_ in self.systems.values():
                file = f"{bench.key}/{run.name}.jsonl"
                rewards = replace(read(self.rows(file)), files=self.files(file))
                is_partial = bench is PROCESSBENCH and run.name in self.results.stopped_early
                if rewards.has_both and rewards.has_objection and not is_partial:
                    found[title][marked(name_of(run), bench, run.variant)] = rewards
        return found

    def _search_rivals(self, only_set: str = "") -> dict[str, System | None]:
        """Guided search's rivals on all sets or one: the policy without a PRM, and the full variant's choices."""
        sample, random = "sample.jsonl", f"search/{CONTROL}.jsonl"
        rows = self.rows(sample, only_set)
        sampled = [row | {"share": sum(row["right"]) / len(row["right"])} for row in rows]
        found = {
            ONE_SAMPLE: self._untrained(comparisons.on_search(sampled, "share"), sample),
            RANDOM: self._untrained(comparisons.on_search(self.rows(random, only_set)), random),
            MAJORITY: self._untrained(comparisons.on_search(rows, "majority_right"), sample),
        }
        for rule, name in BEST_OF_N.items():
            found[name] = self._trained(FULL, "best_of_n", partial(_best_of_n, rule), only_set)
        return found

    def _trained(
        self, system: str, folder: str, measure: Measure, only_set: str = "", reading: str = ""
    ) -> System | None:
        runs = self.systems.get(system, ())
        names = {run.seed: f"{folder}/{run.name}.jsonl" for run in runs}
        measured = {
            seed: replace(measure(self.rows(name, only_set)), files=self.files(name)) for seed, name in names.items()
        }
        return gather(measured, self.report, reading=reading or self._reading(folder, runs))

    def _reading(self, folder: str, runs: Sequence[Run]) -> str:
        """The reading of a system's main figures in the metrics of its first run."""
        found = next((files for bench, files in self.results.benchmarks.items() if bench.key == folder), {})
        return next((found[run.name].reading for run in runs if run.name in found), "")

    def _untrained(self, measured: Measured, name: str, reading: str = "") -> System | None:
        return gather({1: replace(measured, files=self.files(name))}, self.report, False, reading)


def _files_in(folder: Path) -> tuple[str, ...]:
    return tuple(path.as_posix() for path in sorted(folder.glob("*.json*")) if path.is_file())


def _as_published(measure: Measure, rows: list[Row]) -> Measured:
    """The rows with labels by the published rule, measured by these."""
    labels = [(row, row["scores"].get(f"{VALIDITY}_official")) for row in rows]
    return measure([row | {"scores": {VALIDITY: found}} for row, found in labels if found is not None])


def reading_as_published(variant: str) -> str:
    """The reading of a variant under the published rules, which read its labels of the first pass."""
    return reading_for("soundness", readings_of(BY_NAME[variant]))


def _existing(systems: Mapping[str, System | None]) -> dict[str, System]:
    return {name: system for name, system in systems.items() if system is not None}


def _best_of_n(rule: str, rows: list[Row]) -> Measured:
    """Best of n by one rule, from rows that hold the choice of each rule; none if the rule is newer than the rows."""
    return comparisons.on_search([row | {"correct": row["right"][rule]} for row in rows if rule in row["right"]])
