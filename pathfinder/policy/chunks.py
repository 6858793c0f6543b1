"""Work on many problems in chunks that are kept on disk, so that an interrupted run resumes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from pathfinder.benchmarks.readers import SearchProblem
from pathfinder.core.io import digest_of, read_json, sha256_file, write_json
from pathfinder.core.progress import Progress
from pathfinder.provenance.identity import code_digest

STATE = Path(".pathfinder")
T = TypeVar("T")


def journal(
    stage: str, identity: dict[str, Any], problems: Sequence[SearchProblem], models: Sequence[Path], work: str = ""
) -> Path:
    """The folder where a run of ``stage`` keeps the chunks of its ``work`` (default: the stage's name).

    The folder's name is a digest of everything that determines the chunks, including the stage's code.
    """
    content = {
        "identity": identity,
        "problems": [[p.set, p.id, p.problem, p.key] for p in problems],
        "models": [
            {str(file.relative_to(model)): sha256_file(file) for file in sorted(model.rglob("*")) if file.is_file()}
            for model in models
        ],
        "code": code_digest(stage),
    }
    return STATE / (work or stage) / digest_of(content)[:32]


def in_chunks(
    problems: Sequence[T], size: int, folder: Path, work: Callable[[Sequence[T]], list[dict[str, Any]]], label: str
) -> list[dict[str, Any]]:
    """Rows of ``work`` for every problem, ``size`` problems at a time; each finished chunk is kept in ``folder``.

    The chunks are fixed: an interrupted run resumes at the first missing chunk and produces identical bytes.
    """
    rows: list[dict[str, Any]] = []
    with Progress(label, len(problems), "problems") as progress:
        for start in range(0, len(problems), size):
            chunk, path = problems[start : start + size], folder / f"{start:06d}.json"
            if path.exists():
                progress.resume(len(chunk))
            else:
                write_json(path, work(chunk))
                progress.advance(len(chunk))
            rows += read_json(path)
    return rows
