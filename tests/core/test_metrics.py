"""The records of metric files: the keys that are written, and what a reader refuses."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from pydantic import TypeAdapter, ValidationError

from ground.io import DataError
from pathfinder.core.metrics import Flow, Stage, account, checked, write_metrics

FLOW: dict[str, Any] = {"read": 3, "kept": 2, "dropped": {"unrated": 1}, "quarantined": {}}


def test_a_record_is_written_with_the_keys_that_it_was_given(tmp_path: Path) -> None:
    path = tmp_path / "metrics.json"
    write_metrics(path, Flow(read=3, kept=2, dropped=Counter(unrated=1), quarantined={}))
    assert json.loads(path.read_text()) == FLOW
    write_metrics(path, Stage(**FLOW, sources={"prm800k": Flow(**FLOW)}))
    assert json.loads(path.read_text()) == FLOW | {"sources": {"prm800k": FLOW}}


def test_a_writer_cannot_misspell_a_key_but_a_reader_ignores_other_keys() -> None:
    with pytest.raises(ValidationError, match="source"):
        Stage.model_validate(FLOW | {"source": {}})
    read = checked(TypeAdapter(Stage), FLOW | {"source": {}}, Path("metrics/filter.json"))
    assert (read.kept, read.sources, read.lost) == (2, {}, {"unrated": 1})


def test_every_record_is_kept_or_dropped_with_its_reason_in_all_and_by_source() -> None:
    rows = pl.DataFrame({"source": ["a", "b", "a", "a"], "reason": [None, "too_long", "too_long", "unparsed"]})
    assert account(rows).as_json() == {
        "read": 4,
        "kept": 1,
        "dropped": {"too_long": 2, "unparsed": 1},
        "quarantined": {},
        "sources": {
            "a": {"read": 3, "kept": 1, "dropped": {"too_long": 1, "unparsed": 1}, "quarantined": {}},
            "b": {"read": 1, "kept": 0, "dropped": {"too_long": 1}, "quarantined": {}},
        },
    }


@pytest.mark.parametrize("wrong", [{"kept": -1}, {"kept": True}, {"dropped": {"unrated": "1"}}])
def test_a_wrong_value_is_named_with_its_file_and_the_remedy(wrong: dict[str, object]) -> None:
    with pytest.raises(
        DataError, match=rf"metrics/filter.json: {next(iter(wrong))}.*run the stage that writes it again"
    ):
        checked(TypeAdapter(Stage), FLOW | wrong, Path("metrics/filter.json"))
