from __future__ import annotations

import polars as pl

from pathfinder.core.labels import Scores
from pathfinder.core.metrics import Agreement
from pathfinder.core.records import LABELS
from pathfinder.judge.label_tables import agreement, labels_of
from pathfinder.judge.labelling import Verdicts
from tests.judge.test_labelling import table

STEPS, _ = table(
    ("prm800k", 1, "given"),
    ("prm800k", -1, "agrees"),
    ("prm800k", -1, "disagrees"),
    ("rlhflow_mistral", 1, "agrees"),
    ("rlhflow_mistral", 1, "disagrees"),
    ("rlhflow_mistral", -1, "agrees"),
    ("rlhflow_mistral", -1, "not parsed"),
)
ONES, ERROR = Scores(1, 1, 1), Scores(1, 0, 1)


def verdicts() -> Verdicts:
    found = Verdicts.unknown(len(STEPS))
    found.settle(0, "given", ONES)
    for row, scores in ((1, ERROR), (2, ONES), (3, ONES), (4, ERROR), (5, ERROR)):
        found.settle(row, "parsed", scores)
    found.settle(6, "unparsed", None)
    found.asked[1:6], found.asked[6] = 0b1, 0b1011
    return found


def test_a_row_of_the_label_table_has_scores_or_nulls_and_their_origin() -> None:
    labels = labels_of(STEPS, verdicts())
    assert labels.schema == pl.Schema(LABELS)
    assert labels["id"].to_list() == STEPS["id"].to_list()
    assert labels["origin"].to_list() == ["rating", *["judge"] * 5, "none"]
    assert labels["consistency"].to_list() == [1, 0, 1, 1, 0, 0, None]
    assert labels["optimality"].to_list() == [1, 1, 1, 1, 1, 1, None]
    assert labels["attempts"].to_list() == [0, 1, 1, 1, 1, 1, 3]


def test_agreement_counts_judged_steps_by_source_and_rating() -> None:
    assert agreement(STEPS, labels_of(STEPS, verdicts())) == {
        "prm800k:-1": Agreement(judged=2, share=0.5),
        "rlhflow_mistral:+1": Agreement(judged=2, share=0.5),
        "rlhflow_mistral:-1": Agreement(judged=1, share=1.0),
    }
