"""One frame for every system on ProcessBench and PRMBench: our PRMs, published PRMs and LLM judges.

    evaluation = read_evaluation("processbench", folder, limit)
    answers = {"soundness": evaluation.answers(verdicts)}  # a list of answers per reading, the main one first
    evaluation.write("full", evaluation.rows(answers, columns), evaluation.metrics(answers, report))

An answer to a ProcessBench item is the index of the first incorrect step, -1 for none. An answer to a PRMBench item is
the verdicts on its steps. ``None`` means no answer: ProcessBench counts a miss, PRMBench an invalid row.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from math import nan
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar, Generic, Literal, TypeVar, get_args

from ground.io import write_jsonl
from pathfinder.benchmarks import prmbench, processbench
from pathfinder.benchmarks.metrics import Evaluated, PRMBench, ProcessBench
from pathfinder.benchmarks.readers import Loaded, PRMBenchItem, ProcessBenchItem, read_prmbench, read_processbench
from pathfinder.core.metrics import write_metrics
from pathfinder.core.params import Report
from pathfinder.core.readings import DEFINITION
from pathfinder.core.steps import Solution, Verdicts

BenchmarkName = Literal["processbench", "prmbench"]
BENCHMARKS: tuple[BenchmarkName, ...] = get_args(BenchmarkName)
PREDICTIONS, METRICS = Path("artifacts/predictions"), Path("metrics")

Item = TypeVar("Item", ProcessBenchItem, PRMBenchItem)
Answer = TypeVar("Answer")


class Evaluation(ABC, Generic[Item, Answer]):
    """The items of one benchmark and everything that is computed from a system's answers to them.

    ``answers`` arguments have one answer per item, in the order of ``items``.
    """

    benchmark: ClassVar[BenchmarkName]
    headline_key: ClassVar[str]
    """The metric that sums up a result."""
    _headline_title: ClassVar[str]
    _form: ClassVar[type[Evaluated]]
    _metric: ClassVar[ModuleType]
    """The benchmark's module: ``evaluate``, ``with_interval`` and ``trivial_predictors``."""

    def __init__(self, loaded: Loaded[Item]) -> None:
        self.loaded: Loaded[Item] = loaded

    @property
    def items(self) -> list[Item]:
        """The items to answer, in the order of the files; each has ``id``, ``problem`` and ``steps``."""
        return self.loaded.items

    @property
    def solutions(self) -> list[Solution]:
        """The items as solutions whose steps a PRM scores."""
        return [Solution(item.id, item.problem, item.steps) for item in self.items]

    def answers(self, verdicts: Iterable[Verdicts]) -> list[Answer | None]:
        """Turn each item's verdicts on its steps into an answer, ``None`` if there are none."""
        return [self._answer(given) if given.correct else None for given in verdicts]

    def rows(
        self, rules: Mapping[str, Sequence[Answer | None]], columns: Sequence[Mapping[str, Any]]
    ) -> list[dict[str, Any]]:
        """Build one prediction row per item, in the form that ``pathfinder grade`` reads.

        ``rules`` maps decision rules to their answers. The first rule fills the standard key; the rest fill the same
        key with ``_<rule>`` appended. ``columns`` are further columns of each row.
        """
        main = next(iter(rules))
        suffixed = {"" if rule == main else f"_{rule}": answers for rule, answers in rules.items()}
        return [
            self._row(item, {suffix: answers[number] for suffix, answers in suffixed.items()}, more)
            for number, (item, more) in enumerate(zip(self.items, columns, strict=True))
        ]

    def metrics(
        self,
        rules: Mapping[str, Sequence[Answer | None]],
        report: Report,
        kind: Literal["readings", "rules"] = "readings",
        **others: Any,
    ) -> Evaluated:
        """Compute the metrics of all readings or decision rules and of the trivial predictors, in percent.

        The first rule's figures are at the top level, every rule's under ``kind``. ``others`` are further keys.
        """
        figures = {rule: self._figures(answers, report) for rule, answers in rules.items()}
        main, answers = next(iter(rules.items()))
        trivial = self._metric.trivial_predictors(self.items, report)
        whole = self._summary(figures[main], answers) | {kind: figures, "baselines": trivial}
        return self._form.model_validate(whole | others)

    def summary(self, answers: Sequence[Answer | None], report: Report, **others: Any) -> Evaluated:
        """Compute the metrics of a judge, which looks for errors: figures, interval, accounting and defects."""
        whole = self._summary(self._figures(answers, report), answers) | {"reading": "soundness"}
        whole |= self.both_rules(answers, report)
        return self._form.model_validate(whole | others)

    def both_rules(self, answers: Sequence[Answer | None], report: Report) -> dict[str, Any]:
        """``{"readings": …}`` with the figures under both rules of PRMBench, for a system that judges redundancy."""
        del answers, report
        return {}

    def official(self, answers: Sequence[Answer | None]) -> Evaluated:
        """Compute the figures with the published evaluator's arithmetic, without details."""
        figures: dict[str, Any] = self._metric.evaluate(self.items, self.by_key(answers), "official")
        return self._form.model_validate({name: value for name, value in figures.items() if name != "details"})

    def headline(self, system: str, metrics: Evaluated) -> str:
        """Format the main metric with its reading and interval, and the values of other readings and of the paper."""
        low, high = metrics.interval or (nan, nan)
        others = {rule: figures.headline for rule, figures in list((metrics.rules or metrics.readings).items())[1:]}
        others |= {"paper": metrics.published.get(self.headline_key)}
        note = ", ".join(f"{name} {value:.1f}" for name, value in others.items() if value is not None)
        by = f" by {metrics.reading}" if metrics.reading else ""
        line = f"{self.benchmark} {system}: {self._headline_title}{by} {metrics.headline:.1f} [{low:.1f}, {high:.1f}]"
        line = f"{line} ({note})" if note else line
        if isinstance(metrics, ProcessBench) and metrics.defects.get("missing_subset"):
            line += f"; only over {', '.join(metrics.subsets)}, because the folder lacks the other subsets"
        return line

    def write(self, system: str, rows: Sequence[Mapping[str, Any]], metrics: Evaluated) -> None:
        """Write the predictions and the metrics of a system."""
        write_jsonl(PREDICTIONS / self.benchmark / f"{system}.jsonl", rows)
        write_metrics(METRICS / self.benchmark / f"{system}.json", metrics)

    def by_key(self, answers: Sequence[Answer | None]) -> dict[Any, Any]:
        """The answers by the items' keys, in the metric's form."""
        return {item.key: answer for item, answer in zip(self.items, answers, strict=True)}

    def _figures(self, answers: Sequence[Answer | None], report: Report) -> dict[str, Any]:
        figures: dict[str, Any] = self._metric.with_interval(self.items, self.by_key(answers), report)
        return figures

    def _summary(self, figures: dict[str, Any], answers: Sequence[Answer | None]) -> dict[str, Any]:
        del answers
        return self.loaded.accounting() | figures | {"defects": self.loaded.defects}

    @abstractmethod
    def _answer(self, verdicts: Verdicts) -> Answer: ...

    @abstractmethod
    def _row(self, item: Item, answers: Mapping[str, Answer | None], columns: Mapping[str, Any]) -> dict[str, Any]:
        """``answers`` maps key suffixes to answers; the main answers have the suffix ""."""


class ProcessBenchEvaluation(Evaluation[ProcessBenchItem, int]):
    """ProcessBench: the first incorrect step of every solution."""

    benchmark = "processbench"
    headline_key = "mean_f1"
    _headline_title = "mean F1"
    _form = ProcessBench
    _metric: ClassVar[ModuleType] = processbench

    def _answer(self, verdicts: Verdicts) -> int:
        return processbench.first_error(verdicts.correct)

    def _row(
        self, item: ProcessBenchItem, answers: Mapping[str, int | None], columns: Mapping[str, Any]
    ) -> dict[str, Any]:
        predictions = {f"prediction{suffix}": answer for suffix, answer in answers.items()}
        return {"subset": item.subset, "id": item.id} | predictions | {"label": item.label, **columns}

    def _summary(self, figures: dict[str, Any], answers: Sequence[int | None]) -> dict[str, Any]:
        generators = processbench.by_generator(self.items, self.by_key(answers))
        return super()._summary(figures, answers) | {"generators": generators}


class PRMBenchEvaluation(Evaluation[PRMBenchItem, Verdicts]):
    """PRMBench: verdicts on every step of every solution."""

    benchmark = "prmbench"
    headline_key = "overall"
    _headline_title = "PRMScore"
    _form = PRMBench
    _metric: ClassVar[ModuleType] = prmbench

    def by_key(self, answers: Sequence[Verdicts | None]) -> dict[Any, Any]:
        """The decisive labels by the items' keys."""
        return {
            item.key: None if answer is None else prmbench.decisive(answer, item.classification)
            for item, answer in zip(self.items, answers, strict=True)
        }

    def both_rules(self, answers: Sequence[Verdicts | None], report: Report) -> dict[str, Any]:
        """The figures by definition, and by only the correctness labels, as for a system without redundancy labels."""
        if not any(answer is not None and answer.redundant is not None for answer in answers):
            return {}
        correct = [None if answer is None else Verdicts(answer.correct) for answer in answers]
        return {
            "reading": DEFINITION,
            "readings": {DEFINITION: self._figures(answers, report), "soundness": self._figures(correct, report)},
        }

    def _answer(self, verdicts: Verdicts) -> Verdicts:
        return verdicts

    def _row(
        self, item: PRMBenchItem, answers: Mapping[str, Verdicts | None], columns: Mapping[str, Any]
    ) -> dict[str, Any]:
        scores = [prmbench.columns(verdicts, suffix) for suffix, verdicts in answers.items()]
        given = dict(pair for one in scores for pair in one.items())
        row = {"idx": item.idx, "classification": item.classification, "scores": given, **columns}
        return row | ({"validity": False} if answers[""] is None else {})


def read_evaluation(
    benchmark: BenchmarkName, folder: Path, limit: int = 0
) -> ProcessBenchEvaluation | PRMBenchEvaluation:
    """Read a benchmark's folder, ``limit`` items per subset or class (0: all); raises ``DataError`` for bad rows."""
    if benchmark == "processbench":
        return ProcessBenchEvaluation(read_processbench(folder, limit))
    return PRMBenchEvaluation(read_prmbench(folder, limit))
