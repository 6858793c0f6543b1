"""PRMBench's metric: every step, sound or not; (F1 + F1 of the negative class) / 2 a class of errors.

Sound steps are the positive class. A class scores the mean of both F1, ``multi_solutions`` its F1 alone; categories
are plain means; ``overall`` comes from the pooled counts of all classes without the correct samples (PRMBench paper;
published ``tasks/prmtest_classified/task.py`` and ``results_prm_bench.py``). Numbers are percent.

Preset ``official`` keeps the published -1 for a share over nothing, which then enters F1 and averages (an always
wrong predictor scores -100). ``repaired`` has 2 TP / (2 TP + FP + FN), 0 where that is over nothing, and ``None`` for
other means over nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from pathfinder.benchmarks.bootstrap import interval
from pathfinder.benchmarks.grading import GradingPreset
from pathfinder.benchmarks.readers import CLASSES, CORRECT, PRMBenchItem
from pathfinder.core.io import DataError
from pathfinder.core.params import Report

CATEGORIES: dict[str, tuple[str, ...]] = {
    "simplicity": ("redundency", "circular"),
    "soundness": ("counterfactual", "step_contradiction", "domain_inconsistency", "confidence"),
    "sensitivity": ("missing_condition", "deception", "multi_solutions"),
}
REDUNDANCY = CATEGORIES["simplicity"]
"""Classes whose wrong steps are superfluous: where a runner gives redundancy labels, these are judged by them."""
MEANS = ("correct_step_acc", "wrong_step_acc", "total_step_acc", "first_error_acc", "similarity")
_TOLERATED_GAP = 5  # the published evaluator refuses a file that lacks this many items
Labels = Sequence[bool]
Counts = npt.NDArray[np.int64]
"""TP, FP, TN, FN (last axis)."""


@dataclass(slots=True)
class Tally:
    """Counts and the lists that the auxiliary means are over."""

    counts: Counts = field(default_factory=lambda: np.zeros(4, dtype=np.int64))
    lists: dict[str, list[float]] = field(default_factory=lambda: {name: [] for name in MEANS})

    def add(self, item: PRMBenchItem, labels: Labels) -> None:
        """Count one solution; steps beyond the labels, and error steps beyond the end, are not there."""
        wrong = {step - 1 for step in item.error_steps}
        self.counts += step_counts(item, labels)
        for place, label in enumerate(labels):
            hit = float(label != (place in wrong))
            self.lists["wrong_step_acc" if place in wrong else "correct_step_acc"].append(hit)
            self.lists["total_step_acc"].append(hit)
            if wrong and place == min(wrong):
                self.lists["first_error_acc"].append(hit)


def labels_of(at: str, row: Mapping[str, Any], classification: str) -> list[bool] | None:
    """What a prediction row says of each step, sound or not; ``None`` where a false ``validity`` declares no answer.

    In the classes about redundancy, redundancy labels stand in where they are given, turned around, as in the
    published evaluator. Raises ``DataError`` that begins with ``at`` for a row of another shape.
    """
    if not row.get("validity", True):
        return None
    scores = row.get("scores")
    given = scores if isinstance(scores, Mapping) else {}
    name, turned = "step_level_validity_labels", False
    if classification in REDUNDANCY and "step_level_redundancy_labels" in given:
        name, turned = "step_level_redundancy_labels", True
    labels = given.get(name)
    if not isinstance(labels, list) or not all(label in (0, 1) for label in labels):
        raise DataError(f"{at}: scores.{name} is {str(labels)[:80]}; expected a list of booleans, one a step")
    return [bool(label) != turned for label in labels]


def step_counts(item: PRMBenchItem, labels: Labels) -> Counts:
    """TP, FP, TN, FN of one solution; positive is "sound"."""
    wrong = {step - 1 for step in item.error_steps}
    pairs = Counter((bool(label), place in wrong) for place, label in enumerate(labels))
    return np.array([pairs[True, False], pairs[True, True], pairs[False, True], pairs[False, False]], dtype=np.int64)


def evaluate(
    items: Sequence[PRMBenchItem],
    predictions: Mapping[str, Labels | None],
    preset: GradingPreset = "repaired",
) -> dict[str, Any]:
    """``{"classes", "categories", "overall", "details"}``; ``None`` stands for an answer declared invalid.

    Items without an answer are left out and counted in ``details`` (official: five or more are refused, as published);
    so are steps without a label. Labels beyond the steps count in ``official`` alone, as published.
    """
    known = {item.idx: item for item in items}
    answered = {idx: labels for idx, labels in predictions.items() if idx in known}
    if preset == "official" and len(items) - len(answered) >= _TOLERATED_GAP:
        raise DataError(f"{len(items) - len(answered)} of {len(items)} items have no prediction; add their rows")
    shown = {idx: _shown(known[idx], labels, preset) for idx, labels in answered.items() if labels is not None}
    total = Tally()
    tallies = {name: Tally() for name in (*CLASSES, CORRECT) if any(item.classification == name for item in items)}
    means = {idx: sum(labels) / len(labels) for idx, labels in shown.items() if len(labels)}
    # a correct sample without labels has mean -1 as published, with which the others are compared
    blank = dict.fromkeys(shown, -1.0) if preset == "official" else {}
    for item in items:
        if item.idx not in shown:
            continue
        for tally in (tallies[item.classification],) + ((total,) if item.classification != CORRECT else ()):
            tally.add(item, shown[item.idx])
            correct = f"{CORRECT}_{item.idx.removeprefix(f'{item.classification}_')}"
            mate = means.get(correct, blank.get(correct))
            if item.classification != CORRECT and mate and item.idx in means:
                tally.lists["similarity"].append(abs(means[item.idx] - mate))
    # the published rate leaves out the correct samples that were answered, from both sides
    valid = sum(item.idx in shown for item in items if item.classification != CORRECT)
    asked = len(items) - sum(known[idx].classification == CORRECT for idx in answered)
    details = {
        "total": _details(total, preset),
        "classes": {name: _details(tally, preset) for name, tally in tallies.items()},
        "validity_rate": valid / asked if asked else 0.0,
        "defects": _defects(items, predictions, known),
    }
    return scores({name: tally.counts for name, tally in tallies.items()}, preset) | {"details": details}


def scores(counts: Mapping[str, Counts], preset: GradingPreset = "repaired") -> dict[str, Any]:
    """The table's row from the counts of each class, in percent. A category lacks where one of its classes does."""
    classes = {name: 100 * _score(name, counts[name], preset) for name in CLASSES if name in counts}
    categories = {
        name: sum(classes[c] for c in members) / len(members)
        for name, members in CATEGORIES.items()
        if all(c in classes for c in members)
    }
    pooled = sum((counts[name] for name in classes), np.zeros(4, dtype=np.int64))
    return {"classes": classes, "categories": categories, "overall": 100 * _score("", pooled, preset)}


def with_interval(
    items: Sequence[PRMBenchItem], predictions: Mapping[str, Labels | None], report: Report
) -> dict[str, Any]:
    """``evaluate`` (repaired) and the bootstrap ``interval`` of ``overall``, by solution within each class."""
    mine = [item for item in items if item.classification != CORRECT]
    empty = np.zeros(4, dtype=np.int64)
    rows = np.stack(
        [step_counts(i, _shown(i, given, "repaired")) if (given := predictions.get(i.idx)) else empty for i in mine]
    )
    statistic: Callable[[npt.NDArray[np.int64]], float] = lambda taken: 100 * _score("", rows[taken].sum(0), "repaired")  # noqa: E731
    strata = [item.classification for item in mine]
    bounds = interval(len(mine), statistic, report.bootstrap_samples, report.confidence, report.seed, strata=strata)
    return evaluate(items, predictions) | {"interval": list(bounds)}


def trivial_predictors(items: Sequence[PRMBenchItem], report: Report) -> dict[str, Any]:
    """What answers without a model score: ``chance`` calls each step sound or not by a coin with the share of sound
    steps, ``coin`` by an even one, ``majority`` calls every step sound. Each with its interval, without details."""
    rng = np.random.Generator(np.random.Philox(report.seed))
    steps = sum(len(item.steps) for item in items)
    wrong = sum(len({e for e in item.error_steps if 1 <= e <= len(item.steps)}) for item in items)
    shares = {"chance": 1 - wrong / max(steps, 1), "coin": 0.5, "majority": 1.0}
    out = {}
    for name, share in shares.items():
        drawn = {item.idx: [bool(x) for x in rng.random(len(item.steps)) < share] for item in items}
        out[name] = {k: v for k, v in with_interval(items, drawn, report).items() if k != "details"}
    return out


def _shown(item: PRMBenchItem, labels: Labels, preset: GradingPreset) -> list[bool]:
    given = [bool(label) for label in labels]
    return given if preset == "official" else given[: len(item.steps)]


def _score(name: str, counts: Counts, preset: GradingPreset) -> float:
    tp, fp, tn, fn = (int(x) for x in counts)
    positive, negative = _f1(tp, fp, fn, preset), _f1(tn, fn, fp, preset)
    return positive if name == "multi_solutions" else 0.5 * positive + 0.5 * negative


def _f1(hits: int, false: int, missed: int, preset: GradingPreset) -> float:
    if preset == "repaired":
        total = 2 * hits + false + missed
        return 2 * hits / total if total else 0.0
    precision, recall = _share(hits, hits + false), _share(hits, hits + missed)
    return 2 * precision * recall / (precision + recall) if precision + recall != 0 else -1.0


def _share(part: int, whole: int) -> float:
    return part / whole if whole else -1.0


def _details(tally: Tally, preset: GradingPreset) -> dict[str, Any]:
    """Auxiliary figures as shares (not percent), named as in the published evaluator."""
    tp, fp, tn, fn = (int(x) for x in tally.counts)
    missing = -1.0 if preset == "official" else None
    means = {name: sum(values) / len(values) if values else missing for name, values in tally.lists.items()}
    return means | {
        "precision": tp / (tp + fp) if tp + fp else missing,
        "recall": tp / (tp + fn) if tp + fn else missing,
        "f1": _f1(tp, fp, fn, preset),
        "negative_precision": tn / (tn + fn) if tn + fn else missing,
        "negative_recall": tn / (tn + fp) if tn + fp else missing,
        "negative_f1": _f1(tn, fn, fp, preset),
        "TP": tp,
        "FP": fp,
        "TN": tn,
        "FN": fn,
    }


def _defects(
    items: Sequence[PRMBenchItem], predictions: Mapping[str, Labels | None], known: Mapping[str, PRMBenchItem]
) -> dict[str, int]:
    given = [(item, labels) for item in items if (labels := predictions.get(item.idx)) is not None]
    return {
        "without_prediction": sum(item.idx not in predictions for item in items),
        "invalid": sum(predictions.get(item.idx, ()) is None for item in items),
        "unknown_id": sum(idx not in known for idx in predictions),
        "steps_without_label": sum(max(0, len(item.steps) - len(labels)) for item, labels in given),
        "labels_without_step": sum(max(0, len(labels) - len(item.steps)) for item, labels in given),
        "error_step_past_end": sum(any(e > len(item.steps) for e in item.error_steps) for item in items),
    }
