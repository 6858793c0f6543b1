"""The error types, and the label rules: implied scores, disagreement of judge and rating, and correctness.

``ERROR_TYPES`` declares each type once. Tables, gates, the judge's answers, training labels and pictures follow it.

Source: paper sections 3.2 and 3.3; ``run_inference.py``, ``run_inference_mistral.py`` and ``build_dataset.py`` of the
published code. Ratings are -1, 0, 1 for PRM800K; a Monte-Carlo "+" is 1 and "-" is -1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

if TYPE_CHECKING:
    import polars as pl  # imported by the functions that need it: scoring works without it

Outcome = Literal["given", "parsed", "unparsed", "too_long", "refused", "engine_error", "not_sampled", "unrated"]
OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)
UNASKED: tuple[Outcome, ...] = ("not_sampled", "unrated")
"""The outcomes of records that need a judge but were left unlabelled on purpose."""
HUMAN = "prm800k"
MONTE_CARLO: tuple[str, ...] = ("rlhflow_mistral", "math_shepherd")
FOLDERS = {HUMAN: HUMAN, "rlhflow_mistral": "mistral", "math_shepherd": "math_shepherd"}
"""The folder below artifacts/raw of each source of rated steps."""
DISAGREES = "disagrees"
CORRECTNESS = "correctness"
OPTIMALITY = "optimality"


@dataclass(frozen=True, slots=True)
class ErrorType:
    """A criterion of the judge, and its label in the PRM's prompt. A score or label of 0 means an error of this type.

    ``name`` is the column in tables and the key in JSON, ``letter`` the score's letter in the judge's prompt. An empty
    ``caption`` means that only the judge scores the type, and the PRM does not predict it. ``title`` and ``meaning``
    describe a step without such an error: as a column heading, and as the predicate of a sentence about the step.
    ``neutral`` is the score that a human rating of 0 implies. ``official`` is the part of the published
    expression that matches the value.
    """

    name: str
    letter: str
    caption: str = ""
    title: str = ""
    meaning: str = ""
    neutral: int = 1
    official: str = r"\d"


ERROR_TYPES = (
    ErrorType("math", "A", "Math reasoning", "no math error", "has no math error"),
    ErrorType("consistency", "B", "Consistency", "consistent", "is consistent with what precedes it"),
    ErrorType(OPTIMALITY, "C", neutral=0, official=r"[01](?:\.\d+)?"),
)
"""The error types in the order of the judge's answer (paper appendix "Data Annotation Prompt")."""
CRITERIA = tuple(kind.name for kind in ERROR_TYPES)
"""The columns of the judge's scores."""
PREDICTED = tuple(kind for kind in ERROR_TYPES if kind.caption)
"""The types that a PRM can predict."""
STEP_LABELS = (*(kind.name for kind in PREDICTED), CORRECTNESS)
"""The labels that training data carry, each 0 or 1; correctness is 1 only if all criteria of the judge are 1."""


class Scores(tuple[int, ...]):
    """The judge's scores, each 0 or 1, in the order of ``CRITERIA``."""

    __slots__ = ()

    def __new__(cls, *scores: int) -> Scores:
        """Raises ``ValueError`` unless there is a score for each error type."""
        if len(scores) != len(CRITERIA):
            raise ValueError(f"{len(scores)} scores, expected one for each of {', '.join(CRITERIA)}")
        return super().__new__(cls, scores)

    @property
    def named(self) -> dict[str, int]:
        """The scores by the names of their types."""
        return dict(zip(CRITERIA, self, strict=True))

    @property
    def has_error(self) -> bool:
        """True if the score of a type that a PRM can predict is 0."""
        return not all(self.named[kind.name] for kind in PREDICTED)


_GIVEN = {1: Scores(*(1 for _ in ERROR_TYPES)), 0: Scores(*(kind.neutral for kind in ERROR_TYPES))}


def given_scores(source: str, rating: int | None) -> Scores | None:
    """The scores that a rating implies without a judge (PRM800K 1 and 0), or ``None``."""
    return _GIVEN.get(rating) if source == HUMAN and rating is not None else None


def disagrees(source: str, rating: int, scores: Scores) -> bool:
    """True if the scores contradict the rating: all ones for a -1, or an error for a Monte-Carlo "+"."""
    if rating == -1:
        return all(scores)
    return source in MONTE_CARLO and rating == 1 and not all(scores)


def drop_reason() -> pl.Expr:
    """The reason to drop a labelled record, or null to keep it. Reads the columns of STEPS joined with LABELS.

    A record without scores is dropped under the name of its outcome; a contradiction is dropped as "disagrees".
    """
    import polars as pl

    all_ones = pl.all_horizontal(pl.col(CRITERIA) == 1)
    monte_carlo_plus = pl.col("source").is_in(MONTE_CARLO) & (pl.col("rating") == 1)
    contradiction = ((pl.col("rating") == -1) & all_ones) | (monte_carlo_plus & ~all_ones)
    return pl.when(~is_labelled()).then(pl.col("outcome")).when(contradiction).then(pl.lit(DISAGREES))


def is_labelled() -> pl.Expr:
    """True if a row has scores."""
    import polars as pl

    return pl.col(CRITERIA[0]).is_not_null()


def correctness() -> pl.Expr:
    """1 if every criterion is 1, else 0 (paper section 3.3; a neutral PRM800K step is 0)."""
    import polars as pl

    return pl.min_horizontal(CRITERIA).cast(pl.Int8)
