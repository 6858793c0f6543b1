"""The label rules: scores implied by a rating, disagreement of judge and rating, and correctness.

Source: paper section 3.3; ``run_inference.py``, ``run_inference_mistral.py`` and ``build_dataset.py`` of the published
code. Ratings are -1, 0, 1 for PRM800K; a Monte-Carlo "+" is 1 and "-" is -1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import polars as pl

Outcome = Literal["given", "parsed", "unparsed", "too_long", "refused", "engine_error", "not_sampled", "unrated"]
HUMAN = "prm800k"
MONTE_CARLO: tuple[str, ...] = ("rlhflow_mistral", "math_shepherd")
FOLDERS = {HUMAN: HUMAN, "rlhflow_mistral": "mistral", "math_shepherd": "math_shepherd"}
"""The folder below artifacts/raw of each source of rated steps."""
DISAGREES = "disagrees"


@dataclass(frozen=True, slots=True)
class Scores:
    """The judge's three criteria, each 0 or 1."""

    math: int
    consistency: int
    optimality: int

    @property
    def all_ones(self) -> bool:
        """Whether the judge found no error."""
        return (self.math, self.consistency, self.optimality) == (1, 1, 1)


_GIVEN = {1: Scores(1, 1, 1), 0: Scores(1, 1, 0)}


def given_scores(source: str, rating: int | None) -> Scores | None:
    """The scores that a rating implies without a judge (PRM800K 1 and 0), or ``None``."""
    return _GIVEN.get(rating) if source == HUMAN and rating is not None else None


def disagrees(source: str, rating: int, scores: Scores) -> bool:
    """Whether the scores contradict the rating: all ones for a -1, or an error for a Monte-Carlo "+"."""
    if rating == -1:
        return scores.all_ones
    return source in MONTE_CARLO and rating == 1 and not scores.all_ones


def drop_reason() -> pl.Expr:
    """The reason to drop a labelled record, or null to keep it. Reads the columns of STEPS joined with LABELS.

    A record without scores is dropped under the name of its outcome, a contradiction as "disagrees".
    """
    all_ones = (pl.col("math") == 1) & (pl.col("consistency") == 1) & (pl.col("optimality") == 1)
    monte_carlo_plus = pl.col("source").is_in(MONTE_CARLO) & (pl.col("rating") == 1)
    contradiction = ((pl.col("rating") == -1) & all_ones) | (monte_carlo_plus & ~all_ones)
    unlabelled = pl.col("math").is_null()
    return pl.when(unlabelled).then(pl.col("outcome")).when(contradiction).then(pl.lit(DISAGREES))


def correctness() -> pl.Expr:
    """1 if math, consistency and optimality are all 1, else 0 (paper section 3.2; a neutral PRM800K step is 0)."""
    return pl.min_horizontal("math", "consistency", "optimality").cast(pl.Int8)
