"""The GPUs of this machine, each leased to one process at a time, and the memory of the GPUs or the CPU.

A lock on a file leases a card. The file is in this user's folder in the system's temporary folder, which all clones
share. The lock ends with the last process that inherited it: a killed stage frees its cards when its servers and
workers have ended too. A stage or a command leases all its cards at once, so two processes never wait for each other.
Its parts (a server, workers) then call ``lease`` for their share. On a machine without a GPU every lease is empty.

For tests, ``PATHFINDER_SIMULATED_CARDS=4`` simulates four cards; models run on the CPU.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from ground.io import DataError

SIMULATED = "PATHFINDER_SIMULATED_CARDS"
_LEASED = "PATHFINDER_LEASED"
"""Set for children of a holder: they own their visible cards."""
_VISIBLE = "CUDA_VISIBLE_DEVICES"
_POLL_S = 0.5
_SHOW_S = 60.0
_QUERY = ("nvidia-smi", "--query-gpu=index,uuid,memory.free,memory.total,name", "--format=csv,noheader,nounits")
GIB, _MIB = 2**30, 2**20
# Ask PyTorch to query the driver's library for GPUs. Asking CUDA would fix the visible cards of this process.
os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")


@dataclass(frozen=True, slots=True)
class Card:
    """A GPU: its ``name`` in ``CUDA_VISIBLE_DEVICES``, and a ``key`` that is the same for every process."""

    name: str
    key: str


@dataclass(slots=True)
class _Held:
    """The cards of this process that no part of it has taken, and the locks."""

    free: list[Card]
    locks: list[int]


_held: _Held | None = None


def visible() -> list[Card]:
    """The GPUs that this process may use, in the order of ``CUDA_VISIBLE_DEVICES``. Starts no CUDA context."""
    names = os.environ.get(_VISIBLE)
    known = {index: key for index, (key, *_) in _installed().items()}
    if names is None:
        return [Card(index, key) for index, key in known.items()]
    found = []
    for name in (part.strip() for part in names.split(",")):
        matches = [index for index, key in known.items() if name in (index, key)]
        matches = matches or [index for index, key in known.items() if name and key.startswith(name)]
        if matches:
            found.append(Card(matches[0], known[matches[0]]))
        elif name.startswith("MIG-"):  # a part of a card, which nvidia-smi does not list
            found.append(Card(name, name))
        else:
            break  # as in CUDA, an unknown name hides all later cards
    return found


def held() -> list[Card]:
    """The GPUs that this process has leased and not given to a part of it. Without a lease, the visible GPUs."""
    return list(_held.free) if _held and _held.free else visible()


def available() -> list[Card]:
    """The GPUs that ``lease`` may still give this process: the free part of its lease, or all visible ones."""
    return visible() if _held is None else list(_held.free)


def memory(cards: Sequence[Card]) -> list[tuple[int, int]]:
    """Free and total bytes of each card; empty if the driver does not report them. Starts no CUDA context."""
    installed = {key: figures[:2] for key, *figures in _installed().values()}
    found = [installed.get(card.key, []) for card in cards]
    return [(int(pair[0]) * _MIB, int(pair[1]) * _MIB) for pair in found] if all(map(_are_numbers, found)) else []


def model(cards: Sequence[Card]) -> str:
    """The driver's name for the first card, for example "NVIDIA L4"; "" if the driver gives none."""
    names = {key: "".join(more[2:]) for key, *more in _installed().values()}
    return next((names.get(card.key, "") for card in cards), "")


def environment(cards: Sequence[Card]) -> dict[str, str]:
    """The variables of a child process that may use only ``cards`` of this process; empty without cards."""
    if not cards:
        return {}
    names = ",".join(card.name for card in cards)
    return {_VISIBLE: names, "CUDA_DEVICE_ORDER": "PCI_BUS_ID", _LEASED: "1"}


def descriptors() -> list[int]:
    """The locks of this process, for ``pass_fds``: the cards stay leased until the child has ended too."""
    return list(_held.locks) if _held else []


@contextmanager
def lease(count: int, shared: bool = False) -> Iterator[list[Card]]:
    """Hold ``count`` GPUs. Waits until they are free and prints who holds them. Empty on a machine without a GPU.

    Inside another lease of this process, take cards of that lease; ``shared`` leaves them to its other parts as well.
    Raises ``DataError`` if fewer cards are visible.
    """
    global _held
    if _held is not None:
        if count > len(_held.free):
            raise DataError(f"{_title()} holds {len(_held.free)} free GPUs and a part of it needs {count}")
        taken = _held.free[:count]
        if shared:
            yield taken
            return
        _held.free = _held.free[count:]
        try:
            yield taken
        finally:
            if _held is not None:
                _held.free = [*taken, *_held.free]
        return
    cards = visible()
    if not cards or not count:
        yield []
        return
    if count > len(cards):
        raise DataError(
            f"{_title()} needs {count} GPUs, {len(cards)} are visible; lower tensor_parallel, replicas or processes in "
            f"params.yaml, or make more visible ({_VISIBLE})"
        )
    locks: Mapping[Card, int | None]
    locks = dict.fromkeys(cards[:count]) if _LEASED in os.environ else _acquire(cards, count)
    held = _held = _Held(list(locks), [lock for lock in locks.values() if lock is not None])
    try:
        yield list(locks)
    finally:
        _held = None
        for lock in held.locks:
            os.close(lock)


@contextmanager
def confined(count: int = 1) -> Iterator[list[Card]]:
    """Hold GPUs as ``lease`` does, and hide all other GPUs from this process from now on.

    Raises ``DataError`` as ``lease`` does, and if this process already uses CUDA, because it would keep the cards it
    has seen.
    """
    with lease(count) as cards:
        wanted = {name: value for name, value in environment(cards).items() if name != _LEASED}
        torch = sys.modules.get("torch")
        if torch is not None and torch.cuda.is_initialized() and wanted.get(_VISIBLE) != os.environ.get(_VISIBLE):
            raise DataError(f"{_title()}: CUDA was in use before GPUs were leased; set {_VISIBLE} before the start")
        os.environ.update(wanted)
        yield cards


def _acquire(cards: Sequence[Card], count: int) -> Mapping[Card, int | None]:
    """Lock ``count`` of the cards. Processes take turns, so that no two wait for each other."""
    folder = _folder()
    turn: int | None = None
    found: dict[Card, int] = {}
    shown = float("-inf")
    try:
        while True:
            if turn is None:
                turn = _lock(folder / "turn")
            if turn is not None:
                for card in cards:
                    if len(found) < count and card not in found and (lock := _lock(folder / card.key)) is not None:
                        found[card] = lock
            if len(found) == count:
                return {card: found[card] for card in cards if card in found}
            if time.monotonic() - shown >= _SHOW_S:
                shown = time.monotonic()
                print(_waiting(folder, cards, count, found), file=sys.stderr, flush=True)
            time.sleep(_POLL_S)
    except BaseException:
        for lock in found.values():
            os.close(lock)
        raise
    finally:
        if turn is not None:
            os.close(turn)


def _folder() -> Path:
    """The folder of the locks; raises ``DataError`` if another user can put links into it."""
    folder = Path(tempfile.gettempdir()) / f"pathfinder-cards-{os.getuid()}"
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    about = folder.lstat()
    if not stat.S_ISDIR(about.st_mode) or about.st_uid != os.getuid() or about.st_mode & 0o022:
        raise DataError(f"{folder}: another user can write to it; remove it, or set TMPDIR to a folder of your own")
    return folder


def _lock(path: Path) -> int | None:
    """A descriptor that locks ``path``, whose content then names this process; None if another process has the lock."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    holder = {"pid": os.getpid(), "stage": _title(), "folder": os.getcwd(), "since": time.time()}
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, json.dumps(holder).encode(), 0)
    return descriptor


def _waiting(folder: Path, cards: Sequence[Card], count: int, found: dict[Card, int]) -> str:
    others = [f"GPU {card.name}: {_holder(folder / card.key)}" for card in cards if card not in found]
    return f"{_title()} waits for {count} GPUs and has {len(found)} ({'; '.join(others)})"


def _holder(path: Path) -> str:
    try:
        holder: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        minutes = (time.time() - float(holder["since"])) / 60
        return f"{holder['stage']}, pid {holder['pid']} in {holder['folder']}, for {minutes:.0f} min"
    except (OSError, ValueError, KeyError):
        return "free, or its holder is just starting"


def _title() -> str:
    """The module and arguments of this process, such as ``stages.train full``."""
    spec = sys.modules["__main__"].__spec__
    return " ".join([spec.name if spec else Path(sys.argv[0]).name, *sys.argv[1:]])


def _installed() -> dict[str, list[str]]:
    """For each installed GPU by index: its key, then free and total memory in MiB and the name as text, if known."""
    if (number := os.environ.get(SIMULATED)) is not None:
        return {str(index): [f"simulated-{index}"] for index in range(int(number))}
    try:
        lines = subprocess.run(_QUERY, capture_output=True, text=True, check=True, timeout=60).stdout.splitlines()
    except (OSError, subprocess.SubprocessError):  # no driver, or a container without its tools
        found = sorted(int(path.name[6:]) for path in Path("/dev").glob("nvidia[0-9]*"))
        return {str(index): [f"nvidia{number}"] for index, number in enumerate(found)}
    rows = ([part.strip() for part in line.split(",")] for line in lines if line.strip())
    return {index: [key, *figures] for index, key, *figures in rows}


def _are_numbers(figures: Sequence[str]) -> bool:
    return len(figures) == 2 and all(figure.isdigit() for figure in figures)


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
    found = held()
    # torch would open a context on the card, so it is asked only if the driver's tool is missing
    sizes = memory(found) or [torch.cuda.mem_get_info()]
    free, total = min(sizes)
    return Device("cuda", float(free), float(total), max(1, len(found)), model(found))


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
