"""Tensors in safetensors files, read by rows: a process reads only the rows that it keeps.

A tensor may be cut into parts of consecutive rows in several files, as the checkpoints of several processes are.
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open

from ground.io import DataError

FIRST_ROWS = "first_rows"
"""The key of a file's metadata with the number of each tensor's first row; a tensor that is not listed starts at 0."""


class Slices:
    """The tensors of several safetensors files."""

    def __init__(self, files: Iterable[Path]) -> None:
        """Read the headers of ``files``. Raises ``DataError`` if one is not a safetensors file."""
        self._parts: dict[str, list[tuple[int, int, Any]]] = {}
        for path in sorted(files):
            try:
                handle: Any = safe_open(path, framework="pt")
            except Exception as error:  # safetensors raises its own class, which its stubs do not name
                raise DataError(f"{path}: not a safetensors file ({error}); fetch or create it again") from error
            firsts = json.loads((handle.metadata() or {}).get(FIRST_ROWS, "{}"))
            for name in handle.keys():  # noqa: SIM118  # not a mapping
                shape = handle.get_slice(name).get_shape()
                first = int(firsts.get(name, 0))
                self._parts.setdefault(name, []).append((first, first + (shape[0] if shape else 1), handle))
        for parts in self._parts.values():
            parts.sort(key=lambda part: part[:2])

    def __contains__(self, name: str) -> bool:
        return name in self._parts

    @property
    def names(self) -> list[str]:
        """The names of all tensors, sorted."""
        return sorted(self._parts)

    def read(self, name: str, start: int = 0, stop: int | None = None) -> torch.Tensor:
        """Rows ``start`` to ``stop`` of a tensor, (rows, …) in the file's type. Raises ``DataError`` if missing."""
        if stop is None:
            stop = self._parts[name][-1][1]
        found: list[torch.Tensor] = []
        at = start
        for first, end, handle in self._parts.get(name, ()):
            if first <= at < min(end, stop):
                part = handle.get_slice(name)
                found.append(part[at - first : min(end, stop) - first])
                at = min(end, stop)
        if at < stop or not found:
            raise DataError(f"{name}: rows {at} to {stop} are in none of the files; fetch or create them again")
        return found[0] if len(found) == 1 else torch.cat(found)


def is_sharded(tensor: Any) -> bool:
    """Return whether a tensor is a DTensor of torch, whose module takes a second to import."""
    return hasattr(tensor, "placements")


def row_range(tensor: Any) -> tuple[int, int]:
    """The first row and the end of the rows of a tensor that this process holds: all rows unless the tensor is sharded.

    Raises ``NotImplementedError`` for a tensor that is cut, but not by rows over one group of processes.
    """
    rows = tensor.shape[0]
    if not is_sharded(tensor):
        return 0, rows
    from torch.distributed.tensor import Shard  # takes a second

    if tuple(tensor.placements) != (Shard(0),):
        raise NotImplementedError(f"placements {tensor.placements}: only tensors cut by rows can be read and written")
    each = -(-rows // tensor.device_mesh.size())
    first = min(tensor.device_mesh.get_local_rank() * each, rows)
    return first, min(first + each, rows)


def local_part(tensor: Any) -> Any:
    """The rows in ``row_range``, without a copy."""
    return tensor.to_local() if is_sharded(tensor) else tensor


def write_tensors(path: Path, tensors: Mapping[str, torch.Tensor], first_rows: Mapping[str, int]) -> str:
    """Write tensors in main memory to a safetensors file and return the file's sha256.

    Tensors are written one by one, and the digest is computed on the way, so nothing is copied or read again.
    """
    kinds = {torch.float32: "F32", torch.float64: "F64", torch.bfloat16: "BF16"}
    header: dict[str, Any] = {"__metadata__": {FIRST_ROWS: json.dumps({k: v for k, v in first_rows.items() if v})}}
    at = 0
    for name, tensor in tensors.items():
        size = tensor.numel() * tensor.element_size()
        header[name] = {"dtype": kinds[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # the format aligns the data to eight bytes
    digest = hashlib.sha256()
    with path.open("wb") as file:
        for part in (struct.pack("<Q", len(text)), text):
            file.write(part)
            digest.update(part)
        for tensor in tensors.values():
            content = tensor.contiguous().view(-1).view(torch.uint8).numpy().data
            file.write(content)
            digest.update(content)
        file.flush()
        os.fsync(file.fileno())
    return digest.hexdigest()
