"""Examples in files that all processes of a run map into memory: one process tokenises, the rest and resumed runs read.

A folder holds one ``.npy`` file per array: the nodes, readings, names and record ids of all examples, each concatenated
in their order, and the counts that separate them. The operating system keeps one copy of the mapped pages for all
processes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from ground.io import DataError, atomic_folder, read_json, write_json
from pathfinder.training.examples import Example, Targets
from pathfinder.tree.tree import Tree

_NODES = ("ids", "depth", "end")
_TARGETS = ("marks", "positive", "shares", "weights")
_TEXTS = ("names", "ids_text")
_COUNTS = ("samples", "sample_tokens")
_ABOUT = "about.json"
_POLL_S = 0.2


class StoredExamples(Sequence[Example]):
    """The examples in a folder that ``store`` wrote; their arrays are read-only views of the files."""

    def __init__(self, folder: Path) -> None:
        """Map the files of ``folder``. Raises ``DataError`` if one is missing or torn."""
        names = (*_NODES, "reads", *_TARGETS, *_TEXTS, "sizes", *_COUNTS)
        try:
            arrays = {name: np.load(folder / f"{name}.npy", mmap_mode="r", allow_pickle=False) for name in names}
        except (OSError, ValueError) as error:
            raise DataError(
                f"{folder}: not readable as examples ({error}); remove this folder and start again"
            ) from error
        self._arrays: dict[str, npt.NDArray[Any]] = {name: np.asarray(array) for name, array in arrays.items()}
        sizes = self._arrays["sizes"]  # nodes, readings, bytes of the name and bytes of the ids of each example
        self._starts = np.concatenate([np.zeros((1, 4), dtype=np.int64), np.cumsum(sizes, axis=0)])

    def __len__(self) -> int:
        return len(self._starts) - 1

    @overload
    def __getitem__(self, index: int) -> Example: ...
    @overload
    def __getitem__(self, index: slice) -> list[Example]: ...
    def __getitem__(self, index: int | slice) -> Example | list[Example]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        if not -len(self) <= index < len(self):
            raise IndexError(f"example {index} of {len(self)}")
        index %= len(self)
        nodes, readings, *texts = (slice(*self._starts[index : index + 2, part]) for part in range(4))
        arrays = self._arrays
        tree = Tree(arrays["ids"][nodes], arrays["depth"][nodes], arrays["end"][nodes], arrays["reads"][readings])
        targets = Targets(*(arrays[key][readings] for key in _TARGETS))
        counts = (int(arrays[key][index]) for key in _COUNTS)
        name, ids = (arrays[key][part].tobytes().decode() for key, part in zip(_TEXTS, texts, strict=True))
        return Example(name, tree, targets, tuple(ids.split("\n")), *counts)


def store(examples: Sequence[Example], folder: Path) -> None:
    """Write ``examples`` to the new folder ``folder``."""
    folder.mkdir(parents=True)
    names = [np.frombuffer(example.name.encode(), dtype=np.uint8) for example in examples]
    ids = [np.frombuffer("\n".join(example.ids).encode(), dtype=np.uint8) for example in examples]
    sizes = [
        (len(e.tree), len(e.targets.marks), *map(len, text)) for e, *text in zip(examples, names, ids, strict=True)
    ]
    _write(folder / "sizes.npy", np.asarray(sizes, dtype=np.int64).reshape(-1, 4))
    for key in _COUNTS:
        _write(folder / f"{key}.npy", np.asarray([getattr(e, key) for e in examples], dtype=np.int64))
    for key, texts in zip(_TEXTS, (names, ids), strict=True):
        _save(folder / f"{key}.npy", texts, np.uint8)
    for key in (*_NODES, "reads"):
        _save(folder / f"{key}.npy", [getattr(e.tree, key) for e in examples], np.int32)
    for key, kind in zip(_TARGETS, (np.int8, np.bool_, np.float32, np.float32), strict=True):
        _save(folder / f"{key}.npy", [getattr(e.targets, key) for e in examples], kind)


def _save(path: Path, parts: Sequence[npt.NDArray[Any]], kind: Any) -> None:
    _write(path, np.concatenate(parts).astype(kind, copy=False) if parts else np.empty(0, dtype=kind))


def _write(path: Path, array: npt.NDArray[Any]) -> None:
    """Write the bytes of ``np.save``, which leaves half a file without an error if the disk is full."""
    array = np.ascontiguousarray(array)
    with path.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, np.lib.format.header_data_from_array_1_0(array))
        file.write(array.data)  # no copy: the largest array has gigabytes


Sets = dict[str, Sequence[Example]]
"""Examples by the name of their set, for example ``learn`` and ``test``."""


def prepared(
    folder: Path, is_first: bool, make: Callable[[], tuple[Sets, dict[str, Any]]]
) -> tuple[Sets, dict[str, Any]]:
    """The sets of examples in ``folder``, with facts about them; ``make`` makes them if the folder does not exist.

    Only the first process of a run makes them, and the folder appears when it is complete. The remaining processes wait
    for it without a collective operation, because its timeout would end them.
    """
    if is_first and not folder.exists():
        sets, about = make()
        with atomic_folder(folder) as made:
            for name, examples in sets.items():
                store(examples, made / name)
            write_json(made / _ABOUT, about | {"sets": sorted(sets)})
        del sets
    while not folder.exists():
        time.sleep(_POLL_S)
    about = read_json(folder / _ABOUT)
    return {name: StoredExamples(folder / name) for name in about.pop("sets")}, about
