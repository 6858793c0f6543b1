"""What the stages measured, gathered from their metric files; any of them may be missing.

``results_table`` is the plain-text summary that a run ends with.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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
MIXES = {"prm800k": "PRM800K alone"}
MISSING, NOT_APPLICABLE = "missing", "–"
HEADERS = ("system", "ProcessBench mean F1", "PRMBench PRMScore", "search accuracy")
CONTROL = "random"
TABLES = Path("reports/tables.json")
_STAGES = ("prepare", "label", "filter", "validate", "build", "validate_train")

Metrics = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Results:
    """Contents of ``metrics/`` by run; an absent file is ``None`` or lacks in its mapping."""

    runs: tuple[Run, ...]
    stages: Mapping[str, Metrics | None]  # prepare … validate_train
    train: Mapping[str, Metrics]
    logs: Mapping[str, list[Metrics]]
    processbench: Mapping[str, Metrics]
    prmbench: Mapping[str, Metrics]
    search: Mapping[str, Metrics]  # with "random", the control
    sample: Metrics | None
    truth: Metrics | None  # the judge where the truth is known
    others: Mapping[str, Mapping[str, Metrics]]  # by benchmark: other people's PRMs, by name

    @property
    def systems(self) -> dict[str, list[Run]]:
        """The trainings of each system, in the profile's order."""
        return systems(self.runs)

    def titles(self, name: str) -> list[str]:
        """What the paper's tables call somebody else's PRM, the usual name first."""
        said = (found[name].get("titles") for found in self.others.values() if name in found)
        return list(next(filter(None, said), [name]))


@dataclass(frozen=True, slots=True)
class Score:
    """A figure in percent and its interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.1f} [{self.low:.1f}, {self.high:.1f}]"


Cell = Score | str
Levels = Mapping[str, Mapping[str, Score]]
"""For each benchmark (``processbench``, ``prmbench``, ``search``) where any system has several seeds, all levels."""


@dataclass(frozen=True, slots=True)
class Line:
    """One row of the results: a system under three benchmarks; a word stands where there is no figure."""

    name: str
    processbench: Cell
    prmbench: Cell
    search: Cell
    is_baseline: bool
    seeds: int = 1

    @property
    def label(self) -> str:
        """The name as a table says it: with the number of trainings, where there are several."""
        return _said(self.name, self.seeds)

    @property
    def cells(self) -> tuple[Cell, Cell, Cell]:
        """The three figures in the order of ``HEADERS``."""
        return self.processbench, self.prmbench, self.search


def load_results(root: Path, runs: tuple[Run, ...], baselines: Sequence[str] = ()) -> Results:
    """Read every metric file of ``runs`` and ``baselines`` below ``root`` (``metrics/``) that is there."""
    names = [run.name for run in runs]
    return Results(
        runs=runs,
        stages={name: _read(root / f"{name}.json") for name in _STAGES},
        train=_read_all(root / "train", names),
        logs={name: rows for name in names if (rows := _read(root / "train" / f"{name}_log.json")) is not None},
        processbench=_read_all(root / "processbench", names),
        prmbench=_read_all(root / "prmbench", names),
        search=_read_all(root / "search", [*names, CONTROL]),
        sample=_read(root / "sample.json"),
        truth=_read(root / "truth.json"),
        others={bench: _read_all(root / bench, baselines) for bench in ("processbench", "prmbench", "search")},
    )


def name_of(run: Run) -> str:
    """A system in words; runs that differ in the seed alone share the name."""
    variant = VARIANTS[run.variant]
    return variant if run.mix == MAIN_MIX else f"{variant}, {MIXES.get(run.mix, f'{run.mix.upper()} mix')}"


def label(members: Sequence[Run]) -> str:
    """A system's name in a table; several trainings are said, for the figures are their means."""
    return _said(name_of(members[0]), len(members))


def _said(name: str, seeds: int) -> str:
    return name if seeds == 1 else f"{name} (mean of {seeds} seeds)"


def spoken(run: Run) -> str:
    """A system in a sentence."""
    variant = VARIANTS[run.variant] if run.variant == "full" else f"the variant {VARIANTS[run.variant]}"
    if run.mix == MAIN_MIX:
        return variant
    return f"{variant} on {MIXES.get(run.mix, f'the {run.mix.upper()} mix')}"


def mean_over_seeds(
    members: Sequence[Run], metrics: Mapping[str, Metrics], figure: Callable[[Metrics], Any]
) -> float | None:
    """A figure's mean over the seeds of a system that were measured; None where none was, or none has it."""
    values = [value for run in members if run.name in metrics and (value := figure(metrics[run.name])) is not None]
    return sum(values) / len(values) if values else None


def lines(results: Results, levels: Levels, best_of_n: Score | None) -> list[Line]:
    """Our systems, then every baseline that they have to beat; ``best_of_n`` is the full variant's own."""
    measured = {"processbench": results.processbench, "prmbench": results.prmbench, "search": results.search}
    keys = {"processbench": "mean_f1", "prmbench": "overall", "search": "average"}
    rows = []
    for system, members in results.systems.items():
        single = len(members) == 1
        cells = [
            levels.get(bench, {}).get(system) or (_score(found.get(system), keys[bench]) if single else MISSING)
            for bench, found in measured.items()
        ]
        rows.append(Line(name_of(members[0]), cells[0], cells[1], cells[2], is_baseline=False, seeds=len(members)))
    for name in dict.fromkeys(name for found in results.others.values() for name in found):
        cells = [_score(results.others[bench].get(name), key) for bench, key in keys.items()]
        rows.append(Line(results.titles(name)[0], cells[0], cells[1], cells[2], is_baseline=True))
    for name in ("chance", "majority"):
        benchmarks = [first_baselines(metrics).get(name) for metrics in (results.processbench, results.prmbench)]
        pair = _score(benchmarks[0], "mean_f1"), _score(benchmarks[1], "overall")
        rows.append(Line(name, *pair, NOT_APPLICABLE, is_baseline=True))
    control = _score(results.search.get(CONTROL), "average")
    rows.append(Line("search with a random pick", NOT_APPLICABLE, NOT_APPLICABLE, control, is_baseline=True))
    sampled = sampled_figures(results.sample)
    for figure in sampled:
        rows.append(Line(figure, NOT_APPLICABLE, NOT_APPLICABLE, _sampled(results.sample, figure), is_baseline=True))
    if best_of_n:
        name = f"best of {sampled[-1].partition('@')[2]}, by the minimum of its rewards"
        rows.insert(-1, Line(name, NOT_APPLICABLE, NOT_APPLICABLE, best_of_n, is_baseline=True))
    return rows


def results_table(path: Path = TABLES) -> str:
    """The report's results as plain text; figures are percent with their interval."""
    found = _read(path)
    if found is None:
        return f"{path} is not there yet; `make run` makes it\n"
    body = [
        (str(row["system"]), *(str(Score(**cell) if isinstance(cell, dict) else cell) for cell in _cells(row)))
        for row in found["results"]
    ]
    table = [HEADERS, *body]
    widths = [max(len(row[column]) for row in table) for column in range(len(HEADERS))]
    text = [
        "  ".join(cell.ljust(width) if not place else cell.rjust(width) for place, (cell, width) in enumerate(cells))
        for cells in (list(zip(row, widths, strict=True)) for row in table)
    ]
    text.insert(1, "  ".join("-" * width for width in widths))
    text += ["", *found["truth"]] if found.get("truth") else []
    return "\n".join(line.rstrip() for line in text) + "\n"


def percent(figure: Metrics) -> str:
    """A figure of ``{"value", "interval"}`` as tables say it; null stands where nothing was counted."""
    return NOT_APPLICABLE if figure["value"] is None else str(Score(figure["value"], *figure["interval"]))


def truth_lines(truth: Metrics | None) -> list[str]:
    """What the judge and the filter got right, in two sentences; none where no truth is known."""
    found = truth["all"] if truth else {"steps": 0}
    if not found["steps"]:
        return []
    rate = {name: percent(figure) for name, figure in found.items() if isinstance(figure, Mapping)}
    return [
        f"The judge on {found['steps']:,} steps whose truth is known: error recall {rate['error_recall']}, precision "
        f"{rate['error_precision']} (calling every step wrong: {rate['wrong']}); of the right steps it calls "
        f"{rate['false_alarms']} wrong.",
        f"Of its labels {rate['labels_right']} are right; of the {found['kept']:,} that the consistency filter kept "
        f"{rate['labels_right_kept']}, of those it dropped {rate['labels_right_dropped']}.",
    ]


def first_baselines(metrics: Mapping[str, Metrics]) -> Mapping[str, Metrics]:
    """What answers without a model: it knows no training, so any run's file has it."""
    return next((found["baselines"] for found in metrics.values() if "baselines" in found), {})


def sampled_figures(sample: Metrics | None) -> list[str]:
    """From one sample to the best of all: pass@1, the majority vote, pass@n."""
    if sample is None:
        return ["pass@1", "maj@8", "pass@8"]
    return sorted(sample["average"], key=lambda figure: (figure != "pass@1", not figure.startswith("maj@"), figure))


def _cells(row: Mapping[str, Any]) -> tuple[Any, Any, Any]:
    return row["processbench"], row["prmbench"], row["search"]


def _read(path: Path) -> Any:
    return read_json(path) if path.exists() else None


def _read_all(folder: Path, names: Sequence[str]) -> dict[str, Metrics]:
    return {name: found for name in names if (found := _read(folder / f"{name}.json")) is not None}


def _score(metrics: Metrics | None, key: str) -> Cell:
    if metrics is None or metrics.get(key) is None:
        return MISSING
    low, high = metrics.get("interval") or (metrics[key], metrics[key])
    return Score(metrics[key], low, high)


def _sampled(sample: Metrics | None, figure: str) -> Cell:
    if sample is None:
        return MISSING
    low, high = sample["intervals"][figure]
    return Score(sample["average"][figure], low, high)
