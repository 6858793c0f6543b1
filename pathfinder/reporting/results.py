"""The stages' metric files, any of which may be missing, and the report's rows of main results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pathfinder.core.io import read_json
from pathfinder.core.runs import MAIN_MIX, Run, systems

VARIANTS = {
    "full": "PathFinder-PRM",
    "no_error_categories": "without separate error categories",
    "no_subtasks": "without separate subtasks",
    "autoregressive": "with autoregressive labels",
}
MIXES = {"prm800k": "PRM800K only"}
MISSING, NOT_APPLICABLE = "missing", "–"
CONTROL = "random"
TABLES = Path("reports/tables.json")
_STAGES = ("prepare", "label", "filter", "validate", "build", "validate_train")

Metrics = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Benchmark:
    """A benchmark: the name of its folders, its main figure's title, and that figure's key in metric files."""

    key: str
    title: str
    figure: str


PROCESSBENCH = Benchmark("processbench", "ProcessBench mean F1", "mean_f1")
PRMBENCH = Benchmark("prmbench", "PRMScore", "overall")
SEARCH = Benchmark("search", "search accuracy", "average")
BENCHMARKS = (PROCESSBENCH, PRMBENCH, SEARCH)
HEADERS = ("system", *(benchmark.title for benchmark in BENCHMARKS))


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
    def systems(self) -> dict[str, list[Run]]:
        """The runs of each system, in the profile's order."""
        return systems(self.runs)

    @property
    def stopped_early(self) -> list[str]:
        """The runs whose ProcessBench solutions were scored only up to the first incorrect step."""
        scored = self.benchmarks[PROCESSBENCH]
        return [run.name for run in self.runs if "early_stop" in scored.get(run.name, {})]

    def titles(self, name: str) -> list[str]:
        """The names that the paper's tables use for a published PRM, the usual one first."""
        given = (found[name].get("titles") for found in self.published.values() if name in found)
        return list(next(filter(None, given), [name]))


@dataclass(frozen=True, slots=True)
class Score:
    """A figure in percent and its interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.1f} [{self.low:.1f}, {self.high:.1f}]"


Cell = Score | str
Levels = Mapping[Benchmark, Mapping[str, Score]]
"""The scores of every system on each benchmark where some system has several seeds."""


@dataclass(frozen=True, slots=True)
class Line:
    """One row of the main results; cells are in the order of ``BENCHMARKS``, a word where there is no score."""

    name: str
    cells: tuple[Cell, ...]
    is_baseline: bool = True
    seeds: int = 1

    @property
    def label(self) -> str:
        """The name, with the number of seeds if there are several."""
        return _with_seeds(self.name, self.seeds)


def load_results(root: Path, runs: tuple[Run, ...], published: Sequence[str] = ()) -> Results:
    """Read the metric files of ``runs`` and ``published`` PRMs below ``root`` (``metrics/``)."""
    names = [run.name for run in runs]

    def read(folder: str, files: Sequence[str]) -> dict[str, Any]:
        return {name: found for name in files if (found := _read(root / folder / f"{name}.json")) is not None}

    logs = read("train", [f"{name}_log" for name in names])
    return Results(
        runs=runs,
        stages={name: _read(root / f"{name}.json") for name in _STAGES},
        train=read("train", names),
        logs={name.removesuffix("_log"): rows for name, rows in logs.items()},
        benchmarks={bench: read(bench.key, [*names, *[CONTROL] * (bench == SEARCH)]) for bench in BENCHMARKS},
        published={bench: read(bench.key, published) for bench in BENCHMARKS},
        sample=_read(root / "sample.json"),
        truth=_read(root / "truth.json"),
    )


def name_of(run: Run) -> str:
    """A system's name in tables and charts; runs that differ only in the seed share it."""
    variant = VARIANTS[run.variant]
    return variant if run.mix == MAIN_MIX else f"{variant}, {MIXES.get(run.mix, f'{run.mix.upper()} mix')}"


def label(members: Sequence[Run]) -> str:
    """A system's name in tables, with the number of seeds if its figures are means over several."""
    return _with_seeds(name_of(members[0]), len(members))


def spoken(run: Run) -> str:
    """A system's name in a sentence."""
    variant = VARIANTS[run.variant] if run.variant == "full" else f"the variant {VARIANTS[run.variant]}"
    if run.mix == MAIN_MIX:
        return variant
    return f"{variant} on {MIXES.get(run.mix, f'the {run.mix.upper()} mix')}"


def lines(results: Results, levels: Levels, best_of_n: Score | None) -> list[Line]:
    """Our systems, then every baseline; ``best_of_n`` is the full variant's score."""
    rows = []
    for system, members in results.systems.items():
        cells = [
            levels.get(bench, {}).get(system)
            or (_score(measured.get(members[0].name), bench) if len(members) == 1 else MISSING)
            for bench, measured in results.benchmarks.items()
        ]
        rows.append(Line(name_of(members[0]), tuple(cells), is_baseline=False, seeds=len(members)))
    for name in dict.fromkeys(name for found in results.published.values() for name in found):
        cells = [_score(found.get(name), bench) for bench, found in results.published.items()]
        rows.append(Line(results.titles(name)[0], tuple(cells)))
    for name in ("chance", "majority"):
        pair = [_score(baselines_of(results.benchmarks[b]).get(name), b) for b in (PROCESSBENCH, PRMBENCH)]
        rows.append(Line(name, (*pair, NOT_APPLICABLE)))
    searches = {"search with a random pick": _score(results.benchmarks[SEARCH].get(CONTROL), SEARCH)}
    sampled = sampled_figures(results.sample)
    searches |= {figure: _sampled(results.sample, figure) for figure in sampled}
    rows += [Line(name, (NOT_APPLICABLE, NOT_APPLICABLE, cell)) for name, cell in searches.items()]
    if best_of_n:
        name = f"best of {sampled[-1].partition('@')[2]} by minimum reward"
        rows.insert(-1, Line(name, (NOT_APPLICABLE, NOT_APPLICABLE, best_of_n)))
    return rows


def printed_rows(tables: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """``HEADERS`` and the main results of ``reports/tables.json``."""
    rows = [(row["system"], *(row[benchmark.key] for benchmark in BENCHMARKS)) for row in tables["results"]]
    return [HEADERS, *(tuple(str(Score(**cell) if isinstance(cell, dict) else cell) for cell in row) for row in rows)]


def results_table(path: Path = TABLES) -> str:
    """The report's main results as plain text: percent with intervals."""
    found = _read(path)
    if found is None:
        return f"{path} does not exist yet; run `make run`\n"
    rows = printed_rows(found)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    rows.insert(1, tuple("-" * width for width in widths))
    text = []
    for name, *cells in rows:
        right = (cell.rjust(width) for cell, width in zip(cells, widths[1:], strict=True))
        text.append("  ".join([name.ljust(widths[0]), *right]))
    text += ["", *found["truth"]] if found.get("truth") else []
    return "\n".join(text) + "\n"


def baselines_of(metrics: Mapping[str, Metrics]) -> Mapping[str, Metrics]:
    """Model-free baselines. They are identical for every run, so the first file that has them is read."""
    return next((found["baselines"] for found in metrics.values() if "baselines" in found), {})


def sampled_figures(sample: Metrics | None) -> list[str]:
    """From one sample to the best of all: pass@1, the majority vote, pass@n."""
    if sample is None:
        return ["pass@1", "maj@8", "pass@8"]
    return sorted(sample["average"], key=lambda figure: (figure != "pass@1", not figure.startswith("maj@"), figure))


def _with_seeds(name: str, seeds: int) -> str:
    return name if seeds == 1 else f"{name} (mean of {seeds} seeds)"


def _read(path: Path) -> Any:
    return read_json(path) if path.exists() else None


def _score(metrics: Metrics | None, benchmark: Benchmark) -> Cell:
    if metrics is None or (value := metrics.get(benchmark.figure)) is None:
        return MISSING
    return Score(value, *(metrics.get("interval") or (value, value)))


def _sampled(sample: Metrics | None, figure: str) -> Cell:
    return MISSING if sample is None else Score(sample["average"][figure], *sample["intervals"][figure])
