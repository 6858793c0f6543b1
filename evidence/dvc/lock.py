"""Changes of dvc.lock that DVC has no command for, and the lock that DVC's commands wait for.

``drop`` and ``replace_blocks`` keep the text of all other stages; ``replace_entries`` writes the whole lock anew.
"""

from __future__ import annotations

import contextlib
import fcntl
import time
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from evidence.dvc.history import MAIN_LOCK, STAGE, read_stages, stages_in
from evidence.dvc.pipeline import read_pipeline
from evidence.dvc.stores import cache_of, object_file
from ground.io import TransientError, write_text
from ground.settings import dump_yaml, read_yaml

LOCK = Path(".dvc/tmp/lock")
"""DVC's lock of a project, which every command and every stage of that project waits for."""
_LOCK_WAIT_S = 120.0


def sort_lock(root: Path) -> None:
    """Put the stages of dvc.lock into the order of dvc.yaml, then the stages that it lacks by name. No value changes.

    DVC appends stages as they finish, which would make the file differ from run to run.
    """
    head, blocks = _blocks((root / MAIN_LOCK).read_text(encoding="utf-8"))
    ranks = {name: rank for rank, name in enumerate(read_pipeline(root))}
    ordered = sorted(blocks, key=lambda name: (ranks.get(name, len(ranks)), name))
    if list(blocks) != ordered:
        write_text(root / MAIN_LOCK, head + "".join(blocks[name] for name in ordered))


def drop_absent(root: Path, names: set[str]) -> list[str]:
    """Remove from dvc.lock the stages of ``names`` with an out that the cache does not have; returns their names.

    DVC restores only the outs that dvc.lock names. Without an entry it takes what the run cache has for the inputs, so
    that a clone restores a published run whose bytes differ from the committed lock.
    """
    if not (root / MAIN_LOCK).exists():
        return []
    cache = cache_of(root)
    absent = [
        name
        for name, stage in read_stages(root / MAIN_LOCK, MAIN_LOCK).items()
        if name in names and not all(object_file(cache, md5).exists() for md5 in stage.outs.values())
    ]
    drop(root, absent)
    return absent


def drop(root: Path, names: Collection[str]) -> None:
    """Remove stages from dvc.lock."""
    if names and (root / MAIN_LOCK).exists():
        head, blocks = _blocks((root / MAIN_LOCK).read_text(encoding="utf-8"))
        kept = [block for name, block in blocks.items() if name not in names]
        if kept:
            write_text(root / MAIN_LOCK, head + "".join(kept))
        else:
            (root / MAIN_LOCK).unlink()  # DVC refuses a lock without stages


def entries(root: Path) -> dict[str, Any]:
    """The entries of dvc.lock by stage, as DVC wrote them; empty without the file."""
    return (read_yaml(root / MAIN_LOCK).get("stages") or {}) if (root / MAIN_LOCK).exists() else {}


def replace_entries(root: Path, new: Mapping[str, Any], dropped: Collection[str] = ()) -> None:
    """Put entries into dvc.lock in place of the entries of the same stages and of ``dropped``."""
    kept = {name: entry for name, entry in entries(root).items() if name not in {*dropped, *new}}
    content = {"schema": "2.0", "stages": {**kept, **new}}
    write_text(root / MAIN_LOCK, dump_yaml(content))


def replace_blocks(text: str, changed: str) -> str:
    """Replace the stages in the text of a lock by the stages of ``changed``, and append the new ones."""
    head, blocks = _blocks(text)
    return head + "".join((blocks | blocks_of(changed)).values())


def outs_of(root: Path, stage: str) -> dict[str, str]:
    """The outs of one stage in dvc.lock, of which only that stage is parsed; empty if the file lacks it.

    Raises ``DataError`` if the entry is not valid, and ``OSError`` or ``UnicodeDecodeError`` if the file is not text.
    """
    head, blocks = _blocks((root / MAIN_LOCK).read_text(encoding="utf-8"))
    return stages_in(head + blocks[stage], MAIN_LOCK)[stage].outs if stage in blocks else {}


def blocks_of(text: str) -> dict[str, str]:
    """The text of each stage in the text of a lock; it is YAML with the stage as its only key."""
    return _blocks(text)[1]


def _blocks(text: str) -> tuple[str, dict[str, str]]:
    """The head of a lock and the text of each stage, in the order of the file."""
    head, mark, body = text.partition("stages:\n")
    blocks = {block.partition(":\n")[0].strip(" '\""): block for block in STAGE.split(body) if block}
    return head + mark, blocks


@contextlib.contextmanager
def dvc_lock(root: Path) -> Iterator[None]:
    """Hold DVC's lock, so that the block never reads a file that DVC writes in several steps.

    Raises ``TransientError`` if another command holds it for minutes.
    """
    path = root / LOCK
    path.parent.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + _LOCK_WAIT_S
    with path.open("a") as handle:
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError as error:
                if time.monotonic() > deadline:
                    raise TransientError(f"{path}: another DVC command has held it for {_LOCK_WAIT_S:.0f} s") from error
                time.sleep(0.02)
        yield
