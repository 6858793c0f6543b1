"""The numbers of the paper's result tables ("Error Typing for Smarter Rewards"), in percent as printed.

``paper.toml`` contains them. Columns have the names of our metric keys; ``ours`` names the authors' own models.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

_ABLATIONS = {
    "full": "",
    "no_error_categories": " w/o Separate Error Categories",
    "no_subtasks": " w/o Separate Subtask Prediction",
}


@dataclass(frozen=True, slots=True)
class PaperRow:
    """A system and its numbers, one per column; ``samples`` is the paper's "# Samples"."""

    name: str
    values: tuple[float, ...]
    samples: str


@dataclass(frozen=True, slots=True)
class PaperTable:
    """A table of the paper; ``label`` is its LaTeX label."""

    label: str
    caption: str
    columns: tuple[str, ...]
    headings: tuple[str, ...]
    rows: tuple[PaperRow, ...]

    def row(self, name: str) -> PaperRow | None:
        """The row of a system, or ``None``."""
        return next((row for row in self.rows if row.name == name), None)


@dataclass(frozen=True, slots=True)
class ScaleRow:
    """A data mix and its averages on ProcessBench, PRMBench and the search."""

    name: str
    samples: str
    mistral_samples: str
    values: tuple[float, ...]


def differs(benchmark: str, titles: Sequence[str]) -> str:
    """The reason why a system's figures are not compared with the paper's by ``titles``; empty if there is none.

    Sources: the marks * in the paper's table of the search; ProcessBench paper, section 4.1 (QwenLM/ProcessBench#3).
    """
    if benchmark == "search" and not any(title.startswith("PathFinder") for title in titles):
        return "the paper's figure is R-PRM's, which grades differently"
    is_chosen = benchmark == "processbench" and "Skywork-PRM-7B" in titles
    return "the paper's threshold is the best on GSM8K" if is_chosen else ""


def ours(variant: str, mix: str) -> str:
    """The paper's name for one of our variants on a data mix; no row has this name if the paper has no such model."""
    base = {"400k": "PathFinder-PRM-7B", "prm800k": "PathFinder-PRM-7B-PRM800K"}.get(mix, f"PathFinder-PRM-7B-{mix}")
    return base + _ABLATIONS.get(variant, f" {variant}")


CONTENT: dict[str, Any] = tomllib.loads(files(__package__).joinpath("paper.toml").read_text(encoding="utf-8"))
"""``paper.toml``: the tables by name."""


def table(name: str, content: Mapping[str, Any] = CONTENT) -> PaperTable:
    """A table; ``processbench_full`` has the LLM judges before the rows of ``processbench``."""
    base = content["processbench"] if name == "processbench_full" else {"rows": []}
    found = base | content[name]
    rows = [*content[name]["rows"], *base["rows"]]
    return PaperTable(
        found["label"],
        found["caption"],
        tuple(found["columns"]),
        tuple(found["headings"]),
        tuple(PaperRow(name, tuple(values), samples) for name, samples, values in rows),
    )


def scale(content: Mapping[str, Any] = CONTENT) -> tuple[ScaleRow, ...]:
    """The rows of the data mix table."""
    rows = content["scale"]["rows"]
    return tuple(ScaleRow(name, samples, mistral, tuple(values)) for name, samples, mistral, values in rows)


PROCESSBENCH, PROCESSBENCH_FULL = table("processbench"), table("processbench_full")
PRMBENCH, SEARCH, SCALE = table("prmbench"), table("search"), scale()

SIZES: dict[str, dict[str, int]] = {
    "processbench": {"gsm8k": 400, "math": 1000, "olympiadbench": 1000, "omnimath": 1000},
    "prmbench": {"all": 6211},
    "search": {
        "aime24": 30,
        "amc23": 40,
        "math": 500,
        "olympiadbench": 200,
        "college_math": 200,
        "minerva_math": 272,
    },
}
"""Items of the published benchmarks and of the paper's search sets.

PRMBench is without its correct samples. Five of its 6,216 rows repeat an id, and its evaluator takes the first of each.
"""
