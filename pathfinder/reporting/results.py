"""The stages' metric files, any of which may be missing, and the report's rows of main results."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from pathlib import Path
from typing import Literal, TypeVar

from pydantic import TypeAdapter

from ground.io import read_json
from pathfinder.benchmarks.metrics import PRMBench, ProcessBench
from pathfinder.core.metrics import Measured, Stage, checked
from pathfinder.core.runs import Run, systems
from pathfinder.data.metrics import Build, Prepare, Truth
from pathfinder.judge.metrics import Label
from pathfinder.policy.choosing import RULES
from pathfinder.policy.metrics import Sample, Search
from pathfinder.reporting import names
from pathfinder.reporting.names import PRMBENCH, PROCESSBENCH, SEARCH, Benchmark
from pathfinder.reporting.origins import placed
from pathfinder.training.metrics import LOG, LogRow, Train

Form = TypeVar("Form")
View = Callable[[Measured], Measured | None]
"""Takes the figures of one decision rule from a system's metrics."""
as_published: View = attrgetter("official")
"""The figures of the published rule in the published evaluator's arithmetic, as the paper's figures of its models."""
repaired: View = attrgetter("by_default_rule")
"""The figures of our default rule and grading, whichever rule the preset selects."""


@dataclass(frozen=True, slots=True)
class Results:
    """The content of ``metrics/``; a missing file is ``None`` or absent from its mapping."""

    runs: tuple[Run, ...]
    prepare: Prepare | None
    label: Label | None
    filtered: Stage | None
    validated: Stage | None
    build: Build | None
    train_validated: Stage | None
    sample: Sample | None
    truth: Truth | None  # judge and filter compared with known labels
    train: Mapping[str, Train]  # by run
    logs: Mapping[str, list[LogRow]]  # by run
    processbench: Mapping[str, ProcessBench]  # by run
    prmbench: Mapping[str, PRMBench]  # by run
    search: Mapping[str, Search]  # by run, and the control
    published: Mapping[Benchmark, Mapping[str, Measured]]  # published PRMs and critics by name

    @property
    def stages(self) -> dict[str, Stage | None]:
        """The stages of the data by name, in their order."""
        return {
            "prepare": self.prepare,
            "label": self.label,
            "filter": self.filtered,
            "validate": self.validated,
            "build": self.build,
            "validate_train": self.train_validated,
        }

    @property
    def benchmarks(self) -> dict[Benchmark, Mapping[str, Measured]]:
        """The metrics on each benchmark, by run; the search also has the control."""
        return {PROCESSBENCH: self.processbench, PRMBENCH: self.prmbench, SEARCH: self.search}

    @property
    def systems(self) -> list[list[Run]]:
        """The runs of each system, in the profile's order."""
        return list(systems(self.runs).values())

    def read(self, benchmark: Benchmark, view: View | None) -> dict[str, Measured]:
        """The figures that ``view`` takes from each run's metrics, or its main ones; runs without any are left out."""
        files = self.benchmarks[benchmark].items()
        return {name: found for name, metrics in files if (found := view(metrics) if view else metrics) is not None}

    @property
    def official(self) -> list[Benchmark]:
        """The benchmarks on which our systems' main figures follow the published rule, as the profile selects."""
        presets = {
            bench: {metrics.preset for name, metrics in files.items() if name != names.CONTROL}
            for bench, files in self.benchmarks.items()
        }
        return [bench for bench, found in presets.items() if found == {"official"}]

    @property
    def whole(self) -> list[Benchmark]:
        """The benchmarks on which every system was measured as a whole, as in the paper (``Measured.is_whole``)."""
        return [
            bench
            for bench, files in self.benchmarks.items()
            if all(metrics.is_whole for metrics in (*files.values(), *self.published[bench].values()))
        ]

    def asked(self, benchmark: Benchmark) -> str:
        """The reading of the main figures on a benchmark: the declared one, or what PRMBench's published rule reads."""
        return "soundness" if benchmark is PRMBENCH and benchmark in self.official else benchmark.reading

    def reading_besides(self, benchmark: Benchmark, run: Run) -> str:
        """The reading of a run's main figures on a benchmark; empty if it is the one ``asked``, or none is known."""
        found = self.benchmarks[benchmark].get(run.name)
        return "" if found is None or found.reading == self.asked(benchmark) else found.reading

    @property
    def stopped_early(self) -> list[str]:
        """The runs whose ProcessBench solutions were scored only up to the first incorrect step."""
        scored = self.processbench
        return [run.name for run in self.runs if run.name in scored and scored[run.name].early_stop is not None]

    def titles(self, name: str) -> list[str]:
        """The names that the paper's tables use for a published PRM, the usual one first."""
        given = (found[name].titles for found in self.published.values() if name in found)
        return list(next(filter(None, given), [name]))

    def baselines(self, benchmark: Benchmark) -> Mapping[str, Measured]:
        """Model-free baselines. They are identical for every system, so the first file that has them is read."""
        files = (*self.benchmarks[benchmark].values(), *self.published[benchmark].values())
        return next((metrics.baselines for metrics in files if metrics.baselines), {})

    @property
    def sampled(self) -> list[str]:
        """The figures without a PRM, from one sample to the best of all: pass@1, the majority vote, pass@n."""
        if self.sample is None:
            return ["pass@1", "maj@n", "pass@n"]
        return sorted(self.sample.average, key=lambda name: (name != "pass@1", not name.startswith("maj@"), name))


@dataclass(frozen=True, slots=True)
class Score:
    """A figure in percent, its interval and, if it is not the one of the column, its reading."""

    value: float
    low: float
    high: float
    reading: str = field(default="", kw_only=True)

    def __str__(self) -> str:
        return f"{self.value:.1f} [{self.low:.1f}, {self.high:.1f}]" + (f" by {self.reading}" if self.reading else "")


Cell = Score | str
"""A score, or a word if there is none."""


@dataclass(frozen=True, slots=True)
class Line:
    """One row of the main results; cells are in the order of ``names.COLUMNS``. The label also counts the seeds."""

    name: str
    label: str
    cells: tuple[Cell, ...]
    is_baseline: bool = True


_FORMS: Mapping[Benchmark, type[Measured]] = {PROCESSBENCH: ProcessBench, PRMBENCH: PRMBench, SEARCH: Search}


def load_results(root: Path, runs: tuple[Run, ...], published: Sequence[str] = ()) -> Results:
    """Read the metric files of ``runs`` and ``published`` PRMs below ``root`` (``metrics/``).

    Every number knows its place in its file (``pathfinder.reporting.origins``). Raises ``DataError`` for a file that
    does not have the form of its record (``pathfinder.core.metrics``).
    """
    run_names = [run.name for run in runs]

    def one(form: type[Form], name: str) -> Form | None:
        return read_placed(root / f"{name}.json", TypeAdapter(form))

    def several(form: type[Form], folder: str, names: Sequence[str]) -> dict[str, Form]:
        return {name: found for name in names if (found := one(form, f"{folder}/{name}")) is not None}

    logs = {name: read_placed(root / "train" / f"{name}_log.json", LOG, "allow") for name in run_names}
    return Results(
        runs=runs,
        prepare=one(Prepare, "prepare"),
        label=one(Label, "label"),
        filtered=one(Stage, "filter"),
        validated=one(Stage, "validate"),
        build=one(Build, "build"),
        train_validated=one(Stage, "validate_train"),
        sample=one(Sample, "sample"),
        truth=one(Truth, "truth"),
        train=several(Train, "train", run_names),
        logs={name: rows for name, rows in logs.items() if rows is not None},
        processbench=several(ProcessBench, PROCESSBENCH.key, run_names),
        prmbench=several(PRMBench, PRMBENCH.key, run_names),
        search=several(Search, SEARCH.key, [*run_names, names.CONTROL]),
        published={bench: several(form, bench.key, published) for bench, form in _FORMS.items()},
    )


def read_placed(path: Path, form: TypeAdapter[Form], extra: Literal["ignore", "allow"] = "ignore") -> Form | None:
    """A file as its record, whose numbers know their places; ``None`` if it does not exist.

    Raises ``DataError`` if it does not have the form.
    """
    return checked(form, placed(read_json(path), path.as_posix()), path, extra) if path.exists() else None


def lines(
    results: Results,
    levels: Mapping[Benchmark, Mapping[str, Score]],
    chosen: Mapping[str, Score],
    by_rule: Mapping[str, Mapping[str, Score]],
) -> list[Line]:
    """Our systems, then every baseline; ``chosen`` has the full variant's scores by the rules of the minimum.

    ``levels`` are the scores by spoken name on each benchmark where some system has several seeds. ``by_rule`` has the
    scores by each rule with a column, by spoken name.
    """
    ours = []
    for members in results.systems:
        run, cells = members[0], list[Cell]()
        for bench, measured in results.benchmarks.items():
            own = _score(measured.get(run.name)) if len(members) == 1 else names.MISSING
            cell = levels.get(bench, {}).get(names.spoken(run), own)
            by = results.reading_besides(bench, run)
            cells.append(replace(cell, reading=by) if isinstance(cell, Score) else cell)
        cells += [found.get(names.spoken(run), names.MISSING) for found in by_rule.values()]
        ours.append(Line(names.name_of(run), names.label(members), tuple(cells), is_baseline=False))
    published = dict.fromkeys(name for found in results.published.values() for name in found)
    rows = [(results.titles(n)[0], [_score(found.get(n)) for found in results.published.values()]) for n in published]
    for name in ("chance", "majority"):
        pair = [_score(results.baselines(b).get(name)) for b in (PROCESSBENCH, PRMBENCH)]
        rows.append((name, [*pair, names.NOT_APPLICABLE]))
    searches = {"search with a random pick": _score(results.search.get(names.CONTROL))}
    for name in results.sampled:
        sample = results.sample
        searches[name] = Score(sample.average[name], *sample.intervals[name]) if sample else names.MISSING
    rows += [(name, [names.NOT_APPLICABLE, names.NOT_APPLICABLE, cell]) for name, cell in searches.items()]
    for rule, score in chosen.items():
        name = f"{RULES[rule][0]} {results.sampled[-1].partition('@')[2]} by minimum reward"
        rows.insert(-1, (name, [names.NOT_APPLICABLE, names.NOT_APPLICABLE, score]))
    others = [names.NOT_APPLICABLE] * len(by_rule)
    return [*ours, *(Line(name, name, (*row, *others)) for name, row in rows)]


def _score(metrics: Measured | None) -> Cell:
    if metrics is None or (value := metrics.headline) is None:
        return names.MISSING
    return Score(value, *(metrics.interval or (value, value)))
