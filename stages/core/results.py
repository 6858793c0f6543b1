"""What the stages measured, gathered from their metric files; any of them may be missing.

``results_table`` is the plain-text summary that a run ends with.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stages.core.io import read_json

VARIANTS = ("full", "no_error_categories", "no_subtasks")
NAMES = {
    "full": "PathFinder-PRM",
    "no_error_categories": "without separate error categories",
    "no_subtasks": "without separate subtasks",
}
MISSING, NOT_APPLICABLE = "missing", "–"
HEADERS = ("system", "ProcessBench mean F1", "PRMBench PRMScore", "search accuracy")
_STAGES = ("prepare", "label", "filter", "validate", "build", "validate_train")

Metrics = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Results:
    """Contents of ``metrics/``; an absent file is ``None`` or lacks in its mapping."""

    stages: Mapping[str, Metrics | None]  # prepare … validate_train
    train: Mapping[str, Metrics]
    logs: Mapping[str, list[Metrics]]
    processbench: Mapping[str, Metrics]
    prmbench: Mapping[str, Metrics]
    search: Mapping[str, Metrics]  # with "random", the control
    sample: Metrics | None


@dataclass(frozen=True, slots=True)
class Score:
    """A figure in percent and its interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.1f} [{self.low:.1f}, {self.high:.1f}]"


Cell = Score | str


@dataclass(frozen=True, slots=True)
class Line:
    """One row of the results: a system under three benchmarks; a word stands where there is no figure."""

    name: str
    processbench: Cell
    prmbench: Cell
    search: Cell
    is_baseline: bool

    @property
    def cells(self) -> tuple[Cell, Cell, Cell]:
        """The three figures in the order of ``HEADERS``."""
        return self.processbench, self.prmbench, self.search


def load_results(root: Path) -> Results:
    """Read every metric file below ``root`` (``metrics/``) that is there."""
    return Results(
        stages={name: _read(root / f"{name}.json") for name in _STAGES},
        train=_read_all(root / "train", VARIANTS),
        logs={v: rows for v in VARIANTS if (rows := _read(root / "train" / f"{v}_log.json")) is not None},
        processbench=_read_all(root / "processbench", VARIANTS),
        prmbench=_read_all(root / "prmbench", VARIANTS),
        search=_read_all(root / "search", (*VARIANTS, "random")),
        sample=_read(root / "sample.json"),
    )


def lines(results: Results) -> list[Line]:
    """Our variants, then every baseline that they have to beat."""
    rows = [
        Line(
            NAMES[variant],
            _score(results.processbench.get(variant), "mean_f1"),
            _score(results.prmbench.get(variant), "overall"),
            _score(results.search.get(variant), "average"),
            is_baseline=False,
        )
        for variant in VARIANTS
    ]
    for name in ("chance", "majority"):
        benchmarks = [_first(metrics, name) for metrics in (results.processbench, results.prmbench)]
        pair = _score(benchmarks[0], "mean_f1"), _score(benchmarks[1], "overall")
        rows.append(Line(name, *pair, NOT_APPLICABLE, is_baseline=True))
    control = _score(results.search.get("random"), "average")
    rows.append(Line("search with a random pick", NOT_APPLICABLE, NOT_APPLICABLE, control, is_baseline=True))
    for figure in sampled_figures(results.sample):
        rows.append(Line(figure, NOT_APPLICABLE, NOT_APPLICABLE, _sampled(results.sample, figure), is_baseline=True))
    return rows


def results_table(root: Path = Path("metrics")) -> str:
    """The results as plain text; figures are percent with their bootstrap interval."""
    body = [(line.name, *map(str, line.cells)) for line in lines(load_results(root))]
    table = [HEADERS, *body]
    widths = [max(len(row[column]) for row in table) for column in range(len(HEADERS))]
    text = [
        "  ".join(cell.ljust(width) if not place else cell.rjust(width) for place, (cell, width) in enumerate(cells))
        for cells in (list(zip(row, widths, strict=True)) for row in table)
    ]
    text.insert(1, "  ".join("-" * width for width in widths))
    return "\n".join(line.rstrip() for line in text) + "\n"


def _read(path: Path) -> Any:
    return read_json(path) if path.exists() else None


def _read_all(folder: Path, names: tuple[str, ...]) -> dict[str, Metrics]:
    return {name: found for name in names if (found := _read(folder / f"{name}.json")) is not None}


def _score(metrics: Metrics | None, key: str) -> Cell:
    if metrics is None or metrics.get(key) is None:
        return MISSING
    low, high = metrics.get("interval") or (metrics[key], metrics[key])
    return Score(metrics[key], low, high)


def _first(metrics: Mapping[str, Metrics], baseline: str) -> Metrics | None:
    """A baseline knows no model, so any variant's file has it."""
    return next((found["baselines"][baseline] for found in metrics.values() if "baselines" in found), None)


def sampled_figures(sample: Metrics | None) -> list[str]:
    """From one sample to the best of all: pass@1, the majority vote, pass@n."""
    if sample is None:
        return ["pass@1", "maj@8", "pass@8"]
    return sorted(sample["average"], key=lambda figure: (figure != "pass@1", not figure.startswith("maj@"), figure))


def _sampled(sample: Metrics | None, figure: str) -> Cell:
    if sample is None:
        return MISSING
    low, high = sample["intervals"][figure]
    return Score(sample["average"][figure], low, high)
