"""Checkpoints: many processes write them while training continues, and any number of processes can read them.

Every process copies its share of the trained weights and of the optimiser to main memory, and a thread writes it to
``checkpoint-STEP/part-RANK-of-PROCESSES.safetensors``. Each process writes its own shards; whole weights are divided
among the processes. The file ``part-….json`` with the digests of a part is written last. A checkpoint is complete when
all parts have their digests, and intact if the digests match. A torn checkpoint is reported and deleted.

Frozen weights are not written; they come from the base model. Training draws no random numbers after its start, so no
generator state is needed.
"""

from __future__ import annotations

import shutil
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from ground.io import DataError, make_folder, read_json, remove, sha256_file, sync, write_json
from pathfinder.models.slices import Slices, is_sharded, local_part, row_range, write_tensors
from pathfinder.tree.packing import balance

STATE = "trainer_state.json"
"""The rows of the steps before a checkpoint (``trainer.Fitted``)."""
_KEPT = 2
_MOMENTS = ("exp_avg", "exp_avg_sq")
_GIB = 2**30
_POLL_S = 0.2


def trained(network: torch.nn.Module) -> dict[str, torch.nn.Parameter]:
    """The trained parameters of ``network`` by name; for sharded parameters, the shards."""
    for module in network.modules():
        if (reshard := getattr(module, "reshard", None)) is not None:  # a module of torch's FSDP
            reshard()  # an evaluation leaves the last unit whole
    return {name: parameter for name, parameter in network.named_parameters() if parameter.requires_grad}


def size_of(network: torch.nn.Module) -> int:
    """Bytes of one checkpoint: the trained weights and both moments of AdamW."""
    sizes = (parameter.numel() * parameter.element_size() for parameter in trained(network).values())
    return (1 + len(_MOMENTS)) * sum(sizes)


def check_room(folder: Path, size: int, limit_gib: float) -> int:
    """The number of checkpoints of ``size`` bytes to keep: as many as ``limit_gib`` allows, two without a limit (0).

    Raises ``DataError`` if the limit or the free space of the disk is too small. While a checkpoint is written, the
    previous one remains, so the disk holds two even if only one is kept.
    """
    kept = int(limit_gib * _GIB // size) if limit_gib else _KEPT
    if not kept:
        raise DataError(
            f"train.checkpoint_gib: {limit_gib:g} GiB, but one checkpoint has {size / _GIB:.1f} GiB; raise it, set it "
            "to 0 (no limit) or train an adapter (train.lora.rank)"
        )
    folder.mkdir(parents=True, exist_ok=True)
    used = sum(file.stat().st_size for file in folder.glob("checkpoint-*/*"))
    free, needed = shutil.disk_usage(folder).free + used, max(kept, 2) * size
    if free < needed:
        raise DataError(
            f"{folder}: {free / 2**20:,.1f} MiB free, {max(kept, 2)} checkpoints need {needed / 2**20:,.1f} MiB; make "
            f"room{' or lower train.checkpoint_gib' if kept > 2 else ''}"
        )
    return kept


class Group:
    """The processes that train together: this process's number, their count, and agreement between them."""

    def __init__(self, rank: int = 0, processes: int = 1, device: torch.device | str = "cpu") -> None:
        self.rank, self.processes, self._device = rank, processes, device

    @classmethod
    def of(cls, device: torch.device) -> Group:
        """The group that a launcher started, if any; ``device`` is the device of this process."""
        if not torch.distributed.is_initialized():
            return cls()
        return cls(torch.distributed.get_rank(), torch.distributed.get_world_size(), device)

    def all_agree(self, verdict: bool) -> bool:
        """Return whether ``verdict`` is true in every process; returns after all processes have called."""
        if self.processes == 1:
            return verdict
        votes = torch.tensor([int(verdict)], device=self._device)
        torch.distributed.all_reduce(votes, torch.distributed.ReduceOp.MIN)
        return bool(votes.item())


def newest_checkpoint(folder: Path, group: Group | None = None) -> Path | None:
    """The newest complete and intact checkpoint; the first process reports and deletes torn ones.

    The processes share the work of reading the files.
    """
    group = group or Group()
    for checkpoint in _newest_first(folder):
        if group.all_agree(_is_intact(checkpoint, group)):
            return checkpoint
        if group.rank == 0:
            print(f"{checkpoint.name}: torn, removed; training resumes from the previous one", file=sys.stderr)
            shutil.rmtree(checkpoint)
        group.all_agree(True)  # remove it before any process looks at the disk
    return None


def remove_progress(folder: Path) -> None:
    """Remove the examples and checkpoints of a finished run.

    The folder is renamed in one step, so a run that starts after a kill finds all of it or nothing.
    """
    finished = folder.with_name(f"{folder.name}.finished")
    remove(finished)  # a killed run's leftovers
    folder.replace(finished)
    remove(finished)


def step_of(checkpoint: Path) -> int:
    """The optimiser step after which a checkpoint was taken."""
    return int(checkpoint.name.rpartition("-")[2])


class Writer:
    """Writes this process's parts of the checkpoints in ``folder``, one at a time, and deletes old ones."""

    def __init__(self, folder: Path, kept: int, group: Group) -> None:
        self._folder, self._kept, self._group = folder, kept, group
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None
        self._copies: dict[str, torch.Tensor] = {}

    def save(self, step: int, network: torch.nn.Module, optimiser: Any) -> None:
        """Copy the share of this process and write it in the background.

        The first process must have written ``STATE`` to the folder ``checkpoint-STEP`` before. Every process must call
        this. Raises any error of the previous writing.
        """
        self.finish()
        self._group.all_agree(True)  # the previous checkpoint is complete
        if self._group.rank == 0:
            self._delete_old(max(1, self._kept - 1))
        parts = dict(_share(network, optimiser, self._group))
        tensors = {name: self._copy(name, local_part(tensor)) for name, tensor in parts.items()}
        firsts = {name: row_range(tensor)[0] for name, tensor in parts.items()}
        checkpoint = self._folder / f"checkpoint-{step}"
        self._thread = threading.Thread(target=self._write, args=(checkpoint, tensors, firsts), daemon=True)
        self._thread.start()

    def finish(self) -> None:
        """Wait until this process has written its part; the first process waits for all. Raises its error, if any."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        if self._error is not None:
            raise self._error

    def _copy(self, name: str, tensor: torch.Tensor) -> torch.Tensor:
        """A finished copy in main memory; the next checkpoint reuses it.

        It is not pinned, because torch rounds pinned memory up to a power of two, which is up to twice a tensor's size.
        """
        if name not in self._copies:
            self._copies[name] = torch.empty(tensor.shape, dtype=tensor.dtype)
        return self._copies[name].copy_(tensor.detach())

    def _write(self, checkpoint: Path, tensors: dict[str, torch.Tensor], firsts: dict[str, int]) -> None:
        try:
            make_folder(checkpoint)
            part = checkpoint / _part_name(self._group.rank, self._group.processes)
            digests = {part.name: write_tensors(part, tensors, firsts)}
            if self._group.rank == 0:
                sync(checkpoint / STATE)
                digests[STATE] = sha256_file(checkpoint / STATE)
            write_json(part.with_suffix(".json"), {"files": digests})
            if self._group.rank == 0:
                while not _digests(checkpoint):
                    time.sleep(_POLL_S)
                self._delete_old(self._kept)
        except BaseException as error:  # finish raises it in the main thread
            self._error = error

    def _delete_old(self, kept: int) -> None:
        """Keep the newest complete checkpoints and an unfinished one that is newer than all of them."""
        found = _newest_first(self._folder)
        complete = [checkpoint for checkpoint in found if _digests(checkpoint)]
        for checkpoint in found:
            if complete and step_of(checkpoint) < step_of(complete[0]) and checkpoint not in complete[:kept]:
                shutil.rmtree(checkpoint)


def read_weights(checkpoint: Path, network: torch.nn.Module) -> None:
    """Copy the trained weights of a checkpoint into ``network``; any number of processes may have written them."""
    slices = Slices(checkpoint.glob("part-*.safetensors"))
    with torch.no_grad():
        for name, parameter in trained(network).items():
            _fill(parameter, slices, f"weight/{name}")


def read_optimiser(checkpoint: Path, network: torch.nn.Module, optimiser: Any) -> None:
    """Give AdamW the moments and the number of steps of a checkpoint."""
    slices, steps = Slices(checkpoint.glob("part-*.safetensors")), float(step_of(checkpoint))
    for name, parameter in trained(network).items():
        moments = {moment: torch.zeros_like(parameter) for moment in _MOMENTS}
        for moment, tensor in moments.items():
            _fill(tensor, slices, f"{moment}/{name}")
        device = local_part(parameter).device
        optimiser.state[parameter] = {"step": torch.tensor(steps, dtype=torch.float32, device=device), **moments}


def _share(network: torch.nn.Module, optimiser: Any, group: Group) -> Iterator[tuple[str, torch.Tensor]]:
    """The tensors that this process writes: its rows of every sharded tensor, and some of the whole tensors."""
    parameters = trained(network)
    whole = [name for name, parameter in parameters.items() if not is_sharded(parameter)]
    own = balance([parameters[name].numel() for name in whole], group.processes)[group.rank]
    chosen = {whole[i] for i in own} | (parameters.keys() - set(whole))
    for name, parameter in parameters.items():
        first, stop = row_range(parameter)
        if name in chosen and stop > first:
            yield f"weight/{name}", parameter
            for moment in _MOMENTS:
                yield f"{moment}/{name}", optimiser.state[parameter][moment]


def _fill(tensor: torch.Tensor, slices: Slices, name: str) -> None:
    first, stop = row_range(tensor)
    if stop > first:
        local_part(tensor).detach().copy_(slices.read(name, first, stop))


def _part_name(rank: int, processes: int) -> str:
    return f"part-{rank:05d}-of-{processes:05d}.safetensors"


def _newest_first(folder: Path) -> list[Path]:
    found = [path for path in folder.glob("checkpoint-*") if path.name.rpartition("-")[2].isdigit()]
    return sorted(found, key=step_of, reverse=True)


def _digests(checkpoint: Path) -> dict[str, Any]:
    """The digests of a checkpoint's files, which the JSON files of its parts give; empty if it is not complete."""
    files = sorted(checkpoint.glob("part-*.json"))
    processes = int(files[0].stem.rpartition("-")[2]) if files else 0
    parts = [_part_name(rank, processes) for rank in range(processes)]
    digests: dict[str, Any] = {}
    try:
        for file in files:
            digests |= read_json(file)["files"]
    except (OSError, DataError, TypeError, ValueError, KeyError):
        return {}
    return digests if len(files) == processes and digests.keys() >= {*parts} else {}


def _is_intact(checkpoint: Path, group: Group) -> bool:
    """Return whether a checkpoint is complete and the files that this process checks match their digests."""
    digests = _digests(checkpoint)
    mine = list(digests.items())[group.rank :: group.processes]
    there = {path.name for path in checkpoint.iterdir() if path.is_file()}
    return bool(digests) and all(name in there and sha256_file(checkpoint / name) == digest for name, digest in mine)
