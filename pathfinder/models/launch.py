"""Several processes for one stage: started by accelerate or torchrun as a file under infra/accelerate says.

The started processes run the same module; ``RANK`` in their environment tells them apart. They stay in the stage's
process group, so what ends the stage ends them.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from pathfinder.core.io import DataError

FOLDER = Path("infra/accelerate")


def configuration(name: str) -> dict[str, Any]:
    """The launcher's settings called ``name``; raises ``DataError`` where there are none."""
    path = FOLDER / f"{name}.yaml"
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        known = ", ".join(sorted(file.stem for file in FOLDER.glob("*.yaml"))) or "none"
        raise DataError(f"{path}: no such file; train.launch is one of: {known}") from error
    if not isinstance(content, dict) or not {"distributed_type", "num_processes", "num_machines"} <= content.keys():
        raise DataError(f"{path}: not an accelerate configuration; see infra/accelerate/machine.yaml")
    return content


def launched() -> bool:
    """Whether a launcher started this process."""
    return "RANK" in os.environ


def sharded() -> bool:
    """Whether the launcher asks for sharded weights (FSDP)."""
    return os.environ.get("ACCELERATE_USE_FSDP", "false").lower() == "true"


def division(name: str) -> tuple[int, int]:
    """``(processes, parts)``: how many train together, and into how many parts the weights are cut.

    Of the running launcher; in its absence of configuration ``name``, "" being one process.
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
    """What starts ``module`` (a module's name and its arguments) under configuration ``name`` on this machine."""
    settings = configuration(name)
    if settings["num_machines"] > 1:
        raise DataError(
            f"train.launch {name}: {settings['num_machines']} machines cannot be started from one; start the stage on "
            f"each of them as {FOLDER / name}.yaml says, with train.launch empty"
        )
    if settings["distributed_type"] == "MULTI_CPU":  # accelerate starts these through MPI alone
        starter = ["torch.distributed.run", "--standalone", "--nproc-per-node", str(settings["num_processes"])]
    else:
        starter = ["accelerate.commands.launch", "--config_file", str(FOLDER / f"{name}.yaml")]
    return [sys.executable, "-m", *starter, "-m", *module]


def launch(name: str, module: Sequence[str]) -> None:
    """Run ``module`` under configuration ``name`` to its end; raises ``SystemExit`` with its status where it fails."""
    status = subprocess.run(command(name, module), check=False).returncode
    if status:
        raise SystemExit(f"{module[0]}: its processes ended with status {status}; the first error above says why")
