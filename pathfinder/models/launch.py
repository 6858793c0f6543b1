"""Several processes for one stage, started by accelerate or torchrun with a configuration from infra/accelerate.

The processes run the same module and differ in ``RANK`` in their environment. They belong to the stage's process group,
so they end with the stage.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pathfinder.core.io import DataError
from pathfinder.core.settings import read_yaml

FOLDER = Path("infra/accelerate")


def configuration(name: str) -> dict[str, Any]:
    """The launcher's configuration ``name``; raises ``DataError`` if it is missing or malformed."""
    path = FOLDER / f"{name}.yaml"
    if not path.exists():
        known = ", ".join(sorted(file.stem for file in FOLDER.glob("*.yaml"))) or "none"
        raise DataError(f"{path}: no such file; train.launch is one of: {known}")
    content = read_yaml(path, "see infra/accelerate/machine.yaml")
    if not {"distributed_type", "num_processes", "num_machines"} <= content.keys():
        raise DataError(f"{path}: not an accelerate configuration; see infra/accelerate/machine.yaml")
    return content


def launched() -> bool:
    """Whether a launcher started this process."""
    return "RANK" in os.environ


def is_first() -> bool:
    """Whether this is the launcher's first process, or the only process."""
    return int(os.environ.get("RANK", "0")) == 0


def sharded() -> bool:
    """Whether the launcher asks for sharded weights (FSDP)."""
    return os.environ.get("ACCELERATE_USE_FSDP", "false").lower() == "true"


def division(name: str) -> tuple[int, int]:
    """The number of processes that train together, and the number of parts that the weights are cut into.

    Taken from the running launcher or, without one, from configuration ``name``, where "" means one process.
    """
    if launched():
        processes, cut = int(os.environ.get("WORLD_SIZE", "1")), sharded()
    elif name:
        settings = configuration(name)
        processes, cut = int(settings["num_processes"]), settings["distributed_type"] == "FSDP"
    else:
        return 1, 1
    return processes, processes if cut else 1


def command(name: str, module: Sequence[str]) -> list[str]:
    """The command that starts ``module`` (name and arguments) under configuration ``name`` on this machine.

    Raises ``DataError`` for a configuration of several machines.
    """
    settings = configuration(name)
    if settings["num_machines"] > 1:
        raise DataError(
            f"train.launch {name}: {settings['num_machines']} machines cannot be started from one; start the stage "
            f"on each machine with {FOLDER / name}.yaml and an empty train.launch"
        )
    if settings["distributed_type"] == "MULTI_CPU":  # accelerate can start these only through MPI
        starter = ["torch.distributed.run", "--standalone", "--nproc-per-node", str(settings["num_processes"])]
    else:
        starter = ["accelerate.commands.launch", "--config_file", str(FOLDER / f"{name}.yaml")]
    return [sys.executable, "-m", *starter, "-m", *module]


def launch(name: str, module: Sequence[str]) -> None:
    """Run ``module`` under configuration ``name`` until it ends; raises ``SystemExit`` if it fails."""
    status = subprocess.run(command(name, module), check=False).returncode
    if status:
        raise SystemExit(f"{module[0]}: its processes ended with status {status}; see the first error above")
