"""Size a job by the active profile's plan on its own machine and by the times of resources.yaml."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from flows.local.graph import load_graph
from flows.team.pools import table
from ground.io import DataError
from pathfinder.core.params import PARAMS_FILE, load_params
from pathfinder.models import launch
from pathfinder.models.cards import GIB, Device
from pathfinder.planning import profiles
from pathfinder.planning.gpu_plan import Plan

RUN = "run"
_CORES, _CORES_PER_GPU = 8, 4
_ROOM_GIB = 32
"""Main memory of a job in addition to its models' needs: Python, DVC, and files in use; assumed."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """The resources that a job needs on each of its ``nodes``."""

    nodes: int
    gpus: int
    cores: int
    memory_gib: int
    seconds: float

    def options(self) -> list[str]:
        """The arguments of sbatch."""
        minutes = math.ceil(self.seconds / 60)
        days, hours, rest = minutes // 1440, minutes // 60 % 24, minutes % 60
        return [
            f"--nodes={self.nodes}",
            *([f"--gpus-per-node={self.gpus}"] if self.gpus else []),
            f"--cpus-per-task={self.cores}",
            f"--mem={self.memory_gib}G",
            f"--time={days}-{hours:02}:{rest:02}:00",
        ]


def sizes(root: Path, job: str, targets: Sequence[str] = ()) -> Sizes:
    """The size of a stage, or of the pipeline (``run``) up to some targets (default: all), by the active profile.

    Raises ``DataError`` if there is no such job, or if it does not belong to the profile or fit the profile's machine.
    """
    params, graph = load_params(root / PARAMS_FILE), load_graph(root)
    if job != RUN and job not in graph.stages:
        raise DataError(f"{job}: no such job; expected {RUN} or a stage: {', '.join(graph.stages)}")
    if job != RUN and job not in graph.select(()):
        raise DataError(
            f"{job}: profile {params.profile} does not run it; write another with `pathfinder profile NAME`"
        )
    if params.profile not in profiles.names(root):
        raise DataError(
            f"{PARAMS_FILE}: infra/profiles has no {params.profile}.yaml to name its machine; add it with a line "
            "like `# machine: 1 x H100 80 GB`"
        )
    device = profiles.machine_for(root, params.profile) or Device("cpu", 0.0, 0.0)
    names = sorted(graph.select(targets) if job == RUN else [job])
    stages = {name.partition("@")[0] for name in names}
    plan = Plan(params, device)
    needed = [stage for stage in plan.stages if stage in stages]
    gpus = 0
    if device.kind == "cuda":
        for stage in needed:
            found = plan.verdicts[stage]
            if found and not found.fits:
                raise DataError(f"{stage} does not fit the machine of profile {params.profile}: {found.remedy}")
        gpus = max((plan.cards_of(stage) for stage in needed), default=0)
    several = params.train.launch and "train" in stages
    nodes = launch.configuration(params.train.launch).machines if several else 1
    times = [needs.time_s or 0.0 for needs in table.needs(root, names).values()]
    memory = plan.main_memory_of(needed) / GIB if needed else 0.0
    cores = max(_CORES, _CORES_PER_GPU * gpus)
    return Sizes(nodes, gpus, cores, math.ceil(memory) + _ROOM_GIB, max(times))
