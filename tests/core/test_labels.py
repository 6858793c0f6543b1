from __future__ import annotations

from itertools import product

import polars as pl
import pytest

from pathfinder.core.labels import Scores, correctness, disagrees, drop_reason, given_scores
from pathfinder.core.records import LABELS

SOURCES = ("prm800k", "rlhflow_mistral", "math_shepherd")


def test_ratings_that_imply_scores() -> None:
    assert (given_scores("prm800k", 1) or ())[:3] == (1, 1, 1)
    assert (given_scores("prm800k", 0) or ())[:3] == (1, 1, 0)
    assert given_scores("prm800k", -1) is None
    assert given_scores("prm800k", None) is None
    assert given_scores("rlhflow_mistral", 1) is None


def test_only_prm800k_ratings_of_1_and_0_imply_scores() -> None:
    implied = {
        (source, rating) for source, rating in product(SOURCES, (-1, 0, 1, None)) if given_scores(source, rating)
    }
    assert implied == {("prm800k", 1), ("prm800k", 0)}


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("rating", [-1, 1])
def test_filter_agrees_with_the_rule_on_every_combination(source: str, rating: int) -> None:
    """The paper's: a -1 with all ones is dropped, and a Monte-Carlo "+" with an error."""
    combinations = list(product((0, 1), repeat=3))
    frame = pl.DataFrame(
        [(source, rating, *scores, "parsed") for scores in combinations],
        schema={"source": pl.String, "rating": pl.Int8, **{k: LABELS[k] for k in ("math", "consistency", "optimality")}}
        | {"outcome": pl.String},
        orient="row",
    )
    decided = frame.select(reason=drop_reason(), correctness=correctness())
    for scores, (reason, correct) in zip(combinations, decided.iter_rows(), strict=True):
        is_right = scores == (1, 1, 1)
        expected = is_right if rating == -1 else source != "prm800k" and not is_right
        assert disagrees(source, rating, Scores(*scores)) is expected
        assert reason == ("disagrees" if expected else None)
        assert correct == int(is_right)


def test_a_missing_label_is_dropped_under_its_outcome() -> None:
    frame = pl.DataFrame(
        {"source": ["prm800k"], "rating": [-1], "math": [None], "consistency": [None], "optimality": [None]},
        schema_overrides={"math": pl.Int8, "consistency": pl.Int8, "optimality": pl.Int8},
    ).with_columns(outcome=pl.lit("too_long"))
    assert frame.select(reason=drop_reason()).item() == "too_long"
