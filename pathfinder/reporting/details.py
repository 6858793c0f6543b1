"""What stands behind the tables of scores: accuracies, generators, thresholds, auxiliary figures, calls."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pathfinder.benchmarks import paper
from pathfinder.pages.page import Block, Figure, Fold, Table, Text
from pathfinder.pages.svg import line_chart
from pathfinder.reporting.results import NOT_APPLICABLE, Results, label
from pathfinder.reporting.tables import cells, mean_of, origin_of, ours

_PARTS = [(subset, key) for subset in paper.PROCESSBENCH.columns[:-1] for key in ("error_acc", "correct_acc")]
_CHOICES = {"fixed": "fixed", "chosen_on_gsm8k": "best on GSM8K", "oracle_upper_bound": "best on the items themselves"}
_AUXILIARY = {
    "correct_step_acc": "sound steps",
    "wrong_step_acc": "wrong steps",
    "total_step_acc": "all steps",
    "first_error_acc": "first wrong steps",
    "precision": "precision",
    "recall": "recall",
    "negative_precision": "precision, wrong",
    "negative_recall": "recall, wrong",
    "similarity": "similarity",
}
STOPPED = "{}: steps after the first wrong one have no score (processbench.early_stop), so"
_CALLS = {
    "finished": "finished",
    "without_step": "without a step",
    "without_answer": "without an answer",
    "rounds": "rounds",
    "candidates": "candidates",
    "candidates_rejected": "rejected",
    "policy_calls": "calls in sequence",
    "policy_calls_one_problem_at_a_time": "one problem at a time",
    "not_graded": "answers without a verdict",
}


def stopped_early(results: Results) -> list[str]:
    """The runs that were scored up to the first wrong step alone."""
    return [run.name for run in results.runs if "early_stop" in results.processbench.get(run.name, {})]


def processbench(results: Results) -> list[Block]:
    """Error and correct accuracy of each subset, F1 by generator, and what other thresholds would do."""
    origin, found = origin_of(results.processbench, "processbench"), results.processbench
    rows = [
        (label(members), *cells([mean_of(members, found, ("subsets", *part)) for part in _PARTS]))
        for members in ours(results, found)
    ]
    if not rows:
        return []
    headers = [f"{name}, {said}" for name in paper.PROCESSBENCH.headings[:-1] for said in ("error", "correct")]
    caption = (
        "Share of the wrong solutions whose first error was found, and of the right ones called right, in percent."
    )
    blocks: list[Block] = [
        Fold("Error and correct accuracy", [Table(caption, ("system", *headers), rows, origin=origin)])
    ]
    if first := next((one["generators"] for one in found.values() if one.get("generators")), None):
        blocks.append(_generators(results, first, origin))
    if any(one.get("thresholds") for one in found.values()):
        blocks.append(_thresholds(results, origin))
    if stopped := stopped_early(results):
        blocks.append(Text(f"{STOPPED.format(', '.join(stopped))} no other threshold is tried."))
    return blocks


def _generators(results: Results, first: Mapping[str, Any], origin: str) -> Fold:
    systems = ours(results, results.processbench)
    rows = [
        (name, f"{row['n']:,}", *cells([mean_of(m, results.processbench, ("generators", name, "f1")) for m in systems]))
        for name, row in first.items()
    ]
    headers = ("solutions of", "n", *map(label, systems))
    caption = "F1 in percent on each generator's solutions, rule “both”."
    return Fold("By generator", [Table(caption, headers, rows, origin=origin)])


def _thresholds(results: Results, origin: str) -> Fold:
    rows, series = [], {}
    for run in results.runs:
        if found := results.processbench.get(run.name, {}).get("thresholds"):
            series[run.name] = [(float(x), float(y)) for x, y in found["curve"]]
            for key, said in _CHOICES.items():
                if (one := found.get(key)) is not None:
                    at = NOT_APPLICABLE if one["threshold"] is None else f"{one['threshold']:.3f}"
                    values = [one["subsets"].get(column) for column in paper.PROCESSBENCH.columns[:-1]]
                    rows.append((f"{run.name}, {said}", at, *cells([*values, one["mean_f1"]])))
    first = {members[0].name for members in results.systems.values()}
    shown = {name: line for name, line in series.items() if name in first}
    caption = "F1 in percent by the threshold of the reward. What is best on the items themselves is an upper bound."
    headers = ("run and threshold", "threshold", *paper.PROCESSBENCH.headings)
    said = "; ".join(f"{name}: best {max(y for _, y in line):.1f}" for name, line in shown.items())
    drawing = line_chart(shown, "threshold of the reward", "mean F1")
    return Fold(
        "Other thresholds",
        [
            Figure(drawing, f"Mean F1 by threshold. {said}.", "Mean F1 by the threshold of the reward."),
            Table(caption, headers, rows, origin=origin),
        ],
    )


def prmbench(results: Results) -> list[Block]:
    """The published evaluator's auxiliary figures, over all classes."""
    found = results.prmbench
    rows = [
        (label(members), *_percent(mean_of(members, found, ("details", "total", key)) for key in _AUXILIARY))
        for members in ours(results, found)
        if any("details" in found[run.name] for run in members if run.name in found)
    ]
    if not rows:
        return []
    caption = (
        "Percent, rule “both”: accuracy on kinds of steps, precision and recall of calling a step sound and wrong, and "
        "how alike a modified solution and its correct counterpart are judged."
    )
    headers = ("system", *_AUXILIARY.values())
    return [Fold("Auxiliary figures", [Table(caption, headers, rows, origin=origin_of(found, "prmbench"))])]


def search(results: Results) -> list[Block]:
    """How the searches went, and what they asked for."""
    rows = []
    for name, found in {**results.search, "whole solutions": results.sample or {}}.items():
        if (details := found.get("details")) is not None:
            rows.append((name, *(f"{details[key]:,}" if key in details else NOT_APPLICABLE for key in _CALLS)))
    if not rows:
        return []
    caption = "Problems, rounds, candidate steps, and calls of the policy that wait for each other."
    headers = ("run", *_CALLS.values())
    return [Fold("How the searches went", [Table(caption, headers, rows, origin=origin_of(results.search, "search"))])]


def _percent(shares: Iterable[float | None]) -> list[str]:
    return cells([None if share is None else 100 * share for share in shares])
