"""Examples are tokenised once: the files give the same examples to every process, without a copy of them."""

from __future__ import annotations

import resource
import signal
import threading
from pathlib import Path

import numpy as np
import pytest

from ground.io import DataError
from pathfinder.training.examples import Example
from pathfinder.training.stored import Sets, StoredExamples, prepared, store
from tests.support.training import small_setup


def equal(mine: Example, theirs: Example) -> bool:
    arrays = [
        (getattr(one, key), getattr(other, key))
        for one, other, keys in (
            (mine.tree, theirs.tree, ("ids", "depth", "end", "reads")),
            (mine.targets, theirs.targets, ("marks", "positive", "shares", "weights")),
        )
        for key in keys
    ]
    same = all(one.dtype == other.dtype and np.array_equal(one, other) for one, other in arrays)
    counts = ("name", "ids", "samples", "sample_tokens")
    return same and all(getattr(mine, key) == getattr(theirs, key) for key in counts)


def test_stored_examples_are_those_that_were_given(tmp_path: Path) -> None:
    _, _, examples = small_setup()
    examples[1].targets.weights[:] = 0.25
    store(examples, tmp_path / "learn")
    read = StoredExamples(tmp_path / "learn")
    assert len(read) == len(examples)
    assert all(equal(mine, theirs) for mine, theirs in zip(read, examples, strict=True))
    assert [example.name for example in read[1::2]] == [example.name for example in examples[1::2]]
    assert equal(read[-1], examples[-1])
    assert not read[0].tree.ids.flags.writeable
    assert not read[0].tree.ids.flags.owndata
    with pytest.raises(IndexError):
        read[len(read)]
    store([], tmp_path / "none")
    assert list(StoredExamples(tmp_path / "none")) == []


def test_torn_files_are_refused(tmp_path: Path) -> None:
    _, _, examples = small_setup()
    store(examples, tmp_path / "learn")
    torn = tmp_path / "learn/ids.npy"
    torn.write_bytes(torn.read_bytes()[:-5])
    with pytest.raises(DataError, match=r"learn: not readable as examples .*remove this folder"):
        StoredExamples(tmp_path / "learn")


def test_only_the_first_process_tokenises(tmp_path: Path) -> None:
    """The others wait for its files and a resumed run reads them."""
    _, _, examples = small_setup()
    made: list[str] = []

    def make() -> tuple[Sets, dict[str, int]]:
        made.append("made")
        return {"learn": examples}, {"sources": 1}

    def never() -> tuple[Sets, dict[str, int]]:
        raise AssertionError("another process tokenised")

    found: list[int] = []
    other = threading.Thread(target=lambda: found.append(len(prepared(tmp_path / "x", False, never)[0]["learn"])))
    other.start()
    first, about = prepared(tmp_path / "x", True, make)
    other.join()
    assert found == [len(examples)]
    assert about == {"sources": 1}
    assert isinstance(first["learn"], StoredExamples)
    prepared(tmp_path / "x", True, make)
    assert made == ["made"]


def test_a_full_disk_is_noticed_although_numpy_does_not(tmp_path: Path) -> None:
    _, _, examples = small_setup()
    size, before = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200, size[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            store(examples, tmp_path / "examples")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, size)
        signal.signal(signal.SIGXFSZ, before)
