"""The exclusion list: upstream lines and records that must not enter the training set.

``exclusions.jsonl`` is tracked by git and is an input of the build stage. Each line is an object with one of the keys
``content`` (a content id, with ``step`` and ``completion`` for one record of the line), ``rater`` and ``source`` (a
source of the tables, or a folder below artifacts/raw). ``reason`` and ``id`` are for readers. Appending lines to a file
changes no content id, so a list stays valid.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import polars as pl
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    NonNegativeInt,
    StringConstraints,
    ValidationError,
    model_validator,
)

from ground.io import DataError, read_jsonl

EXCLUSIONS = Path("exclusions.jsonl")
EXCLUDED = {"id": pl.String(), "detail": pl.String()}


def _storable(value: str) -> str:
    """Refuse lone surrogates, which no table can hold."""
    value.encode()
    return value


Text = Annotated[str, AfterValidator(_storable)]
Name = Annotated[Text, StringConstraints(pattern=r"\S")]


class Exclusion(BaseModel):
    """One line of the list."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    content: Name | None = None
    step: NonNegativeInt | None = None
    completion: NonNegativeInt | None = None
    rater: Name | None = None
    source: Name | None = None
    reason: Text = ""
    id: Text = ""

    @model_validator(mode="after")
    def _one_key(self) -> Exclusion:
        if sum(value is not None for value in (self.content, self.rater, self.source)) != 1:
            raise ValueError("expected exactly one of content, rater and source")
        if (self.step is None) != (self.completion is None) or (self.step is not None and self.content is None):
            raise ValueError("step and completion belong together, and to a content id")
        return self

    @property
    def key(self) -> str:
        """The excluded records in words, for example ``rater:rater-11``."""
        kind, value = next((kind, value) for kind in ("content", "rater", "source") if (value := getattr(self, kind)))
        return f"{kind}:{value}" + ("" if self.step is None else f"-{self.step}-{self.completion}")


def read_exclusions(path: Path = EXCLUSIONS) -> list[Exclusion]:
    """Read the list; raises ``DataError`` if the file is missing or a line has a different form."""
    if not path.exists():
        raise DataError(f"{path}: no such file; restore it with `git checkout {path}`, or create an empty one")
    found = []
    for number, value in read_jsonl(path):
        try:
            found.append(Exclusion.model_validate(value))
        except ValidationError as error:
            raise DataError(f"{path}:{number}: {error.errors()[0]['msg']}; correct or remove the line") from error
    return found


def excluded_records(exclusions: Sequence[Exclusion], lines: pl.DataFrame, trees: pl.DataFrame) -> pl.DataFrame:
    """The records of ``trees`` (``records.TREES``) that the list excludes, in the order of the trees (``EXCLUDED``).

    ``lines`` is the table of upstream lines (``records.LINES``). ``detail`` is the key of the first exclusion and its
    reason.
    """
    wanted = _matching_lines(exclusions, lines)
    records = trees.select("tree_id", "branches").explode("branches")
    ids = records.select("tree_id", id=pl.col("branches").struct.field("id"))
    whole, single = wanted.filter(pl.col("step").is_null()), wanted.filter(pl.col("step").is_not_null())
    single = single.with_columns(id=pl.concat_str("line_id", "step", "completion", separator="-"))
    found = pl.concat(
        [
            ids.join(whole, left_on="tree_id", right_on="line_id").select("id", "place", "detail"),
            ids.select("id").join(single, on="id").select("id", "place", "detail"),
        ]
    )
    first = found.sort("place", maintain_order=True).unique("id", keep="first", maintain_order=True)
    return ids.select("id").join(first, on="id", maintain_order="left").select(*EXCLUDED)


def _matching_lines(exclusions: Sequence[Exclusion], lines: pl.DataFrame) -> pl.DataFrame:
    """The lines that each exclusion names, with its place in the list, its step and completion, and its key."""
    kinds = {"content": pl.String(), "rater": pl.String(), "source": pl.String(), "step": pl.Int64()}
    listed = pl.DataFrame(
        [
            (place, e.content, e.rater, e.source, e.step, e.completion, f"{e.key} ({e.reason})" if e.reason else e.key)
            for place, e in enumerate(exclusions)
        ],
        schema={"place": pl.Int64(), **kinds, "completion": pl.Int64(), "detail": pl.String()},
        orient="row",
    )
    named = lines.select("line_id", "content", "rater", "source", folder=pl.col("file").str.split("/").list.first())
    pairs = (("content", "content"), ("rater", "rater"), ("source", "source"), ("source", "folder"))
    columns = ("line_id", "place", "step", "completion", "detail")
    return pl.concat(
        [
            named.join(listed.drop_nulls(key).select(*columns[1:], key), left_on=column, right_on=key).select(*columns)
            for key, column in pairs
        ]
    )
