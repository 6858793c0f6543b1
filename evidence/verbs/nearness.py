"""How near an out is to what a record says: identical, within tolerance, or different.

Floating-point numbers in JSON and JSON Lines files, and tensors in safetensors files, may differ by ``TOLERANCE``.
Everything else must be equal.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evidence.dvc.stores import listing_of
from evidence.verbs.targets import Files
from ground.hashing import digest_path
from ground.show import counted

TOLERANCE = 1e-4
"""The largest difference, relative to the larger of two numbers, or to the largest value of a tensor."""
_ABSOLUTE = 1e-8
"""Numbers in JSON that differ by at most this much count as equal, however small they are."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """``identical``, ``within tolerance`` or ``different``, and where it is not identical, what differs."""

    word: str
    why: str = ""


_IDENTICAL = Verdict("identical")


def compared(path: Path, entry: Mapping[str, Any], files: Files) -> Verdict:
    """Compare a file or folder with its entry in a record; the recorded bytes are read from the stores of ``files``."""
    if not path.exists():
        return Verdict("different", "was not made")
    found = digest_path(path)
    if found.md5 == entry["md5"]:
        return _IDENTICAL
    if not found.is_folder:
        return _file(path, str(entry["md5"]), files)
    listed = {name: inner["md5"] for name, inner in (entry.get("files") or {}).items()}
    listed = listed or listing_of(files.stores, str(entry["md5"]))
    if listed.keys() != found.files.keys():
        return Verdict("different", f"other files: {', '.join(sorted(listed.keys() ^ found.files.keys()))}")
    verdicts = {name: _file(path / name, md5, files) for name, md5 in listed.items() if found.files[name].md5 != md5}
    worst = "different" if any(v.word == "different" for v in verdicts.values()) else "within tolerance"
    return Verdict(worst, "; ".join(f"{name}: {verdict.why}" for name, verdict in verdicts.items()))


def _file(path: Path, md5: str, files: Files) -> Verdict:
    old = files.object(md5)
    if old is None:
        return Verdict("different", "different bytes; no store of this machine has the recorded ones")
    if path.suffix == ".safetensors":
        return _tensors(path, old)
    try:
        if path.suffix == ".json":
            return _gaps(_differences(json.loads(old.read_bytes()), json.loads(path.read_bytes()), ""))
        if path.suffix == ".jsonl":
            left, right = (list(map(json.loads, file.read_bytes().splitlines())) for file in (old, path))
            return _gaps(_differences(left, right, ""))
    except ValueError:
        pass
    return Verdict("different", "different bytes")


def _gaps(found: Iterator[tuple[str, float]]) -> Verdict:
    gaps = list(found)
    place, gap = max(gaps, key=lambda one: one[1], default=("", 0.0))
    if gap > TOLERANCE:
        return Verdict(
            "different", f"{place or 'the whole file'}{'' if math.isinf(gap) else f' by a relative {gap:.2g}'}"
        )
    numbers = f"{counted(len(gaps), 'number')} differ, by at most a relative {gap:.2g}"
    return Verdict("within tolerance", numbers if gaps else "the same values, written differently")


def _differences(old: Any, new: Any, place: str) -> Iterator[tuple[str, float]]:
    """The places where two JSON values differ, with the relative gap of numbers; infinite for anything else."""
    if isinstance(old, dict) and isinstance(new, dict) and old.keys() == new.keys():
        for key in old:
            yield from _differences(old[key], new[key], f"{place}/{key}")
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for number, (one, two) in enumerate(zip(old, new, strict=True)):
            yield from _differences(one, two, f"{place}/{number}")
    elif type(old) is type(new) is float:
        if old != new:
            yield place, 0.0 if abs(old - new) <= _ABSOLUTE else _finite(abs(old - new) / max(abs(old), abs(new)))
    elif old != new or type(old) is not type(new):
        yield place, math.inf


def _tensors(path: Path, old: Path) -> Verdict:
    """Compare the tensors of two safetensors files, in float64."""
    import torch
    from safetensors.torch import load_file

    left, right = load_file(old), load_file(path)
    if left.keys() != right.keys() or any(left[name].shape != right[name].shape for name in left):
        return Verdict("different", "other tensors")
    gap = 0.0
    for name, tensor in left.items():
        one, two = tensor.to(torch.float64), right[name].to(torch.float64)
        if not torch.equal(one, two):
            gap = max(gap, _finite(float((one - two).abs().max() / one.abs().max().clamp(min=_ABSOLUTE))))
    word = "within tolerance" if gap <= TOLERANCE else "different"
    return Verdict(word, f"tensors by at most {gap:.2g} of their largest value")


def _finite(gap: float) -> float:
    """The gap; infinite if one of the numbers is not finite."""
    return math.inf if math.isnan(gap) else gap
