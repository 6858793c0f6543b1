"""The unfinished work of stages (journals and checkpoints) follows a run to another machine, through a remote.

Before a stage runs, work that another machine sent is fetched; while it runs, its unfinished work is sent to the
remote: journals, parts, and the newest complete checkpoint. The copies are signed and never half complete; their pieces
are named by sha256.
``unfinished/<kind>/<folder>/state.json`` is a signed list of files and their pieces, written after the pieces. A folder
is named by a digest of everything that determines its content (pathfinder.judge.judge, stages.train), and a stage opens
only its own: the work of a different configuration is never used. If a journal grows, only its last piece is sent
again.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from evidence.audit.trust import trusted_keys
from evidence.record.signing import opened_as, sign
from evidence.remote.guard import read_verified
from evidence.settings import Form, Sha256, parsed
from ground.io import DataError, PathfinderError, atomic_file, remove, sha256_of
from ground.remote import Store

HOME = "unfinished"
STATE = "state.json"
TYPE = "application/vnd.pathfinder-prm.unfinished+json"
PIECE = 16 << 20
KINDS = {
    "label": "label",
    "critic": "critics",
    "train": "train",
    "prepare": "parts/prepare",
    "build": "parts/build",
}
"""The folder below .pathfinder with the unfinished work of each stage; `train@full` counts as `train`."""
EVERY_S = 60.0
_SHARE = 10.0  # a copy takes at most a tenth of the time
_SKIPPED = ("examples",)  # tokenised examples of a training, which it makes again
_LINKS = ".sending"
_AT_ONCE = 8  # pieces on their way

OnLine = Callable[[str], None]


def kind_of(stage: str) -> str:
    """The folder of a stage's unfinished work; empty if it keeps none."""
    return KINDS.get(stage.partition("@")[0], "")


class File(Form):
    """The bytes of a file and the sha256 of each of its pieces."""

    size: int
    pieces: list[Sha256]


class State(Form):
    """The files of one folder by relative path, and the stages that may have written them."""

    folder: str
    stages: list[str]
    files: dict[str, File]

    def pieces(self) -> set[str]:
        """The names of all pieces."""
        return {piece for file in self.files.values() for piece in file.pieces}


@dataclass
class Copies:
    """The copies in one remote for one project; every method raises like a store."""

    root: Path
    store: Store
    is_writer: Callable[[], bool] = lambda: True
    _sent: dict[str, State] = field(default_factory=dict)
    _known: dict[Path, tuple[int, File]] = field(default_factory=dict)

    def send(self, folder: Path, stage: str) -> int:
        """Send the pieces of a stage's folder that are missing in the remote; returns the number of pieces sent."""
        with _steady(folder) as paths:
            return self._send(folder, stage, paths)

    def _send(self, folder: Path, stage: str, paths: dict[str, Path]) -> int:
        name = folder.relative_to(self.root / ".pathfinder").as_posix()
        before = self._sent.get(name) or self._read(name)
        files = {where: file for where, path in paths.items() if (file := self._file(path))}
        state = State(folder=name, stages=sorted({stage, *(before.stages if before else ())}), files=files)
        if state == before:
            self._sent[name] = state
            return 0
        self._sent[name] = before or State(folder=name, stages=[], files={})  # drop finds what an aborted call left
        there = {PurePosixPath(key).name for key in self.store.keys(f"{name}/pieces/")}
        lacking = {
            piece: (paths[path], number, file.size)
            for path, file in state.files.items()
            for number, piece in enumerate(file.pieces)
            if piece not in there
        }

        def put(piece: str) -> bool:
            content = _piece(*lacking[piece])
            if is_same := sha256_of(content) == piece:
                self.store.put(f"{name}/pieces/{piece}", content)
            return is_same

        with ThreadPoolExecutor(_AT_ONCE) as pool:
            arrived = list(pool.map(put, lacking))
        # if a file has changed or is gone, the next call sees its new state
        if not all(arrived) or not self.is_writer():
            return sum(arrived)
        envelope = sign(json.dumps(state.model_dump(), sort_keys=True).encode(), TYPE)
        self.store.put(f"{name}/{STATE}", json.dumps(envelope).encode())
        for piece in there - state.pieces():
            self.store.delete(f"{name}/pieces/{piece}")
        self._sent[name] = state
        return len(lacking)

    def fetch(self, kind: str, stage: str) -> Iterator[str]:
        """Fetch the files of this stage that are absent, and journals that continue the local ones; yields paths.

        Raises ``DataError`` if a state is not signed by a trusted key or a piece does not have its digest.
        """
        for key in self.store.keys(f"{kind}/"):
            if not key.endswith(f"/{STATE}"):
                continue
            name = key.removesuffix(f"/{STATE}")
            state = self._read(name)
            if state is None or stage not in state.stages:
                continue
            self._sent[name] = state
            for path, file in state.files.items():
                target = self._target(name, path)
                if self._fetch_file(name, target, file):
                    yield target.relative_to(self.root).as_posix()

    def finished(self) -> list[str]:
        """The folders that were sent or fetched and that the stage has since deleted, because their work is done."""
        return [name for name in self._sent if not (self.root / ".pathfinder" / name).exists()]

    def drop(self, name: str) -> None:
        """Delete the copy of a folder, the state first."""
        self.store.delete(f"{name}/{STATE}")
        for key in self.store.keys(f"{name}/pieces/"):
            self.store.delete(key)
        self._sent.pop(name, None)

    def _fetch_file(self, name: str, target: Path, file: File) -> bool:
        has = target.stat().st_size if target.is_file() else None
        if has is not None and (target.suffix != ".jsonl" or has >= file.size):
            return False
        with contextlib.suppress(FileExistsError), atomic_file(target) as temporary:
            with temporary.open("wb") as handle:
                for piece in file.pieces:
                    handle.write(read_verified(self.store, f"{name}/pieces/{piece}", piece))
            if has is not None and not _continues(temporary, target):
                raise FileExistsError(target)  # and leave the local journal
            return True
        return False

    def _target(self, name: str, path: str) -> Path:
        base = self.root / ".pathfinder" / name
        if PurePosixPath(path).is_absolute() or ".." in PurePosixPath(path).parts:
            raise DataError(f"{self.store.url}/{name}/{STATE}: {path!r} leaves its folder")
        return base / path

    def _read(self, name: str) -> State | None:
        """The signed state of a folder; ``None`` if the remote has none."""
        key = f"{name}/{STATE}"
        if key not in self.store.keys(key):
            return None
        where = f"{self.store.url}/{key}"
        keys = trusted_keys(self.root)
        remedy = "not signed by a key that is trusted here; copy the worker's key to infra/keys/"
        payload, signers = opened_as(TYPE, self.store.read(key), keys, where, remedy)
        keys.require_valid(signers, where, "delete it in the remote")
        state = parsed(State, payload, where)
        if state.folder != name:
            raise DataError(f"{where}: describes {state.folder} instead; delete it in the remote")
        return state

    def _file(self, path: Path) -> File | None:
        """The pieces of a file; an unchanged file is not read again. ``None`` if it is gone or empty."""
        try:
            found = path.stat()
            changed_ns, known = self._known.get(path, (0, None))
            if known is not None and (found.st_mtime_ns, found.st_size) == (changed_ns, known.size):
                return known
            numbers = range(-(-found.st_size // PIECE))
            pieces = [sha256_of(_piece(path, number, found.st_size)) for number in numbers]
        except FileNotFoundError:
            return None
        if not pieces:
            return None
        file = File(size=found.st_size, pieces=pieces)
        self._known[path] = (found.st_mtime_ns, file)
        return file


@contextlib.contextmanager
def _steady(folder: Path) -> Iterator[dict[str, Path]]:
    """The files of a folder that are worth a copy, by relative path; for the files of a checkpoint, links to them.

    A copy of a large checkpoint takes longer than training keeps it, so the links keep its bytes until the block ends.
    """
    links, found = folder / _LINKS, {path.relative_to(folder).as_posix(): path for path in _files(folder)}
    remove(links)  # a killed run's leftovers
    try:
        with contextlib.suppress(FileNotFoundError):  # the training has finished; its folder is not made again
            for name in [name for name in found if name.startswith("checkpoint-")]:
                path = links / name
                for parent in (links, path.parent):
                    parent.mkdir(exist_ok=True)
                os.link(found[name], path)
                found[name] = path
        yield found
    finally:
        remove(links)


def _files(folder: Path) -> Iterator[Path]:
    """The files of a folder that are worth a copy; temporary ones begin with a dot."""
    complete = max(filter(_is_complete, folder.glob("checkpoint-*")), key=_step, default=None)
    for path in _below(folder):
        parts = path.relative_to(folder).parts
        is_old = parts[0].startswith("checkpoint-") and complete != folder / parts[0]
        if not is_old and parts[0] not in _SKIPPED and not any(part.startswith(".") for part in parts):
            yield path


def _below(folder: Path) -> list[Path]:
    """All files below a folder. Unlike ``rglob``, this ignores folders that a running stage removes."""
    return sorted(Path(place, name) for place, _, names in os.walk(folder) for name in names)


def _is_complete(checkpoint: Path) -> bool:
    """Return whether every process has written its part (pathfinder.training.checkpoints): its digests come last."""
    digests = list(checkpoint.glob("part-*-of-*.json"))
    return bool(digests) and digests[0].stem.rpartition("-")[2] == f"{len(digests):05d}"


def _step(checkpoint: Path) -> int:
    return int(checkpoint.name.rpartition("-")[2])


def _piece(path: Path, number: int, size: int) -> bytes:
    """A piece of the first ``size`` bytes of a file; empty if the file is gone."""
    with contextlib.suppress(FileNotFoundError), path.open("rb") as handle:
        handle.seek(number * PIECE)
        return handle.read(min(PIECE, size - number * PIECE))
    return b""


def _continues(longer: Path, shorter: Path) -> bool:
    """Return whether a journal begins with all whole lines of another journal and has more."""
    with longer.open("rb") as one, shorter.open("rb") as other:
        for line in other:
            if line.endswith(b"\n") and one.readline() != line:
                return False
        return bool(one.read(1))


@contextlib.contextmanager
def carried(
    store: Store | None,
    root: Path,
    stage: str,
    on_line: OnLine,
    is_part: bool = False,
    is_writer: Callable[[], bool] = lambda: True,
) -> Iterator[None]:
    """Fetch the unfinished work of a stage, and send it every minute and at the end, even if the stage fails.

    ``store`` is the folder ``HOME`` of a remote that other machines reach; ``None`` without such a remote. With
    ``is_part``, the command computes one part of the stage, so the other parts are not fetched. Nothing is sent while
    ``is_writer`` is false, because another run continues this work.

    A copy that cannot be sent, or that is not sound, is reported, and the stage continues without it. Raises
    ``TransientError`` if the remote does not answer before the stage starts.
    """
    kind = kind_of(stage)
    if not kind or store is None:
        yield
        return
    carrier = _Carrier(Copies(root, store, is_writer), stage, kind, on_line)
    if not (is_part and kind.startswith("parts/")):
        carrier.fetch()
    thread = threading.Thread(target=carrier.send_until_end, daemon=True)
    thread.start()
    try:
        yield
    finally:
        carrier.ended.set()
        thread.join()


class _Carrier:
    def __init__(self, copies: Copies, stage: str, kind: str, on_line: OnLine) -> None:
        self.ended = threading.Event()
        self._copies, self._kind, self._stage, self._on_line = copies, kind, stage, on_line
        self._home = copies.root / ".pathfinder" / kind
        self._before = _versions(self._home)
        self._told: set[str] = set()

    def fetch(self) -> None:
        try:
            for path in self._copies.fetch(self._kind, self._stage):
                self._on_line(f"resumes with {path} from the remote")
        except DataError as error:
            self._on_line(f"unfinished work on the remote is not used: {error}")

    def send_until_end(self) -> None:
        wait_s = EVERY_S
        while not self.ended.wait(wait_s):
            begun = time.monotonic()
            self._send()
            wait_s = max(EVERY_S, _SHARE * (time.monotonic() - begun))
        self._send()

    def _send(self) -> None:
        try:
            for folder in self._changed():
                self._copies.send(folder, self._stage)
            for name in self._copies.finished():
                if self._copies.is_writer():
                    self._copies.drop(name)
        except (PathfinderError, OSError) as error:
            if str(error) not in self._told:
                self._told.add(str(error))
                self._on_line(f"unfinished work could not be sent to the remote: {error}")

    def _changed(self) -> list[Path]:
        """The folders with a file that has changed since this run of the stage started; older runs' folders stay."""
        new = _versions(self._home) - self._before
        return sorted({self._home / path.relative_to(self._home).parts[0] for path, _ in new})


def _versions(home: Path) -> set[tuple[Path, int]]:
    """The files below each folder in ``home`` with the times of their last change in nanoseconds."""
    found = set()
    for path in (path for path in _below(home) if path.parent != home):
        with contextlib.suppress(FileNotFoundError):  # a running stage replaces its files
            found.add((path, path.stat().st_mtime_ns))
    return found
