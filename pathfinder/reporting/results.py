"""The stages' metric files, any of which may be missing, and the report's rows of main results."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from ground.io import read_json
from pathfinder.core.runs import Run, systems
from pathfinder.policy.choosing import RULES
from pathfinder.reporting import names
from pathfinder.reporting.forms import metrics as forms
from pathfinder.reporting.names import BENCHMARKS, PRMBENCH, PROCESSBENCH, SEARCH, Benchmark
from pathfinder.reporting.origins import placed

Metrics = Mapping[str, Any]
Reading = Callable[[Metrics], Metrics | None]
"""Takes the figures of one decision rule from a metric file."""


def main_rule(metrics: Metrics) -> Metrics:
    """The figures of the rule that the stage's preset selects."""
    return metrics


def as_published(metrics: Metrics) -> Metrics | None:
    """The figures of the published decision rule, in the published evaluator's arithmetic.

    The paper's figures of its own models are of this kind.
    """
    return metrics.get("official")


def repaired(metrics: Metrics) -> Metrics:
    """The figures of our default rule and grading, whichever rule the preset selects."""
    found: Metrics | None = metrics.get("repaired") or metrics.get("rules", {}).get("both")
    return found or metrics


@dataclass(frozen=True, slots=True)
class Results:
    """Contents of ``metrics/``; a missing file is ``None`` or absent from its mapping."""

    runs: tuple[Run, ...]
    stages: Mapping[str, Metrics | None]  # prepare … validate_train
    train: Mapping[str, Metrics]  # by run
    logs: Mapping[str, list[Metrics]]  # by run
    benchmarks: Mapping[Benchmark, Mapping[str, Metrics]]  # by run; search also has the control
    published: Mapping[Benchmark, Mapping[str, Metrics]]  # published PRMs and critics by name
    sample: Metrics | None
    truth: Metrics | None  # judge and filter against known labels

    @property
    def systems(self) -> list[list[Run]]:
        """The runs of each system, in the profile's order."""
        return list(systems(self.runs).values())

    def read(self, benchmark: Benchmark, reading: Reading) -> dict[str, Metrics]:
        """The figures that ``reading`` takes from each run's metrics, by run; runs without them are left out."""
        files = self.benchmarks[benchmark].items()
        return {name: found for name, metrics in files if (found := reading(metrics)) is not None}

    @property
    def official(self) -> list[Benchmark]:
        """The benchmarks whose main figures follow the published rule, because the profile selects it."""
        presets = {
            bench: {metrics.get("preset") for metrics in self.benchmarks[bench].values()} for bench in BENCHMARKS
        }
        return [bench for bench, found in presets.items() if found == {"official"}]

    @property
    def stopped_early(self) -> list[str]:
        """The runs whose ProcessBench solutions were scored only up to the first incorrect step."""
        scored = self.benchmarks[PROCESSBENCH]
        return [run.name for run in self.runs if "early_stop" in scored.get(run.name, {})]

    def titles(self, name: str) -> list[str]:
        """The names that the paper's tables use for a published PRM, the usual one first."""
        given = (found[name].get("titles") for found in self.published.values() if name in found)
        return list(next(filter(None, given), [name]))

    def baselines(self, benchmark: Benchmark) -> Mapping[str, Metrics]:
        """Model-free baselines. They are identical for every run, so the first file that has them is read."""
        files = self.benchmarks[benchmark].values()
        return next((metrics["baselines"] for metrics in files if "baselines" in metrics), {})

    @property
    def sampled(self) -> list[str]:
        """The figures without a PRM, from one sample to the best of all: pass@1, the majority vote, pass@n."""
        if self.sample is None:
            return ["pass@1", "maj@8", "pass@8"]
        return sorted(self.sample["average"], key=lambda name: (name != "pass@1", not name.startswith("maj@"), name))


@dataclass(frozen=True, slots=True)
class Score:
    """A figure in percent and its interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.1f} [{self.low:.1f}, {self.high:.1f}]"


Cell = Score | str
"""A score, or a word if there is none."""


@dataclass(frozen=True, slots=True)
class Line:
    """One row of the main results; cells are in the order of ``BENCHMARKS``. The label also counts the seeds."""

    name: str
    label: str
    cells: tuple[Cell, ...]
    is_baseline: bool = True


def load_results(root: Path, runs: tuple[Run, ...], published: Sequence[str] = ()) -> Results:
    """Read the metric files of ``runs`` and ``published`` PRMs below ``root`` (``metrics/``).

    Every number knows its place in its file (``pathfinder.reporting.origins``). Raises ``DataError`` for a file that
    does not have its form (``pathfinder.reporting.forms``).
    """
    run_names = [run.name for run in runs]

    def read(folder: str, files: Sequence[str]) -> dict[str, Any]:
        form = forms.SYSTEMS[folder]
        return {name: found for name in files if (found := _read(root / folder / f"{name}.json", form)) is not None}

    logs = {name: _read(root / "train" / f"{name}_log.json", forms.LOG) for name in run_names}
    stages = {name: _read(root / f"{name}.json", form) for name, form in forms.STAGES.items()}
    sample, truth = stages.pop("sample"), stages.pop("truth")
    return Results(
        runs=runs,
        stages=stages,
        train=read("train", run_names),
        logs={name: rows for name, rows in logs.items() if rows is not None},
        benchmarks={bench: read(bench.key, [*run_names, *[names.CONTROL] * (bench is SEARCH)]) for bench in BENCHMARKS},
        published={bench: read(bench.key, published) for bench in BENCHMARKS},
        sample=sample,
        truth=truth,
    )


def lines(results: Results, levels: Mapping[Benchmark, Mapping[str, Score]], chosen: Mapping[str, Score]) -> list[Line]:
    """Our systems, then every baseline; ``chosen`` has the full variant's scores by the rules of the minimum.

    ``levels`` are the scores by spoken name on each benchmark where some system has several seeds.
    """
    ours = []
    for members in results.systems:
        cells = [
            levels.get(bench, {}).get(names.spoken(members[0]))
            or (_score(measured.get(members[0].name), bench) if len(members) == 1 else names.MISSING)
            for bench, measured in results.benchmarks.items()
        ]
        ours.append(Line(names.name_of(members[0]), names.label(members), tuple(cells), is_baseline=False))
    rows: list[tuple[str, list[Cell]]] = []
    for name in dict.fromkeys(name for found in results.published.values() for name in found):
        scores = [_score(found.get(name), bench) for bench, found in results.published.items()]
        rows.append((results.titles(name)[0], scores))
    for name in ("chance", "majority"):
        pair = [_score(results.baselines(b).get(name), b) for b in (PROCESSBENCH, PRMBENCH)]
        rows.append((name, [*pair, names.NOT_APPLICABLE]))
    searches = {"search with a random pick": _score(results.benchmarks[SEARCH].get(names.CONTROL), SEARCH)}
    for name in results.sampled:
        sample = results.sample
        searches[name] = Score(sample["average"][name], *sample["intervals"][name]) if sample else names.MISSING
    rows += [(name, [names.NOT_APPLICABLE, names.NOT_APPLICABLE, cell]) for name, cell in searches.items()]
    for rule, score in chosen.items():
        name = f"{RULES[rule][0]} {results.sampled[-1].partition('@')[2]} by minimum reward"
        rows.insert(-1, (name, [names.NOT_APPLICABLE, names.NOT_APPLICABLE, score]))
    return [*ours, *(Line(name, name, tuple(row)) for name, row in rows)]


def printed_rows(tables: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """The headers and the main results of ``reports/tables.json``."""
    rows = [(row["system"], *(row[benchmark.key] for benchmark in BENCHMARKS)) for row in tables["results"]]
    first, *others = names.HEADERS
    return [
        (f"{first} (toy sets)" if tables.get("toy") else first, *others),
        *(tuple(str(Score(**cell) if isinstance(cell, dict) else cell) for cell in row) for row in rows),
    ]


def read_tables(path: Path = names.TABLES) -> Any:
    """``reports/tables.json``, ``None`` if it does not exist; raises ``DataError`` if it does not have its form."""
    return _read(path, forms.TABLES)


def results_table(path: Path = names.TABLES) -> str:
    """The report's main results as plain text: percent with intervals.

    Raises ``DataError`` if the file does not have its form.
    """
    found = read_tables(path)
    if found is None:
        return f"{path} does not exist yet; run `make run`\n"
    rows = printed_rows(found)
    first, *widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    rows.insert(1, tuple("-" * width for width in (first, *widths)))
    text = ["  ".join([name.ljust(first), *map(str.rjust, cells, widths)]) for name, *cells in rows]
    text += ["", *found["truth"]] if found.get("truth") else []
    return "\n".join(text) + "\n"


def _read(path: Path, form: TypeAdapter[Any]) -> Any:
    return placed(forms.checked(read_json(path), form, path), path.as_posix()) if path.exists() else None


def _score(metrics: Metrics | None, benchmark: Benchmark) -> Cell:
    if metrics is None or (value := metrics.get(benchmark.figure)) is None:
        return names.MISSING
    return Score(value, *(metrics.get("interval") or (value, value)))
