"""The work of the verb ``label``: labels of steps from completions of a policy."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from ground import io
from ground.progress import duration
from ground.show import counted
from ground.text import UsageError
from pathfinder.bench.search import SearchOptions, policy_of, settings_of
from pathfinder.core.given import GivenSolution
from pathfinder.engines.workers import Workers, chunk_folder
from pathfinder.policy.monte_carlo import draw, roll_out, rows_of, tasks_of
from pathfinder.policy.policy import deciding, policy_cards
from pathfinder.policy.samples import open_sampling


def labelled(
    solutions: Sequence[GivenSolution], out: Path, policy: str | None, url: str | None, chosen: Mapping[str, Any]
) -> dict[str, Any]:
    """Write the rows of ``solutions`` to ``out`` and return what the verb prints; a later call resumes.

    Raises ``DataError`` if ``out`` exists or is ``-``, for a solution without an answer, and for a policy that does
    not fit.
    """
    if str(out) == "-":
        raise UsageError("--out -: label resumes from a file, not from standard output; name a new file")
    if out.exists():
        raise io.DataError(f"{out}: exists; name a new file with --out, or remove it")
    io.make_folder(out.parent)  # the completions may take hours, and the call ends with writing there
    if not os.access(out.parent, os.W_OK):
        raise io.DataError(f"{out.parent}: cannot be written; name a file in another folder with --out")
    tasks, start, options = tasks_of(solutions), time.monotonic(), SearchOptions(policy, url)
    found, settings = policy_of(options), settings_of(options).model_copy(update=chosen)
    identity = {"policy": found.identity, "tasks": io.digest_of(ascii(tasks))}
    folder = chunk_folder("label-steps", deciding(settings) | identity, [])
    job = partial(open_sampling, settings, (url,) if url else (), found.folder, roll_out)
    with Workers(job, 0, policy_cards(settings)) as workers:
        values, tokens, not_graded = draw(tasks, workers, folder)
    rows = list(rows_of(solutions, values))
    io.write_jsonl(out, rows)
    io.remove(folder)
    with suppress(OSError):  # it may hold the folders of unfinished calls
        os.removedirs(folder.parent)
    labels = [label for row in rows for label in row["labels"]]
    return {
        "file": str(out),
        "rows": len(rows),
        "steps": len(labels),
        "correct_steps": sum(labels),
        "left_out_steps": sum(len(one.steps) for one in solutions) - len(labels),
        "completions": settings.n * sum(len(task.open) for task in tasks),
        "computed_tokens": tokens["computed"],
        "separate_tokens": tokens["separate"],
        "not_graded": not_graded,
        "seconds": time.monotonic() - start,
    }


def told(result: Mapping[str, Any]) -> Iterator[str]:
    """The result for a person."""
    steps = counted(result["steps"], "step")
    yield f"{result['file']}: {counted(result['rows'], 'row')}; {result['correct_steps']:,} of {steps} correct"
    if result["left_out_steps"]:
        yield f"left out, without room for a completion: {counted(result['left_out_steps'], 'step')}"
    yield f"{counted(result['completions'], 'completion')} in {duration(result['seconds'])}"
    if result["computed_tokens"]:
        yield f"tokens computed: {result['computed_tokens']:,}; without sharing: {result['separate_tokens']:,}"
    if result["not_graded"]:
        yield f"answers that could not be graded (not right): {result['not_graded']:,}"
