"""The device of a stage and the memory that is free on it."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pathfinder.models import cards

GIB = 2**30


@dataclass(frozen=True, slots=True)
class Device:
    """A CPU or ``cards`` equal GPUs, with the free bytes (``memory``, on the fullest card) and all bytes (``total``).

    ``name`` is the driver's name for the GPUs, "" if the driver gives none.
    """

    kind: Literal["cpu", "cuda"]
    memory: float
    total: float
    cards: int = 1
    name: str = ""


def gpus(memory: float, count: int = 1, name: str = "") -> Device:
    """``count`` GPUs of ``memory`` GiB each that nothing else uses."""
    return Device("cuda", memory * GIB, memory * GIB, count, name)


def this_device() -> Device:
    """The GPUs that this process has leased or may use, or the CPU with the memory available in this container."""
    if not _has_driver():
        return Device("cpu", *main_memory())
    import torch  # takes seconds

    if not torch.cuda.is_available():
        return Device("cpu", *main_memory())
    found = cards.held()
    # torch would open a context on the card, so ask it only if the driver's tool is missing
    sizes = cards.memory(found) or [torch.cuda.mem_get_info()]
    free, total = min(sizes)
    return Device("cuda", float(free), float(total), max(1, len(found)), cards.model(found))


def _has_driver() -> bool:
    """Return whether NVIDIA's driver is installed. Without it, torch finds no GPU, so there is no need to import it."""
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    return True


def main_memory(proc: Path = Path("/proc/meminfo"), cgroup: Path = Path("/sys/fs/cgroup")) -> tuple[float, float]:
    """Available and total bytes of main memory for this container. Cached files count as available."""
    lines = dict(line.split(":", 1) for line in proc.read_text().splitlines() if ":" in line)
    free, total = (1024.0 * int(lines[key].split()[0]) for key in ("MemAvailable", "MemTotal"))
    bound = _read_number(cgroup / "memory.max")
    if bound is not None:
        statistics = dict(line.split() for line in (cgroup / "memory.stat").read_text().splitlines())
        used = (_read_number(cgroup / "memory.current") or 0) - int(statistics.get("inactive_file", 0))
        free, total = min(free, bound - used), min(total, bound)
    return free, total


def _read_number(path: Path) -> int | None:
    text = path.read_text().strip() if path.is_file() else ""
    return int(text) if text.isdigit() else None
