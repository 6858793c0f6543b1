"""Several processes for one stage, started by torchrun with a configuration from infra/accelerate.

The files have accelerate's format, so that ``accelerate launch`` reads them too. The processes run the same module and
differ in ``RANK`` in their environment. They belong to the stage's process group, so they end with the stage.

On one machine the configuration's number of processes is an upper limit: with fewer visible GPUs, fewer are started.
With several machines each starts its own; ``NODE_RANK`` is a machine's number, and ``MASTER_ADDR`` and ``MASTER_PORT``
are the address of the first machine.

``python -m pathfinder.models.launch`` is torchrun, except that it keeps the exit status of the process that failed.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from ground.io import DataError, TransientError
from ground.settings import read_yaml
from pathfinder.models import cards

FOLDER = Path("infra/accelerate")
_PORT = "29500"
_STARTED = "PATHFINDER_LAUNCHED"
_JOIN_S = 7 * 24 * 3600
"""Seconds that a machine waits for the first machine, whose earlier stages may take days."""
_WAIT = timedelta(hours=1)
"""A process waits this long for the rest, which may read GBs from a slow disk; NCCL's default is 10 minutes."""


@dataclass(frozen=True, slots=True)
class Configuration:
    """A launcher's configuration: accelerate's distributed type, and the processes of all machines together."""

    kind: str
    machines: int
    processes: int
    content: dict[str, Any]

    @property
    def is_sharded(self) -> bool:
        """True if the processes share the weights (FSDP)."""
        return self.kind == "FSDP"

    def local_processes(self, gpus: int | None = None) -> int:
        """The number of processes that start on a machine with ``gpus`` (default: this one)."""
        wanted = self.processes // self.machines
        found = len(cards.visible()) if gpus is None else gpus
        return min(wanted, found) if self.machines == 1 and found and self.kind != "MULTI_CPU" else wanted


def configuration(name: str) -> Configuration:
    """The launcher's configuration ``name``; raises ``DataError`` if it is missing or malformed."""
    path = FOLDER / f"{name}.yaml"
    if not path.exists():
        known = ", ".join(sorted(file.stem for file in FOLDER.glob("*.yaml"))) or "none"
        raise DataError(f"{path}: no such file; train.launch is one of: {known}")
    content = read_yaml(path, "see infra/accelerate/machine.yaml")
    if not {"distributed_type", "num_processes", "num_machines"} <= content.keys():
        raise DataError(f"{path}: not an accelerate configuration; see infra/accelerate/machine.yaml")
    machines, processes = int(content["num_machines"]), int(content["num_processes"])
    return Configuration(content["distributed_type"], machines, processes, content)


def launched() -> bool:
    """Return whether a launcher started this process."""
    return "RANK" in os.environ


def started_here() -> bool:
    """Return whether ``launch`` started this process, rather than a launcher by hand."""
    return _STARTED in os.environ


def join(cpu: bool) -> None:
    """Join the launcher's group, if any; on the ``cpu`` with gloo, otherwise with NCCL."""
    if launched():
        from accelerate import PartialState  # takes seconds, and only training needs it

        PartialState(cpu=cpu, timeout=_WAIT)


def leave() -> None:
    """Leave the group, if this process has joined one."""
    import torch  # takes seconds; a mere launcher does not need it

    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


def is_first() -> bool:
    """Return whether this is the launcher's first process, or the only process."""
    return int(os.environ.get("RANK", "0")) == 0


def is_first_machine() -> bool:
    """Return whether this machine leads the training, or is the only machine."""
    return int(os.environ.get("NODE_RANK") or 0) == 0


def sharded() -> bool:
    """Return whether the launcher asks for sharded weights (FSDP)."""
    return os.environ.get("ACCELERATE_USE_FSDP", "false").lower() == "true"


def needed_cards(name: str) -> int:
    """The number of GPUs that the processes of configuration ``name`` need on this machine."""
    found = configuration(name)
    return 0 if found.kind == "MULTI_CPU" else found.local_processes()


def division(name: str, gpus: int | None = None) -> tuple[int, int]:
    """The number of processes that train together, and the number of parts that the weights are cut into.

    Taken from the running launcher or, without one, from configuration ``name``, where "" means one process, on a
    machine with ``gpus`` (default: this one).
    """
    if launched():
        processes, is_cut = int(os.environ.get("WORLD_SIZE", "1")), sharded()
    elif name:
        found = configuration(name)
        processes, is_cut = found.local_processes(gpus) * found.machines, found.is_sharded
    else:
        return 1, 1
    return processes, processes if is_cut else 1


def command(name: str, module: Sequence[str]) -> list[str]:
    """The command that starts ``module`` (name and arguments) under configuration ``name`` on this machine.

    Raises ``DataError`` for several machines if the environment does not give this machine's number.
    """
    found = configuration(name)
    machines, here = found.machines, str(found.local_processes())
    starter = [sys.executable, "-m", "pathfinder.models.launch", "--nproc-per-node", here]
    if machines == 1:
        return [*starter, "--standalone", "-m", *module]
    missing = [variable for variable in ("NODE_RANK", "MASTER_ADDR") if not os.environ.get(variable)]
    if missing:
        raise DataError(
            f"train.launch {name}: {machines} machines, and {' and '.join(missing)} not set; on each machine set "
            f"NODE_RANK (0 to {machines - 1}) and MASTER_ADDR, the address of machine 0 (docs/training.md)"
        )
    starter += ["--nnodes", str(machines), "--node-rank", os.environ["NODE_RANK"]]
    starter += ["--master-addr", os.environ["MASTER_ADDR"], "--master-port", os.environ.get("MASTER_PORT", _PORT)]
    # machines that train different runs must not meet
    return [*starter, "--rdzv-id", " ".join(module), "--rdzv-conf", f"timeout={_JOIN_S}", "-m", *module]


def environment(name: str) -> dict[str, str]:
    """The variables by which accelerate's library reads configuration ``name`` in each process."""
    found = configuration(name)
    if not found.is_sharded:
        without_gpu = {"ACCELERATE_USE_CPU": "True", "CUDA_VISIBLE_DEVICES": ""}  # else the model would go to a GPU
        return without_gpu if found.content.get("use_cpu", False) else {"ACCELERATE_USE_CPU": "False"}
    values = {key.upper(): str(value) for key, value in found.content.get("fsdp_config", {}).items()}
    values |= {key: value.lower() for key, value in values.items() if value in ("True", "False")}
    return {"ACCELERATE_USE_FSDP": "true", **values}


def launch(name: str, module: Sequence[str], leased: Sequence[cards.Card] = ()) -> None:
    """Run ``module`` under configuration ``name`` on the ``leased`` GPUs.

    Raises ``TransientError`` if one of its processes ended with that error, and ``SystemExit`` if it failed otherwise.
    """
    surroundings = {**os.environ, **environment(name), **cards.environment(leased), _STARTED: "1"}
    done = subprocess.run(command(name, module), env=surroundings, pass_fds=cards.descriptors(), check=False)
    if done.returncode == TransientError.exit_status:
        raise TransientError(f"{module[0]}: one of its processes must be tried again; see its error above")
    if done.returncode:
        raise SystemExit(f"{module[0]}: its processes ended with status {done.returncode}; see the first error above")


def torchrun() -> None:
    """Run torchrun with this process's arguments and keep the status of the process that failed.

    torchrun itself ends with 1, so the flow could not see that a stage is worth another attempt. Raises ``SystemExit``
    with the status of the process that failed first; as in a shell, signal N counts as 128 + N. If several failed at
    once, ``EX_TEMPFAIL`` wins: the rest failed because they lost a process of their group.
    """
    from torch.distributed import run
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

    try:
        with tempfile.TemporaryDirectory(prefix="pathfinder-") as reports:  # torchrun leaves its folder behind
            run.main(["--log-dir", reports, *sys.argv[1:]])
    except ChildFailedError as error:
        rank, first = error.get_first_failure()
        codes = {failure.exitcode for failure in error.failures.values()}
        print(f"process {rank} failed first: {_ending(first.exitcode)}", file=sys.stderr)
        retry = TransientError.exit_status
        raise SystemExit(retry if retry in codes else _status(first.exitcode)) from None


def _status(code: int) -> int:
    return 128 - code if code < 0 else code


def _ending(code: int) -> str:
    return f"ended by {signal.Signals(-code).name}" if code < 0 else f"status {code}"


if __name__ == "__main__":
    torchrun()
