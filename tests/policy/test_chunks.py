"""Chunks on disk: an interrupted run resumes, and the folder's name covers everything that determines them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from pathfinder.benchmarks.readers import SearchProblem
from pathfinder.policy.chunks import in_chunks, journal
from tests.support.searches import problem


def test_an_interrupted_run_resumes_at_the_first_missing_chunk(tmp_path: Path) -> None:
    problems = [problem(str(i)) for i in range(7)]
    calls: list[str] = []

    def work(chunk: Sequence[SearchProblem], stop_at: str | None = None) -> list[dict[str, Any]]:
        calls.extend(p.id for p in chunk)
        if any(p.id == stop_at for p in chunk):
            raise KeyboardInterrupt
        return [{"id": p.id, "x": 0.1 + int(p.id)} for p in chunk]

    with pytest.raises(KeyboardInterrupt):
        in_chunks(problems, 3, tmp_path, lambda chunk: work(chunk, "4"), "t")
    assert calls == ["0", "1", "2", "3", "4", "5"]
    rows = in_chunks(problems, 3, tmp_path, work, "t")
    assert calls[6:] == ["3", "4", "5", "6"], "the first chunk is not repeated"
    assert rows == work(problems)


def test_the_folder_s_name_covers_everything_that_determines_the_chunks(tmp_path: Path) -> None:
    model = tmp_path / "model"
    model.mkdir()
    (model / "w").write_text("1")
    names = [journal("search", {"n": 8}, [problem()], [model])]
    names.append(journal("search", {"n": 4}, [problem()], [model]))
    names.append(journal("search", {"n": 8}, [problem(text="other")], [model]))
    (model / "w").write_text("2")
    names.append(journal("search", {"n": 8}, [problem()], [model]))
    assert len(set(names)) == 4
    assert all(name.parent == Path(".pathfinder/search") for name in names)
