"""Work in chunks, over one or several processes, with every finished chunk on disk.

A job opens its resources, such as a model, and computes chunk after chunk. Only the chunks decide which texts share a
batch, so any number of processes gives the same bytes, and an interrupted run can resume with a different number. A
single process needs no worker. Each of several workers has GPUs of its own and ends with its parent.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, Pipe, wait
from pathlib import Path
from typing import Any, Self

from ground.hashing import digest_path
from ground.io import PathfinderError, TransientError, digest_of, read_json, write_json
from ground.progress import Progress
from ground.recording import report_as
from pathfinder.models import cards
from pathfinder.models.folders import digests_of, uncollected

STATE = Path(".pathfinder")
_PROJECT = Path(__file__).resolve().parents[2]
_GRACE_S = 20.0
OnDone = Callable[[int], None]
"""Receives the number of newly finished items of a chunk."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """A part of the work: the ``name`` of its file, the job's input for it, and its number of items."""

    name: str
    content: Any
    items: int


Work = Callable[[Chunk, OnDone], Any]
"""Computes a chunk's value, which JSON can represent."""


Job = Callable[[], AbstractContextManager[Work]]
"""Loads the resources of the work. Other processes unpickle it, so it belongs to a module, not to a script."""


def cut(items: Sequence[Any], size: int) -> list[Chunk]:
    """Chunks of ``size`` items, named by the number of the first item."""
    starts = range(0, len(items), size)
    return [Chunk(f"{start:06d}", part := items[start : start + size], len(part)) for start in starts]


def chunk_folder(name: str, identity: dict[str, Any], models: Sequence[Path]) -> Path:
    """The folder for chunks, below ``name``: a digest of everything that determines them, this project's code included.

    The code is all of ``pathfinder``, because a published PRM can be evaluated without a stage of dvc.yaml.
    """
    content = {"identity": identity, "models": [digests_of(model) for model in models], "code": code_digests()}
    return STATE / name / digest_of(content)[:32]


def code_digests() -> list[str]:
    """The sha256 of this project's code and, in a clone, of the versions of its packages."""
    code = [_PROJECT / name for name in ("ground", "pathfinder", "infra/locks")]
    return [digest_path(path).sha256 for path in code if path.exists()]


class Workers:
    """The processes of a job: ``processes`` of them, or for 0 as many as have ``each`` GPUs.

    Without a GPU, 0 is one process. They start when the first chunk is missing and end with the block. Before that,
    ``check`` is called, while this process holds all their GPUs.
    """

    def __init__(self, job: Job, processes: int = 1, each: int = 1, check: Callable[[], None] | None = None) -> None:
        self._job, self._each, self._check = job, each, check or (lambda: None)
        self._count = processes or len(cards.available()) // max(each, 1) or 1
        self._stack = ExitStack()
        self._work: Work | None = None
        self._workers: list[_Worker] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: Any) -> None:
        self._stack.__exit__(*error)

    def run(self, chunks: Sequence[Chunk], folder: Path, title: str, unit: str = "problems") -> list[Any]:
        """The values of all chunks, in order; missing ones are computed and kept in ``folder``.

        Raises ``TransientError`` if a worker is killed, and any error of the job.
        """
        missing = [chunk for chunk in chunks if not _path(folder, chunk).exists()]
        total = sum(chunk.items for chunk in chunks)
        with Progress(title, total, unit) as progress:
            progress.resume(total - sum(chunk.items for chunk in missing))
            if missing and self._count == 1:
                for chunk in missing:
                    done = _Counted(progress)
                    value = self._here()(chunk, done)
                    done.finish(chunk)
                    write_json(_path(folder, chunk), value)
            elif missing:
                self._there(missing, folder, progress)
        return [read_json(_path(folder, chunk)) for chunk in chunks]

    def _here(self) -> Work:
        if self._work is None:
            self._stack.enter_context(cards.confined(self._each))
            self._check()
            self._work = self._stack.enter_context(self._job())
        return self._work

    def _there(self, missing: Sequence[Chunk], folder: Path, progress: Progress) -> None:
        if not self._workers:
            mine = self._stack.enter_context(cards.lease(self._count * self._each))
            self._check()
            parts = (mine[number * self._each :][: self._each] for number in range(self._count))
            self._workers += [self._stack.enter_context(_Worker(self._job, part)) for part in parts]
        waiting = list(missing)
        busy: dict[Any, tuple[_Worker, Chunk, _Counted]] = {}

        def give(worker: _Worker) -> None:
            chunk = waiting.pop()  # start with the last: jobs put their longest texts there
            worker.send(chunk)
            busy[worker.connection] = worker, chunk, _Counted(progress)

        for worker in self._workers[: len(waiting)]:
            give(worker)
        while busy:
            for connection in wait(list(busy)):
                worker, chunk, done = busy[connection]
                kind, value = worker.receive()
                if kind == "items":
                    done(value)
                    continue
                done.finish(chunk)
                write_json(_path(folder, chunk), value)
                del busy[connection]
                if waiting:
                    give(worker)


class _Counted:
    """Counts a chunk's finished items exactly once, even if the job does not report them."""

    def __init__(self, progress: Progress) -> None:
        self._progress, self._done = progress, 0

    def __call__(self, count: int) -> None:
        self._done += count
        self._progress.advance(count)

    def finish(self, chunk: Chunk) -> None:
        self(chunk.items - self._done)


class _Worker:
    """A child process with the GPUs ``mine``; it dies when its standard input is closed."""

    def __init__(self, job: Job, mine: Sequence[cards.Card]) -> None:
        self.connection, theirs = Pipe()
        paths = os.pathsep.join([str(_PROJECT), *filter(None, [os.environ.get("PYTHONPATH")])])
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__, str(theirs.fileno())],
            stdin=subprocess.PIPE,
            env={**os.environ, **cards.environment(mine), "PYTHONPATH": paths},
            pass_fds=[theirs.fileno(), *cards.descriptors()],
        )
        theirs.close()
        self.send(job)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.connection.close()  # an idle worker leaves its job and ends
        if kind is None:
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(_GRACE_S)
        self._process.kill()
        self._process.communicate()

    def send(self, message: Job | Chunk) -> None:
        """Send the job or the next chunk."""
        with suppress(BrokenPipeError):  # ``receive`` reports that it has ended
            self.connection.send(message)

    def receive(self) -> tuple[str, Any]:
        """The next message: finished items, or a chunk's value. Raises the worker's error."""
        try:
            kind, value = self.connection.recv()
        except (EOFError, ConnectionResetError):
            status = self._process.wait()
            why = signal.Signals(-status).name if status < 0 else f"status {status}"
            raise TransientError(
                f"worker {self._process.pid} ended with {why} (see its messages above; SIGKILL often means that memory "
                "ran out). All finished chunks are kept: the same command resumes from them"
            ) from None
        if kind == "error":
            raise value
        return kind, value


def _path(folder: Path, chunk: Chunk) -> Path:
    return folder / f"{chunk.name}.json"


def _messages(connection: Connection[Any, Any]) -> Iterator[Any]:
    with suppress(EOFError, ConnectionResetError):
        while True:
            yield connection.recv()


def _end_with_parent() -> None:
    os.read(0, 1)  # not through sys.stdin, whose lock this thread would hold when the process ends
    os._exit(1)


def main() -> None:
    """Run a worker: receive the job, then a chunk at a time, from the connection that the argument numbers."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends its workers
    threading.Thread(target=_end_with_parent, daemon=True).start()
    report_as("worker")
    connection: Connection[Any, Any] = Connection(int(sys.argv[1]))
    messages = _messages(connection)
    try:
        with uncollected():  # the job's imports make a million objects that stay
            job = next(messages)
        with job() as work:
            for chunk in messages:
                connection.send(("value", work(chunk, lambda count: connection.send(("items", count)))))
    except PathfinderError as error:
        connection.send(("error", error))


if __name__ == "__main__":
    main()
