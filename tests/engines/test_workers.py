"""Chunks over processes: the same values as in one, resumed after a kill, an own card each, errors with their class."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from ground.io import DataError, TransientError, read_json
from pathfinder.engines.workers import Chunk, OnDone, Work, Workers, chunk_folder, cut
from pathfinder.models import cards


@dataclass(frozen=True)
class Squares:
    """Squares numbers; the number ``bad`` is refused, and the process dies at the number ``deadly``."""

    notes: Path
    bad: int = -1
    deadly: int = -1

    @contextmanager
    def __call__(self) -> Iterator[Work]:
        def work(chunk: Chunk, on_done: OnDone) -> list[list[object]]:
            if self.bad in chunk.content:
                raise DataError(f"{self.bad} is bad")
            if self.deadly in chunk.content:
                time.sleep(0.5)  # the other worker is in the middle of its chunk or has finished it
                os.kill(os.getpid(), signal.SIGKILL)
            on_done(1)
            (self.notes / f"{chunk.name} {os.getpid()} {os.environ.get('CUDA_VISIBLE_DEVICES', '')}").touch()
            return [[number**2, 0.1 * number] for number in chunk.content]

        yield work

    def computed(self) -> list[str]:
        return sorted(path.name.split()[0] for path in self.notes.iterdir())


@pytest.fixture
def job(tmp_path: Path) -> Squares:
    notes = tmp_path / "notes"
    notes.mkdir()
    return Squares(notes)


CHUNKS = cut(range(7), 2)


def run(job: Squares, folder: Path, processes: int) -> list[object]:
    """The values of all chunks, as a stage computes them."""
    with Workers(job, processes) as workers:
        return workers.run(CHUNKS, folder, "t")


def test_any_number_of_processes_gives_the_same_values(
    job: Squares, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    found = [run(job, tmp_path / str(count), count) for count in (1, 3)]
    assert found[0] == found[1] == [[[n**2, 0.1 * n] for n in chunk.content] for chunk in CHUNKS]
    files = [{p.name: p.read_bytes() for p in (tmp_path / str(count)).iterdir()} for count in (1, 3)]
    assert files[0] == files[1]
    assert "Fatal" not in capfd.readouterr().err, "workers end in peace"
    assert sorted(files[0]) == ["000000.json", "000002.json", "000004.json", "000006.json"]


def test_a_run_with_a_killed_worker_resumes_with_another_number_of_processes(job: Squares, tmp_path: Path) -> None:
    with pytest.raises(TransientError, match=r"ended with SIGKILL .* finished chunks are kept"):
        run(Squares(job.notes, deadly=3), tmp_path / "chunks", 2)
    kept = {path.stem for path in (tmp_path / "chunks").iterdir()}
    assert "000006" in kept
    assert "000002" not in kept
    for note in job.notes.iterdir():
        note.unlink()
    resumed = run(job, tmp_path / "chunks", 1)
    assert set(job.computed()) == {chunk.name for chunk in CHUNKS} - kept
    assert resumed == run(job, tmp_path / "one", 1)


def test_an_interrupted_run_in_this_process_resumes_at_the_first_missing_chunk(job: Squares, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="4 is bad"):
        run(Squares(job.notes, bad=4), tmp_path / "chunks", 1)
    assert job.computed() == ["000000", "000002"]
    for note in job.notes.iterdir():
        note.unlink()
    run(job, tmp_path / "chunks", 1)
    assert job.computed() == ["000004", "000006"]


def test_an_error_of_a_worker_keeps_its_class_and_message(job: Squares, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"^3 is bad$"):
        run(Squares(job.notes, bad=3), tmp_path / "chunks", 2)


def test_every_worker_has_a_card_of_its_own(job: Squares, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fails if two workers take GPU 0; ``0`` means one worker per card that the process has left."""
    monkeypatch.setenv(cards.SIMULATED, "4")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,1,2")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with cards.lease(3), cards.lease(1) as server, Workers(job, 0) as workers:
        assert [card.name for card in server] == ["3"]
        workers.run(cut(range(40), 1), tmp_path / "chunks", "t")
    found = {tuple(path.name.split()[1:]) for path in job.notes.iterdir()}
    assert {card for _, card in found} == {"1", "2"}
    assert len(found) == 2


PARENT = """
import sys
from pathlib import Path
from pathfinder.engines.workers import Workers, cut
from tests.engines.test_workers import Endless
with Workers(Endless(Path(sys.argv[1])), 2) as workers:
    workers.run(cut(range(4), 1), Path(sys.argv[1]) / "chunks", "t")
"""


@dataclass(frozen=True)
class Endless:
    folder: Path

    @contextmanager
    def __call__(self) -> Iterator[Work]:
        def work(chunk: Chunk, _: OnDone) -> None:
            (self.folder / f"pid-{os.getpid()}").touch()
            time.sleep(60)

        yield work


@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGTERM])
def test_no_worker_outlives_its_parent(tmp_path: Path, ending: signal.Signals) -> None:
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    with subprocess.Popen([sys.executable, "-c", PARENT, str(tmp_path)], env=environment) as parent:
        deadline = time.monotonic() + 60
        while len(pids := [int(p.name[4:]) for p in tmp_path.glob("pid-*")]) < 2 and time.monotonic() < deadline:
            time.sleep(0.05)
        parent.send_signal(ending)
    while any(Path(f"/proc/{pid}").exists() for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert len(pids) == 2
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)


def test_the_folder_s_name_covers_everything_that_determines_the_chunks(tmp_path: Path) -> None:
    model = tmp_path / "model"
    model.mkdir()
    (model / "w").write_text("1")
    names = [chunk_folder("search", {"n": 8}, [model])]
    names.append(chunk_folder("search", {"n": 4}, [model]))
    (model / "w").write_text("2")
    names.append(chunk_folder("search", {"n": 8}, [model]))
    assert len(set(names)) == 3
    assert all(name.parent == Path(".pathfinder/search") for name in names)


def test_chunk_files_are_json(job: Squares, tmp_path: Path) -> None:
    run(job, tmp_path / "chunks", 1)
    assert read_json(tmp_path / "chunks" / "000006.json") == [[36, 0.6000000000000001]]
