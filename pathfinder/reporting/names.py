"""The names of benchmarks and systems in the report, and the words for missing figures."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from pathfinder.benchmarks import paper, prmbench, processbench
from pathfinder.core import prompts
from pathfinder.core.readings import reading_for, readings_of
from pathfinder.core.runs import MAIN_MIX, Run
from pathfinder.policy import choosing
from pathfinder.reporting.origins import PAPER, placed

VARIANTS = {variant.name: variant.title for variant in prompts.VARIANTS.values()}
MIXES = {"prm800k": "PRM800K only"}
MISSING, NOT_APPLICABLE = "missing", "–"
CONTROL = "random"
TABLES = Path("reports/tables.json")
CARDS = Path("reports/cards")
"""The cards of the trained models, one Markdown file per run."""
PUBLISHED = Path("reports/published.json")
"""The tables of a profile without runs."""
TEXTS: dict[str, dict[str, str]] = tomllib.loads(files(__package__).joinpath("texts.toml").read_text(encoding="utf-8"))
"""The content of ``texts.toml``: column headings, captions and notices by section and key."""
CAPTIONS = TEXTS["captions"]


@dataclass(frozen=True, eq=False, slots=True)
class Benchmark:
    """A benchmark: its folders' name, the title of its main figure, the paper's table, and the reading it asks for."""

    key: str
    title: str
    table: paper.PaperTable
    reading: str


_PAPER = placed(paper.CONTENT, PAPER)
PROCESSBENCH = Benchmark(
    "processbench", "ProcessBench mean F1", paper.table("processbench", _PAPER), processbench.READING
)
PRMBENCH = Benchmark("prmbench", "PRMScore", paper.table("prmbench", _PAPER), prmbench.READING)
SEARCH = Benchmark("search", "search accuracy", paper.table("search", _PAPER), choosing.READING)
PROCESSBENCH_FULL, SCALE = paper.table("processbench_full", _PAPER), paper.scale(_PAPER)
"""The paper's further tables; each figure of its tables knows its place."""
BENCHMARKS = (PROCESSBENCH, PRMBENCH, SEARCH)
COLUMNS = {benchmark.key: benchmark.title for benchmark in BENCHMARKS} | choosing.COLUMNS
"""The columns of the main results, by their key in ``reports/tables.json``."""


def reading_on(benchmark: Benchmark, variant: str) -> str:
    """The reading of a variant's main figures by our rules: the one the benchmark asks for, if the variant has it."""
    return reading_for(benchmark.reading, readings_of(prompts.VARIANTS[variant]))


def marked(name: str, benchmark: Benchmark, variant: str) -> str:
    """``name`` with the reading of a variant that lacks the one the benchmark asks for."""
    reading = reading_on(benchmark, variant)
    return name if reading == benchmark.reading else f"{name} by {reading}"


def name_of(run: Run) -> str:
    """A system's name in tables and charts; runs that differ only in the seed share it."""
    variant = VARIANTS[run.variant]
    return variant if run.mix == MAIN_MIX else f"{variant}, {MIXES.get(run.mix, f'{run.mix.upper()} mix')}"


def label(members: Sequence[Run]) -> str:
    """A system's name in tables, with the number of seeds if its figures are means over several."""
    return name_of(members[0]) + (f" (mean of {len(members)} seeds)" if len(members) > 1 else "")


def spoken(run: Run) -> str:
    """A system's name in a sentence."""
    variant = VARIANTS[run.variant] if run.variant == "full" else f"the variant {VARIANTS[run.variant]}"
    if run.mix == MAIN_MIX:
        return variant
    return f"{variant} on {MIXES.get(run.mix, f'the {run.mix.upper()} mix')}"
