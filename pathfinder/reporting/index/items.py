"""The decisions on benchmark items, from the prediction files: enough to go from a figure to the items behind it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl

from ground.io import DataError, read_jsonl
from pathfinder.benchmarks.prmbench import labels_of
from pathfinder.benchmarks.readers import PRMBenchItem, read_prmbench
from pathfinder.policy.choosing import RULES
from pathfinder.reporting.index.schema import ITEMS

Row = Mapping[str, Any]
Decision = tuple[str, str, Any, Any, bool | None, float | None]
"""The columns of ``schema.ITEMS`` from ``part`` to ``reward``, label and prediction not yet as JSON."""
Reader = Callable[[Row], Decision]


def index_items(predictions: Path, systems: Sequence[str], prmbench: Path) -> pl.DataFrame:
    """The decisions of ``systems`` in the folder ``predictions`` (``schema.ITEMS``); missing files are skipped."""
    items = {item.idx: item for item in read_prmbench(prmbench).items}
    readers: list[tuple[str, str, Reader]] = [
        ("processbench", "processbench", _processbench),
        ("prmbench", "prmbench", partial(_prmbench, items)),
        ("search", "search", _search),
        *((f"best_of_n_{rule}", "best_of_n", partial(_best_of_n, rule)) for rule in RULES),
    ]
    named = [*systems, "random"]
    sources = [
        (name, own, predictions / f"{folder}/{own}.jsonl", read) for name, folder, read in readers for own in named
    ]
    sources.append(("sample", "policy", predictions / "sample.jsonl", _sample))
    parts = [_table(name, system, path, read) for name, system, path, read in sources if path.exists()]
    return pl.concat([pl.DataFrame(schema=ITEMS), *parts])


def _table(benchmark: str, system: str, path: Path, read: Reader) -> pl.DataFrame:
    rows = []
    for number, row in read_jsonl(path):
        part, item, label, prediction, correct, reward = read(row)
        texts = (json.dumps(label, ensure_ascii=False), json.dumps(prediction, ensure_ascii=False))
        rows.append((benchmark, system, part, item, *texts, correct, reward, path.as_posix(), number))
    return pl.DataFrame(rows, schema=ITEMS, orient="row")


def _lowest(rewards: Iterator[float | None]) -> float | None:
    return min((reward for reward in rewards if reward is not None), default=None)


def _of_steps(row: Row) -> float | None:
    return _lowest(step.get("reward") for step in row.get("steps") or () if isinstance(step, dict))


def _processbench(row: Row) -> Decision:
    label, prediction = row["label"], row["prediction"]
    return row["subset"], row["id"], label, prediction, label == prediction, _of_steps(row)


def _prmbench(items: Mapping[str, PRMBenchItem], row: Row) -> Decision:
    """Label and prediction are the numbers of the incorrect steps, from 1; numbers past the last step are left out.

    Raises ``DataError`` for a row that the benchmark does not have.
    """
    if (item := items.get(row["idx"])) is None:
        raise DataError(f"{row['idx']}: not in PRMBench; re-run the stage that wrote the prediction")
    found = labels_of(item.idx, row, item.classification)
    count = len(item.steps)
    prediction = None if found is None else [at for at, is_valid in enumerate(found[:count], start=1) if not is_valid]
    label = sorted({*item.error_steps} & {*range(1, count + 1)})
    return item.classification, item.idx, label, prediction, label == prediction, _of_steps(row)


def _search(row: Row) -> Decision:
    """The reward is the lowest of the steps that were chosen; a round without a usable candidate has none."""
    turns = [(turn["candidates_info"], turn["chosen_step_index"]) for turn in row.get("iteration_history") or ()]
    chosen = (candidates[place] for candidates, place in turns if place is not None)
    reward = _lowest(candidate.get("reward") for candidate in chosen)
    return row["set"], row["id"], row["gt_answer"], row["pred_answer"], row["correct"], reward


def _best_of_n(rule: str, row: Row) -> Decision:
    """The prediction is the number of the chosen solution, from 0."""
    chosen = row["chosen"][rule]
    reward = _lowest(iter(row["rewards"][chosen])) if chosen is not None else None
    return row["set"], row["id"], None, chosen, row["right"][rule], reward


def _sample(row: Row) -> Decision:
    """The prediction is the majority's answer."""
    return row["set"], row["id"], row["gt_answer"], row["majority"], row["majority_right"], None
