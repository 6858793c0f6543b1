"""Compare the readings of the PRM variants on the generated world, where the oracle knows which steps are optimal.

Run     pathfinder profile readings && make run
        python -m docs.tools.readings           prints the tables
        python -m docs.tools.readings --write   writes docs/readings.svg, and the tables into docs/readings.md

Reads the predictions of the runs in params.yaml. Soundness is the smallest probability of an error label, quality the
reward of a variant whose labels cover errors and optimality. A step is flagged if the probability is below one half.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from docs.tools.readme import between
from extras.experiment.figures import Judged, judge, weighted_f1, weights_at
from ground.io import DataError, read_jsonl, write_text
from ground.text import errors_without_traceback
from pathfinder.benchmarks import prmbench
from pathfinder.benchmarks.bootstrap import INTERVALS, Estimate, estimate, replicate
from pathfinder.benchmarks.processbench import Table, first_error
from pathfinder.benchmarks.readers import read_prmbench, read_processbench
from pathfinder.core import readings as core
from pathfinder.core.params import load_params
from pathfinder.core.prompts import VARIANTS
from pathfinder.core.runs import Run, parse_runs
from pathfinder.pages.page import PALETTE, markdown_table
from pathfinder.pages.svg import line_chart
from pathfinder.reporting.page.registered import Scores, prmbench_figures, scores_of

Reading = Literal["soundness", "quality"]
RAW, PREDICTIONS = Path("artifacts/raw"), Path("artifacts/predictions")
PAGE, PICTURE = Path("docs/readings.md"), Path("docs/readings.svg")
START, END = "<!-- figures -->\n", "<!-- /figures -->\n"
SHARES = (0, 1, 3, 8)
"""Percent of the correct steps that are not optimal, at which F1 is computed."""
CONTRASTS: tuple[tuple[str, str, Reading], ...] = (
    ("full", "plain_error", "soundness"),
    ("full", "no_error_categories", "soundness"),
    ("full", "typed_three", "soundness"),
    ("full", "no_subtasks", "quality"),
    ("full", "typed_three", "quality"),
)
"""Two variants and the reading by which both are read."""
_STYLE = ":root{background:var(--bg)}text{font:12px system-ui,sans-serif;fill:var(--fg)}.dim{fill:var(--dim)}"


@dataclass(frozen=True, slots=True)
class System:
    """A run under one reading: for each item the steps that it flags, or ``None`` without scores."""

    run: Run
    reading: Reading
    flagged: tuple[tuple[bool, ...] | None, ...]

    def table(self, items: Sequence[Judged], excused: bool = False) -> Table:
        """The hits and misses. ``excused`` ignores flags on steps that are correct but not optimal."""
        found: dict[tuple[str, str], int | None] = {}
        for judged, flags in zip(items, self.flagged, strict=True):
            idle = judged.idle if excused else frozenset()
            verdicts = None if flags is None else [t in idle or not flag for t, flag in enumerate(flags)]
            found[judged.item.key] = None if verdicts is None else first_error(verdicts)
        return Table.of([judged.item for judged in items], found)

    def false_alarms(self, items: Sequence[Judged], idle: bool) -> tuple[int, int]:
        """The flagged steps among the correct steps that are ``idle`` (correct but not optimal) or not, and these."""
        flags = [
            given[place]
            for judged, given in zip(items, self.flagged, strict=True)
            for place in range(judged.correct if given is not None else 0)
            if given is not None and (place in judged.idle) is idle
        ]
        return sum(flags), len(flags)


def readings_of(variant: str) -> tuple[Reading, ...]:
    """Soundness and quality, as far as the labels of a variant give them."""
    has = core.readings_of(VARIANTS[variant])
    return tuple(reading for reading in get_args(Reading) if reading in has)


def scores(benchmark: str, run: str) -> Scores:
    """The scores of a run's predicted steps; raises ``DataError`` if the run was not evaluated."""
    path = PREDICTIONS / benchmark / f"{run}.jsonl"
    if not path.exists():
        raise DataError(f"{path} does not exist; run `dvc repro {benchmark}@{run}`")
    return scores_of(row for _, row in read_jsonl(path))


def systems(runs: Sequence[Run], items: Sequence[Judged]) -> list[System]:
    """Each run under each of its readings, on the items in their order."""
    found: list[System] = []
    for run in runs:
        steps = scores("processbench", run.name)
        for reading in readings_of(run.variant):
            mine = (steps.get(judged.item.key) for judged in items)
            flagged = (tuple(step.read(reading) < 0.5 for step in each) if each else None for each in mine)
            found.append(System(run, reading, tuple(flagged)))
    return found


def curves(found: Sequence[System], items: Sequence[Judged]) -> dict[tuple[str, Reading], list[float]]:
    """For each variant and reading, the mean over seeds of F1 at each of ``SHARES``."""
    weights = [weights_at(items, share) for share in SHARES]
    by_seed: dict[tuple[str, Reading], list[list[float]]] = {}
    for system in found:
        table = system.table(items)
        by_seed.setdefault((system.run.variant, system.reading), []).append([weighted_f1(table, w) for w in weights])
    return {key: np.mean(rows, axis=0).tolist() for key, rows in by_seed.items()}


def contrast(found: Sequence[System], items: Sequence[Judged], left: str, right: str, reading: str) -> Estimate | None:
    """F1 of one variant minus F1 of another by one reading, paired by problem and seed; ``None`` without a pair.

    The interval covers new problems and, with several seeds, new seeds (``bootstrap.estimate``).
    """

    strata = [judged.item.subset for judged in items]

    def replicates(system: System) -> npt.NDArray[np.float64]:
        return replicate(len(items), system.table(items).mean_f1, INTERVALS, strata)

    by_seed = {(s.run.variant, s.run.seed): s for s in found if s.reading == reading}
    seeds = sorted(seed for variant, seed in by_seed if variant == left and (right, seed) in by_seed)
    if not seeds:
        return None
    rows = [replicates(by_seed[left, seed]) - replicates(by_seed[right, seed]) for seed in seeds]
    return estimate([np.stack(rows)], INTERVALS.confidence)


def prmbench_rows(runs: Sequence[Run]) -> list[tuple[str, ...]]:
    """PRMBench by variant under both of its rules, each figure the mean over seeds.

    The rule "correctness labels" judges every class by soundness or, without it, by quality. "redundancy labels" judges
    the classes about redundancy by quality and the others by soundness, for variants that have both.
    """
    items = read_prmbench(RAW / "prmbench").items
    found: dict[tuple[str, str], list[list[float]]] = {}
    for run in runs:
        steps, has = scores("prmbench", run.name), readings_of(run.variant)
        rules = {f"correctness labels by {has[0]}": str(has[0])}
        for rule, reading in (rules | ({"redundancy labels": core.DEFINITION} if len(has) > 1 else {})).items():
            figures = prmbench_figures(items, steps, reading)
            found.setdefault((run.variant, rule), []).append([*figures.values()])
    return [(*key, *(f"{x:.1f}" for x in np.mean(rows, axis=0))) for key, rows in found.items()]


def tables(runs: Sequence[Run], items: Sequence[Judged], found: Sequence[System]) -> str:
    """All figures as Markdown tables."""
    every = np.arange(len(items))
    idle, correct = sum(len(judged.idle) for judged in items), sum(judged.correct for judged in items)
    by_variant: dict[tuple[str, str], list[System]] = {}
    for system in found:
        by_variant.setdefault((system.run.variant, system.reading), []).append(system)
    mine = [
        (
            *key,
            *(_each(f"{s.table(items, excused).mean_f1(every):.1f}" for s in seeds) for excused in (False, True)),
            *(_each(s.false_alarms(items, is_idle)[0] for s in seeds) for is_idle in (True, False)),
        )
        for key, seeds in by_variant.items()
    ]
    lines = [
        (*key, *(f"{value:.1f}" for value in curve), f"{(curve[0] - curve[-1]) / SHARES[-1]:.2f}")
        for key, curve in curves(found, items).items()
    ]
    pairs = [
        (f"{left} - {right}", reading, f"{e.value:+.1f} [{e.low:.1f}, {e.high:.1f}]", f"{e.p:.3f}")
        for left, right, reading in CONTRASTS
        if (e := contrast(found, items, left, right, reading))
    ]
    f1, alarms = "ProcessBench F1", "false alarms on"
    parts = [
        f"{f1} by reading, one figure for each seed. Of {correct:,} correct steps, {idle} are not optimal "
        f"({100 * idle / correct:.1f} %). “Excused” ignores flags on these.",
        markdown_table(("variant", "reading", "F1", "excused", f"{alarms} these", f"{alarms} others"), mine),
        f"{f1} if a percentage of the correct steps is not optimal, mean over seeds. Solutions with such a step are "
        "weighted, all others weigh 1. The last column is the mean loss per percent.",
        markdown_table(("variant", "reading", *(f"{share} %" for share in SHARES), "loss"), lines),
        f"Differences of {f1} between variants by one reading, paired by problem and seed, with 95 % intervals.",
        markdown_table(("variants", "reading", "difference", "p"), pairs),
        "PRMBench under both of its rules, mean over seeds.",
        markdown_table(("variant", "rule", "PRMScore", *prmbench.CATEGORIES), prmbench_rows(runs)),
    ]
    return "\n\n".join(parts) + "\n"


def _each(values: Iterable[object]) -> str:
    return ", ".join(map(str, values))


def draw(found: Sequence[System], items: Sequence[Judged]) -> str:
    """The curves of ``tables`` as SVG."""
    series = {
        f"{VARIANTS[variant].title}, {reading}": list(zip(map(float, SHARES), curve, strict=True))
        for (variant, reading), curve in curves(found, items).items()
    }
    label = "correct steps that are not optimal, percent"
    title = "ProcessBench F1 against the share of steps that are not optimal, by variant and reading"
    return standalone(line_chart(series, label, "ProcessBench F1, percent", spans={}), title)


def standalone(chart: str, title: str) -> str:
    """A chart of the report as a file of its own."""
    head, _, rest = chart.partition(">")
    return f'{head} role="img"><title>{title}</title><style>{PALETTE}{_STYLE}</style>{rest}\n'


def main(argv: Sequence[str] | None = None) -> None:
    """Print the tables, or write them and the picture; raises ``DataError`` if a run was not evaluated."""
    parser = argparse.ArgumentParser(
        prog="python -m docs.tools.readings", description=(__doc__ or "").split("\n", 1)[0]
    )
    parser.add_argument("--write", action="store_true", help=f"write {PICTURE} and {PAGE}")
    arguments = parser.parse_args(argv)
    runs = parse_runs(load_params().runs)
    items = [judge(item) for item in read_processbench(RAW / "processbench").items]
    found = systems(runs, items)
    text = tables(runs, items, found)
    if not arguments.write:
        print(text, end="")
        return
    write_text(PICTURE, draw(found, items))
    write_text(PAGE, between(PAGE.read_text(encoding="utf-8"), START, text, END, PAGE))


if __name__ == "__main__":
    with errors_without_traceback():
        main()
