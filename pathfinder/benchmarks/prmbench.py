"""PRMBench's metric: is each step correct? The score is (F1 + F1 of the negative class) / 2 per class of errors.

Correct steps are the positive class. A class's score is the mean of both F1; for ``multi_solutions``, it is the F1 of
correct steps only. Categories are plain means. ``overall`` comes from the pooled counts of all classes, without the
correct samples (PRMBench paper; published ``tasks/prmtest_classified/task.py`` and ``results_prm_bench.py``). Numbers
are percent.

The classes about redundancy ask for superfluous steps; all other classes ask for errors. So the benchmark reads quality
there (one minus it is the redundancy) and soundness elsewhere. The published evaluator does so for systems that send
redundancy labels; for all others, it reads the correctness labels in every class.

Preset ``official`` keeps the published -1 for a share over nothing, which then enters F1 and averages (a predictor that
is always wrong scores -100). ``repaired`` computes 2 TP / (2 TP + FP + FN), 0 over nothing, and ``None`` for all other
means over nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ground.io import DataError
from pathfinder.benchmarks.bootstrap import interval
from pathfinder.benchmarks.grading import GradingPreset
from pathfinder.benchmarks.readers import CLASSES, CORRECT, PRMBenchItem
from pathfinder.core.params import Report
from pathfinder.core.readings import DEFINITION
from pathfinder.core.steps import Verdicts

CATEGORIES: dict[str, tuple[str, ...]] = {
    "simplicity": ("redundency", "circular"),
    "soundness": ("counterfactual", "step_contradiction", "domain_inconsistency", "confidence"),
    "sensitivity": ("missing_condition", "deception", "multi_solutions"),
}
REDUNDANCY = CATEGORIES["simplicity"]
"""Classes whose incorrect steps are superfluous; redundancy labels, if given, decide them."""
MEANS = ("correct_step_acc", "wrong_step_acc", "total_step_acc", "first_error_acc", "similarity")
READING: Final = DEFINITION
"""The reading that the benchmark asks for, declared before any figure was seen: by class, as in ``decisive``."""
_TOLERATED_GAP = 5  # the published evaluator refuses a file without predictions for this many items
Labels = Sequence[bool]
Counts = npt.NDArray[np.int64]
"""TP, FP, TN, FN (last axis)."""
VALIDITY, REDUNDANT = "step_level_validity_labels", "step_level_redundancy_labels"
"""The keys of a prediction row's ``scores`` that hold the verdicts."""
_NOTHING = np.zeros(4, dtype=np.int64)


@dataclass(slots=True)
class Tally:
    """Counts, and the values of the auxiliary means."""

    counts: Counts = field(default_factory=_NOTHING.copy)
    values: dict[str, list[float]] = field(default_factory=lambda: {name: [] for name in MEANS})

    def add(self, item: PRMBenchItem, labels: Labels) -> None:
        """Count one solution. Steps without a label and error steps past the end are ignored."""
        wrong = {step - 1 for step in item.error_steps}
        self.counts += step_counts(item, labels)
        for place, label in enumerate(labels):
            hit = float(label != (place in wrong))
            self.values["wrong_step_acc" if place in wrong else "correct_step_acc"].append(hit)
            self.values["total_step_acc"].append(hit)
            if wrong and place == min(wrong):
                self.values["first_error_acc"].append(hit)


def decisive(verdicts: Verdicts, classification: str) -> list[bool]:
    """One label per step, true for a correct one.

    In the classes about redundancy, negated redundancy verdicts, if given, replace the correctness verdicts, as in the
    published evaluator.
    """
    if classification in REDUNDANCY and verdicts.redundant is not None:
        return [not redundant for redundant in verdicts.redundant]
    return list(verdicts.correct)


def columns(verdicts: Verdicts | None, suffix: str = "") -> dict[str, Any]:
    """The verdicts in the form of a prediction row's ``scores``; ``suffix`` ends the keys."""
    if verdicts is None:
        return {}
    redundant = {} if verdicts.redundant is None else {f"{REDUNDANT}{suffix}": verdicts.redundant}
    return {f"{VALIDITY}{suffix}": verdicts.correct} | redundant


def labels_of(at: str, row: Mapping[str, Any], classification: str) -> list[bool] | None:
    """The ``decisive`` labels of a prediction row; ``None`` if its ``validity`` is false.

    Raises ``DataError``, which begins with ``at``, for a malformed row.
    """
    is_valid = row.get("validity", True)
    if is_valid not in (True, False, None):
        raise DataError(f"{at}: validity is {is_valid!r:.80}; expected true or false. Correct or remove the row")
    if not is_valid:
        return None
    scores = row.get("scores")
    given = scores if isinstance(scores, Mapping) else {}
    is_redundancy = classification in REDUNDANCY and REDUNDANT in given
    name = REDUNDANT if is_redundancy else VALIDITY
    labels = given.get(name)
    if not isinstance(labels, list) or any(label not in (0, 1) for label in labels):
        raise DataError(
            f"{at}: scores.{name} is {ascii(labels)[:80]}; expected a list of booleans, one per step. Correct the row"
        )
    found = [bool(label) for label in labels]
    return decisive(Verdicts((), found) if is_redundancy else Verdicts(found), classification)


def step_counts(item: PRMBenchItem, labels: Labels) -> Counts:
    """TP, FP, TN, FN of one solution, int64 (4,)."""
    wrong = {step - 1 for step in item.error_steps}
    pairs = Counter((bool(label), place in wrong) for place, label in enumerate(labels))
    return np.array([pairs[True, False], pairs[True, True], pairs[False, True], pairs[False, False]], dtype=np.int64)


def evaluate(
    items: Sequence[PRMBenchItem], predictions: Mapping[str, Labels | None], preset: GradingPreset = "repaired"
) -> dict[str, Any]:
    """``{"classes", "categories", "overall", "details"}``; a prediction of ``None`` is an answer declared invalid.

    Items and steps without an answer are left out and counted in ``details``. Labels past the last step count only in
    ``official``, as published. Raises ``DataError`` in ``official`` if five or more items have no prediction.
    """
    known = {item.idx: item for item in items}
    answered = {idx: labels for idx, labels in predictions.items() if idx in known}
    if preset == "official" and len(items) - len(answered) >= _TOLERATED_GAP:
        raise DataError(f"{len(items) - len(answered)} of {len(items)} items have no prediction; add their rows")
    used = {idx: _used(known[idx], labels, preset) for idx, labels in answered.items() if labels is not None}
    total = Tally()
    tallies = {name: Tally() for name in (*CLASSES, CORRECT) if any(item.classification == name for item in items)}
    means = {idx: sum(labels) / len(labels) for idx, labels in used.items() if len(labels)}
    # as published, a correct sample without labels has the mean -1, and its variants are compared with that
    without_labels = dict.fromkeys(used, -1.0) if preset == "official" else {}
    for item in items:
        if item.idx not in used:
            continue
        for tally in (tallies[item.classification],) + ((total,) if item.classification != CORRECT else ()):
            tally.add(item, used[item.idx])
            original = f"{CORRECT}_{item.idx.removeprefix(f'{item.classification}_')}"
            original_mean = means.get(original, without_labels.get(original))
            if item.classification != CORRECT and original_mean and item.idx in means:
                tally.values["similarity"].append(abs(means[item.idx] - original_mean))
    # the published rate leaves answered correct samples out of both counts
    valid = sum(item.idx in used for item in items if item.classification != CORRECT)
    asked = len(items) - sum(known[idx].classification == CORRECT for idx in answered)
    details = {
        "total": _details(total, preset),
        "classes": {name: _details(tally, preset) for name, tally in tallies.items()},
        "validity_rate": valid / asked if asked else 0.0,
        "defects": _defects(items, predictions, known),
    }
    return scores({name: tally.counts for name, tally in tallies.items()}, preset) | {"details": details}


def scores(counts: Mapping[str, Counts], preset: GradingPreset = "repaired") -> dict[str, Any]:
    """The table's row in percent from the counts per class. A category without one of its classes is left out."""
    classes = {name: float(score(name, counts[name], preset)) for name in CLASSES if name in counts}
    categories = {
        name: sum(classes[c] for c in members) / len(members)
        for name, members in CATEGORIES.items()
        if all(c in classes for c in members)
    }
    pooled = sum((counts[name] for name in classes), _NOTHING)
    return {"classes": classes, "categories": categories, "overall": float(score("", pooled, preset))}


def with_interval(
    items: Sequence[PRMBenchItem], predictions: Mapping[str, Labels | None], report: Report
) -> dict[str, Any]:
    """``evaluate`` (repaired) and the bootstrap ``interval`` of ``overall``, by problem (``by_problem``)."""
    mine = [item for item in items if item.classification != CORRECT]
    by_item = [step_counts(item, _used(item, predictions.get(item.idx) or (), "repaired")) for item in mine]
    counts, strata = by_problem(mine, by_item)
    bounds = interval(len(counts), lambda rows: score("", counts[rows].sum(-2)), report, strata)
    return evaluate(items, predictions) | {"interval": bounds}


def by_problem(items: Sequence[PRMBenchItem], counts: Iterable[Counts]) -> tuple[Counts, tuple[str, ...]]:
    """The sums of the items' ``counts`` over each original problem, int64 (problems, 4), and the problems' strata.

    Up to eight items rewrite one solution, so they are not independent. A problem's stratum is the class of its items,
    or "" if they have several.
    """
    summed: dict[str, Counts] = {}
    strata: dict[str, str] = {}
    for item, own in zip(items, counts, strict=True):
        name = item.origin or item.idx
        summed[name] = summed.get(name, _NOTHING) + own
        strata[name] = item.classification if strata.get(name, item.classification) == item.classification else ""
    return np.array([*summed.values()], dtype=np.int64), tuple(strata.values())


def trivial_predictors(items: Sequence[PRMBenchItem], report: Report) -> dict[str, Any]:
    """The figures of predictors without a model, each with its interval and without details.

    Each draws a step's label: correct with the share of correct steps (``chance``), with one half (``coin``), or always
    (``majority``).
    """
    rng = np.random.Generator(np.random.Philox(report.seed))
    steps = sum(len(item.steps) for item in items)
    wrong = sum(len({e for e in item.error_steps if 1 <= e <= len(item.steps)}) for item in items)
    out = {}
    for name, share in {"chance": 1 - wrong / max(steps, 1), "coin": 0.5, "majority": 1.0}.items():
        drawn = {item.idx: [bool(x) for x in rng.random(len(item.steps)) < share] for item in items}
        out[name] = {k: v for k, v in with_interval(items, drawn, report).items() if k != "details"}
    return out


def _used(item: PRMBenchItem, labels: Labels, preset: GradingPreset) -> list[bool]:
    given = [bool(label) for label in labels]
    return given if preset == "official" else given[: len(item.steps)]


def score(name: str, counts: Counts, preset: GradingPreset = "repaired") -> Any:
    """The score of class ``name`` ("": all classes) in percent, float64 (…), from its counts (…, 4).

    Preset ``official`` takes the counts of one system only: (4,).
    """
    tp, fp, tn, fn = np.moveaxis(counts, -1, 0)
    positive, negative = _f1(tp, fp, fn, preset), _f1(tn, fn, fp, preset)
    return 100 * (positive if name == "multi_solutions" else 0.5 * positive + 0.5 * negative)


def _f1(hits: Any, false: Any, missed: Any, preset: GradingPreset) -> Any:
    if preset == "repaired":
        return 2 * hits / np.maximum(2 * hits + false + missed, 1)
    precision, recall = _share(hits, hits + false, -1.0), _share(hits, hits + missed, -1.0)
    return 2 * precision * recall / (precision + recall) if precision + recall != 0 else -1.0


def _share(part: float, whole: int, over_nothing: Any) -> Any:
    return part / whole if whole else over_nothing


def _details(tally: Tally, preset: GradingPreset) -> dict[str, Any]:
    """Auxiliary figures as shares (not percent), named as in the published evaluator."""
    tp, fp, tn, fn = (int(x) for x in tally.counts)
    missing = -1.0 if preset == "official" else None
    means = {name: _share(sum(values), len(values), missing) for name, values in tally.values.items()}
    return means | {
        "precision": _share(tp, tp + fp, missing),
        "recall": _share(tp, tp + fn, missing),
        "f1": float(_f1(tp, fp, fn, preset)),
        "negative_precision": _share(tn, tn + fn, missing),
        "negative_recall": _share(tn, tn + fp, missing),
        "negative_f1": float(_f1(tn, fn, fp, preset)),
        "TP": tp,
        "FP": fp,
        "TN": tn,
        "FN": fn,
    }


def _defects(
    items: Sequence[PRMBenchItem], predictions: Mapping[str, Labels | None], known: Mapping[str, PRMBenchItem]
) -> dict[str, int]:
    gaps = [len(i.steps) - len(labels) for i in items if (labels := predictions.get(i.idx)) is not None]
    return {
        "without_prediction": sum(item.idx not in predictions for item in items),
        "invalid": sum(predictions.get(item.idx, ()) is None for item in items),
        "unknown_id": sum(idx not in known for idx in predictions),
        "steps_without_label": sum(max(0, gap) for gap in gaps),
        "labels_without_step": sum(max(0, -gap) for gap in gaps),
        "error_step_past_end": sum(any(e > len(item.steps) for e in item.error_steps) for item in items),
    }
