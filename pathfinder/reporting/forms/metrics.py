"""The forms of the stages' metric files, as far as the report reads them; other keys are free."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, model_validator

from ground.io import DataError
from ground.text import first_problem

Number = Annotated[float, Field(allow_inf_nan=False)]
Figure = Number | None
"""A figure that may be undefined."""
Whole = Annotated[int, Field(ge=0, lt=2**53)]
Pair = Annotated[list[Number], Field(min_length=2, max_length=2)]


def _plain(text: str) -> str:
    if not text.strip() or not text.isprintable():
        raise ValueError("empty or with control characters")
    return text


Text = Annotated[str, AfterValidator(_plain)]
"""A text for a terminal."""


class _Form(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True)


class Flow(_Form):
    """The records that a stage read, kept and lost by reason."""

    read: Whole
    kept: Whole
    dropped: dict[str, Whole]
    quarantined: dict[str, Whole]


class _Lines(_Form):
    read: Whole
    quarantined: Whole


class Stage(Flow):
    """A stage of the data."""

    sources: dict[str, Flow] = {}


class Prepare(Stage):
    """Metrics of the stage prepare."""

    lines: _Lines = _Lines(read=0, quarantined=0)


class Label(Stage):
    """Metrics of the stage label: the judge's work."""

    answers: Whole | None = None
    calls: Whole | None = None
    tokens: Whole | None = None
    prompt_tokens: Whole | None = None
    cost: Figure = None


class _Shared(_Form):
    exact_problems: Whole
    near_problems: Whole
    exact_steps: Whole
    near_steps: Whole


class _Overlap(_Shared):
    items: Whole
    steps: Whole
    sources: dict[str, _Shared]


class _Side(_Form):
    trees: Whole
    problems: Whole
    records: Whole
    sources: dict[str, Whole]


class _Removed(_Form):
    problems: Whole
    records: Whole


class Build(Stage):
    """Metrics of the stage build."""

    overlap: dict[str, _Overlap]
    removed: dict[str, _Removed] = {}
    train: _Side
    test: _Side


class _Labels(_Form):
    n: Whole = 0
    accuracy: Number
    majority_accuracy: Figure = None
    auc: Figure = None


class Train(_Form):
    """Of a training run."""

    final_loss: Number
    sources: dict[str, Whole]
    train_records: Whole
    optimiser_steps: Whole
    tokens_an_epoch: Whole | None = None
    test_labels: dict[str, _Labels] = {}


class _LogRow(_Form):
    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, Number]  # the labels' losses and accuracies
    step: Whole
    loss: Number


class _Rate(_Form):
    value: Figure
    interval: Pair | None

    @model_validator(mode="after")
    def _both(self) -> Self:
        if (self.value is None) != (self.interval is None):
            raise ValueError("value and interval are not both given")
        return self


class _Judged(_Form):
    steps: Whole
    kept: Whole
    wrong: _Rate
    error_recall: _Rate
    error_precision: _Rate
    false_alarms: _Rate
    labels_right: _Rate
    labels_right_kept: _Rate
    labels_right_dropped: _Rate


class Truth(_Form):
    """Metrics of the stage truth."""

    all: _Judged
    groups: dict[str, _Judged]


class _Work(_Form):
    """What a search or a sampling took."""

    samples: Whole | None = None
    finished: Whole | None = None
    without_step: Whole | None = None
    without_answer: Whole | None = None
    rounds: Whole | None = None
    candidates: Whole | None = None
    candidates_rejected: Whole | None = None
    policy_calls: Whole | None = None
    policy_calls_one_problem_at_a_time: Whole | None = None
    not_graded: Whole | None = None


class Sample(_Form):
    """Metrics of the stage sample: figures by name."""

    average: dict[str, Number]
    intervals: dict[str, Pair]
    sets: dict[str, dict[str, Figure]]
    details: _Work

    @model_validator(mode="after")
    def _same_names(self) -> Self:
        if self.average.keys() != self.intervals.keys():
            raise ValueError("average and intervals have other keys")
        return self


class _Threshold(_Form):
    threshold: Figure
    mean_f1: Figure
    subsets: dict[str, Figure]


class _Thresholds(_Form):
    curve: Annotated[list[Pair], Field(min_length=1)]
    fixed: _Threshold | None = None
    chosen_on_gsm8k: _Threshold | None = None
    oracle_upper_bound: _Threshold | None = None


class _Measured(_Form):
    interval: Pair | None = None
    titles: list[str] = []
    preset: str = ""
    kept: Whole | None = None
    too_long: Whole | dict[str, Whole] = 0  # of a published PRM: by convention


class _Subset(_Form):
    f1: Figure
    error_acc: Figure = None
    correct_acc: Figure = None


class _Generator(_Form):
    n: Whole
    f1: Figure = None


class ProcessBench(_Measured):
    """Of a system on ProcessBench."""

    mean_f1: Figure
    subsets: dict[str, _Subset] = {}
    baselines: dict[str, ProcessBench] = {}
    rules: dict[str, ProcessBench] = {}
    official: ProcessBench | None = None
    generators: dict[str, _Generator] = {}
    thresholds: _Thresholds | None = None


class _Totals(_Form):
    total: dict[str, Figure] = {}


class PRMBench(_Measured):
    """Of a system on PRMBench."""

    overall: Figure
    classes: dict[str, Figure] = {}
    categories: dict[str, Figure] = {}
    baselines: dict[str, PRMBench] = {}
    rules: dict[str, PRMBench] = {}
    official: PRMBench | None = None
    details: _Totals = _Totals()


class _BestOfN(_Form):
    n: Whole | None = None
    average: dict[str, Number]
    intervals: dict[str, Pair] = {}


class Search(_Measured):
    """Of a system's search."""

    average: Figure
    sets: dict[str, dict[str, Figure]] = {}
    rules: dict[str, Search] = {}
    official: Search | None = None
    repaired: Search | None = None
    best_of_n: _BestOfN | None = None
    details: _Work = _Work()


class _Score(_Form):
    model_config = ConfigDict(extra="forbid")
    value: Number
    low: Number
    high: Number


class _Row(_Form):
    system: Text
    processbench: _Score | Text
    prmbench: _Score | Text
    search: _Score | Text


class _Tables(_Form):
    results: list[_Row]
    toy: bool = False
    truth: list[Text] = []


STAGES: dict[str, TypeAdapter[Any]] = {
    name: TypeAdapter(form)
    for name, form in {
        "prepare": Prepare,
        "label": Label,
        "filter": Stage,
        "validate": Stage,
        "build": Build,
        "validate_train": Stage,
        "sample": Sample,
        "truth": Truth,
    }.items()
}
"""The forms of ``metrics/<name>.json``."""
SYSTEMS: dict[str, TypeAdapter[Any]] = {
    "train": TypeAdapter(Train),
    "processbench": TypeAdapter(ProcessBench),
    "prmbench": TypeAdapter(PRMBench),
    "search": TypeAdapter(Search),
}
"""The forms of ``metrics/<name>/<system>.json``."""
LOG: TypeAdapter[Any] = TypeAdapter(list[_LogRow])
"""The form of ``metrics/train/<run>_log.json``."""

TABLES: TypeAdapter[Any] = TypeAdapter(_Tables)
"""The form of ``reports/tables.json``."""


def checked(content: Any, form: TypeAdapter[Any], path: Path) -> Any:
    """``content`` as it is; raises ``DataError`` with the first key that does not have the form."""
    try:
        form.validate_python(content)
    except ValidationError as error:
        raise DataError(f"{path}: {first_problem(error)}; run the stage that writes it again") from error
    return content
