"""The tables that pass between stages: their schemas, and the ids that link their rows.

A *trajectory* is one upstream line: a problem and the steps that were followed. A *record* is one rated step (or an
alternative to it) after the first ``step_index`` steps of a trajectory. Its id names its origin:
``<dataset>-<first 8 digits of the file's sha256>-<line>-<step>-<completion>``. Every later table refers to this id.
"""

from __future__ import annotations

import hashlib
import json
from itertools import accumulate, compress
from typing import Any

import polars as pl

from ground.io import text_digest
from ground.text import normalise
from pathfinder.core.labels import CRITERIA, MONTE_CARLO, STEP_LABELS
from pathfinder.core.prompts import without_captions

TRAJECTORIES: dict[str, Any] = {
    "trajectory_id": pl.String(),  # <dataset>-<sha8>-<line>
    "source": pl.String(),  # prm800k | rlhflow_mistral | math_shepherd
    "file": pl.String(),  # path below artifacts/raw
    "line": pl.Int64(),  # from 1; the position in the list for a JSON array
    "problem_id": pl.String(),  # see problem_id()
    "problem": pl.String(),
    "steps": pl.List(pl.String()),  # the steps that were followed (the trunk)
}
STEPS: dict[str, Any] = {
    "id": pl.String(),
    "trajectory_id": pl.String(),
    "source": pl.String(),
    "step_index": pl.Int64(),  # from 0: the number of trunk steps before this one
    "completion": pl.Int64(),  # from 0: the number of the alternative
    "step": pl.String(),
    "rating": pl.Int8(),  # -1, 0, 1; null if the source has none. Monte-Carlo "+" is 1 and "-" is -1
}
QUARANTINE: dict[str, Any] = {
    "source": pl.String(),  # folder below artifacts/raw
    "file": pl.String(),
    "line": pl.Int64(),
    "id": pl.String(),  # the record's id; null if the whole line is quarantined
    "reason": pl.String(),
    "detail": pl.String(),
}
LINES: dict[str, Any] = {
    "line_id": pl.String(),  # <dataset>-<sha8>-<line>; the trajectory_id of a line that has rated steps
    "content": pl.String(),  # see content_id()
    "source": pl.String(),
    "file": pl.String(),  # path below artifacts/raw
    "line": pl.Int64(),
    "rater": pl.String(),  # the person who rated the steps; null if the source names none
    "records": pl.Int64(),  # rated steps
    "reason": pl.String(),  # the reason why the whole line is quarantined; null if it could be read
}
LABELS: dict[str, Any] = {
    "id": pl.String(),
    **dict.fromkeys(CRITERIA, pl.Int8()),  # 0, 1 or null; from the rating if no judge is asked
    "origin": pl.String(),  # rating | judge | none
    "outcome": pl.String(),  # given | parsed | unparsed | too_long | refused | engine_error | not_sampled | unrated
    "attempts": pl.Int64(),  # judge answers used; 0 without a judge
}
ANSWERS: dict[str, Any] = {
    "id": pl.String(),
    "attempt": pl.Int64(),  # from 0, over all rounds
    "round": pl.Int64(),  # 0, then 1 more for each re-ask after a disagreement
    "prompt_digest": pl.String(),  # sha256 of the judge's user turn
    "answer": pl.String(),  # null if the engine gave none
    "outcome": pl.String(),  # parsed | unparsed | too_long | refused | engine_error
}
CLEAN: dict[str, Any] = {"id": pl.String(), **dict.fromkeys(STEP_LABELS, pl.Int8())}
DROPS: dict[str, Any] = {"id": pl.String(), "reason": pl.String()}
DECISIONS: dict[str, Any] = {
    "id": pl.String(),  # of a clean record
    "tree_id": pl.String(),
    "reason": pl.String(),  # excluded | overlap | mix | limit; null if the record is in the training set
    "detail": pl.String(),  # the exclusion, the benchmark item, or the parameter behind the reason
    "side": pl.String(),  # train | test; null if dropped
    "group": pl.String(),  # the smallest id among the problem and its near duplicates, which decides the side
}
USES: dict[str, Any] = {
    "id": pl.String(),
    "steps": pl.List(pl.Int32()),  # optimiser steps from 1, one per epoch and example; empty if the record was left out
    "tokens": pl.Int64(),  # of a record that is longer than the model's positions; null if it was used
}

BRANCH: dict[str, Any] = {
    "id": pl.String(),
    "step_index": pl.Int64(),
    "step": pl.String(),
    **dict.fromkeys(STEP_LABELS, pl.Int8()),
}
TREES: dict[str, Any] = {
    "tree_id": pl.String(),  # the trajectory's id
    "problem_id": pl.String(),
    "source": pl.String(),
    "problem": pl.String(),
    "steps": pl.List(pl.String()),
    "branches": pl.List(pl.Struct(BRANCH)),
}
SOFT_TREES: dict[str, Any] = {
    **TREES,
    # mc_value: share of correct roll-outs; null if none were made
    "branches": pl.List(pl.Struct({**BRANCH, "mc_value": pl.Float32()})),
}


def record_id(trajectory: str, step: int, completion: int) -> str:
    """The stable id of a rated step."""
    return f"{trajectory}-{step}-{completion}"


def trajectory_id(dataset: str, file_sha256: str, line: int) -> str:
    """The stable id of an upstream line."""
    return f"{dataset}-{file_sha256[:8]}-{line}"


def content_id(value: Any) -> str:
    """32 hexadecimal digits of the sha256 of an upstream line: of its JSON value, or of its bytes if they are not JSON.

    White space and key order do not count. Appending lines to the file changes no content id.
    """
    if not isinstance(value, bytes):
        try:
            value = json.dumps(value, sort_keys=True, separators=(",", ":"), default=str).encode()
        except RecursionError:
            value = repr(value).encode()
    return hashlib.sha256(value.strip()).hexdigest()[:32]


def as_trained(trajectories: pl.DataFrame, steps: pl.DataFrame, preset: str) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Trajectories (``TRAJECTORIES``) and their steps (``STEPS``) with the texts that training sees.

    The preset ``official`` cleans the Monte-Carlo texts after labelling, as published (``clean_mistral.py``): captions
    are removed (``prompts.without_captions``), and blank steps leave the prefixes of later steps, because the published
    script cleans a prefix as one text. ``repaired`` removes both before labelling.
    """
    if preset != "official":
        return trajectories, steps
    trunks, places = list[list[str]](), dict[str, list[int]]()
    for name, source, trunk in trajectories.select("trajectory_id", "source", "steps").iter_rows():
        filled = [bool(step.strip()) for step in trunk] if source in MONTE_CARLO else []
        trunks.append([without_captions(step) for step in compress(trunk, filled)] if filled else trunk)
        if not all(filled):
            places[name] = [0, *accumulate(filled)]
    rated = steps.select("trajectory_id", "source", "step_index", "step").iter_rows()
    cleaned = [
        (places[name][place] if name in places else place, without_captions(step) if source in MONTE_CARLO else step)
        for name, source, place, step in rated
    ]
    of_steps = pl.DataFrame(cleaned, schema={name: STEPS[name] for name in ("step_index", "step")}, orient="row")
    of_trunks = pl.Series("steps", trunks, TRAJECTORIES["steps"])
    return trajectories.with_columns(of_trunks), steps.with_columns(*of_steps)


def problem_id(problem: str) -> str:
    """The first 16 hexadecimal digits of the sha256 of the normalised problem, the same for every source."""
    return text_digest(normalise(problem))
