"""Metric files: each has a typed record, declared next to the stage that writes it; the report reads it.

A record is written with only the keys that it was given: a key that does not apply is absent from the file, and gets
its default when the file is read. Numbers stay the given objects, so a whole number is not written as a float, and a
number that knows its place in a file keeps it (``pathfinder.reporting.origins``). A reader ignores unknown keys.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, WrapValidator

from ground.io import DataError, write_json
from ground.text import first_problem
from pathfinder.core.readings import DECLARED

if TYPE_CHECKING:
    import polars as pl


def _as_given(value: Any, check: Any) -> Any:
    check(value)
    return value


Number = Annotated[float, Field(allow_inf_nan=False), WrapValidator(_as_given)]
Figure = Number | None
"""A figure that may be undefined."""
Whole = Annotated[int, Field(ge=0, lt=2**53), WrapValidator(_as_given)]
Counts = Annotated[dict[str, Whole], WrapValidator(_as_given)]
Pair = Annotated[list[Number], Field(min_length=2, max_length=2)]
Form = TypeVar("Form")


class Metrics(BaseModel):
    """A part of a metric file."""

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid")

    def as_json(self) -> dict[str, Any]:
        """The given keys and values."""
        return self.model_dump(exclude_unset=True)

    @classmethod
    def headings(cls) -> dict[str, str]:
        """The keys that have a title in the report, in order."""
        return {name: field.title for name, field in cls.model_fields.items() if field.title}

    def titled(self) -> dict[str, Any]:
        """The values of the keys that have a title, by title."""
        return {title: getattr(self, name) for name, title in self.headings().items()}


class Flow(Metrics):
    """The records that a stage read, kept and lost by reason: read = kept + dropped + quarantined."""

    read: Whole
    kept: Whole
    dropped: Counts
    quarantined: Counts

    @property
    def lost(self) -> dict[str, int]:
        """The lost records by reason."""
        quarantined = {f"{reason} (quarantined)": count for reason, count in self.quarantined.items()}
        return {reason: count for reason, count in {**self.dropped, **quarantined}.items() if count}


class Stage(Flow):
    """The records of all sources, and of each."""

    sources: Mapping[str, Flow] = {}


def account(rows: pl.DataFrame) -> Stage:
    """The accounting of records with a ``source`` and the ``reason`` for dropping each; null if it was kept."""
    parts = rows.partition_by("source", as_dict=True)
    return Stage(**dict(_flow(rows)), sources={str(source): _flow(part) for (source,), part in parts.items()})


def _flow(rows: pl.DataFrame) -> Flow:
    reasons = rows["reason"].drop_nulls().value_counts()
    return Flow(read=len(rows), kept=rows["reason"].null_count(), dropped=dict(reasons.iter_rows()), quarantined={})


class Agreement(Metrics):
    """The steps that the judge labelled, and the share whose labels agree with the rating."""

    judged: Whole
    share: Figure


class Measured(Metrics):
    """A system on a benchmark, in percent, with its figures by each reading or decision rule.

    ``reading`` names the reading of the main figures: the benchmark's declared reading, or a different one if the
    system lacks it. ``readings`` has the figures by reading; ``rules`` has a published PRM's figures by convention.
    ``kept`` counts the items, ``dropped`` those left out by reason, ``too_long`` those without scores. ``official`` has
    the figures of the published rule in the published evaluator's arithmetic; ``preset`` selects the rule of the main
    figures.
    """

    interval: Pair | None = None
    titles: list[str] = []  # of a published system, in the paper's tables
    preset: str = ""
    kept: Whole | None = None
    dropped: Counts = {}
    too_long: Whole | Counts = 0  # of a published PRM: by convention
    reading: str = ""
    readings: Mapping[str, Measured] = {}
    rules: Mapping[str, Measured] = {}
    official: Measured | None = None
    baselines: Mapping[str, Measured] = {}

    @property
    def headline(self) -> float | None:
        """The main figure. The record of each benchmark defines it; this one raises ``NotImplementedError``."""
        raise NotImplementedError

    @property
    def is_whole(self) -> bool:
        """False if a limit left items out, so that the figures are about a part of the benchmark."""
        return not self.dropped.get("limit")

    @property
    def by_default_rule(self) -> Measured:
        """The figures by the declared reading and our grading, whatever rule the preset selects."""
        return next((self.readings[name] for name in DECLARED if name in self.readings), self)

    def score(self, column: str) -> float | None:
        """The main figure, or the score of a part by its name; ``None`` if it was not measured.

        Raises as ``headline`` does.
        """
        raise NotImplementedError


def checked(form: TypeAdapter[Form], content: Any, path: Path, extra: Literal["ignore", "allow"] = "ignore") -> Form:
    """The content of a metric file as its record; raises ``DataError`` with the first wrong key."""
    try:
        return form.validate_python(content, extra=extra)
    except ValidationError as error:
        raise DataError(f"{path}: {first_problem(error)}; run the stage that writes it again") from error


def write_metrics(path: Path, found: Metrics) -> None:
    """Write a metric file atomically."""
    write_json(path, found.as_json())
