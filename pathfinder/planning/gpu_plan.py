"""The needs of a profile on a machine with GPUs: memory, main memory, disk, hours, tokens and cost, stage by stage."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from ground.io import DataError
from ground.text import UsageError
from pathfinder.core.params import PARAMS_FILE, Params, Source, load_params
from pathfinder.models import launch
from pathfinder.models.architectures import Shape
from pathfinder.models.cards import GIB, Device, gpus, main_memory, this_device
from pathfinder.models.footprint import Verdict, shown, verdict, with_changes
from pathfinder.models.needs import STAGES, Need
from pathfinder.models.shapes import planned_shape
from pathfinder.planning import cards, disks, estimates, profiles
from pathfinder.planning.cards import card_of
from pathfinder.planning.disks import Room
from pathfinder.planning.estimates import Estimate, is_estimated

_DATA_GIB = 3.0
"""Main memory of the stages between raw files and training set, for a million completions: 1.35 with two processes
(docs/measurements.md), and an assumed quarter for each of the other six on more cores."""
_PROCESS_GIB = 2.0
"""Main memory of one training process without weights: Python, torch and the driver's part; assumed."""
_SERVER_GIB = 4.0
"""Main memory of one vLLM process; assumed."""
_SOURCES_GB = 10.0
"""Disk of sources, labels, trees, predictions and reports; rounded up."""
_COPIES = 3
"""Copies of a trained model on disk: in the workspace, in DVC's cache and in a remote in a local folder."""
_GB = 1e9


@dataclass(frozen=True)
class Plan:
    """A profile on a device. Nothing is loaded or fetched.

    ``root`` is the folder of the project on the machine, None if the machine is not this one.
    """

    params: Params
    device: Device
    root: Path | None = None

    def shape_of(self, name: str) -> Shape:
        """The shape of a model of the source catalogue; without a base, "base" is the largest published PRM."""
        sources = self.params.download.sources
        named = [source.name.removeprefix("models/") for source in sources if source.name.startswith("models/")]
        if name == "base" and name not in named:
            systems = [planned_shape(system, sources) for system in self.params.baselines if system in named]
            return max(systems, key=lambda shape: shape.parameters)
        return planned_shape(name, sources)

    @cached_property
    def stages(self) -> list[str]:
        """The stages of the profile that load a model or start a server."""
        params = self.params
        if "export" in params.targets:
            return ["label"]
        runs = ("train", "processbench", "prmbench", "search") if params.runs else ()
        labelled = ("label",) if not params.comparisons or params.runs else ()
        systems = ("baseline", "baseline_search") if params.baselines else ()
        wanted = {*labelled, *runs, "sample", "control", *systems}
        return [stage for stage in STAGES if stage in wanted]

    @cached_property
    def verdicts(self) -> dict[str, Verdict | None]:
        """The verdict about each stage; ``None`` if its model runs elsewhere. No server fits on a CPU."""
        found = {stage: verdict(stage, self.params, self.device, self.shape_of) for stage in self.stages}
        for stage, each in found.items():
            if each and _servers(each) and self.device.kind != "cuda":  # ``verdict`` does not check this
                found[stage] = replace(each, fits=False, remedy="its server needs a GPU", changes={})
        return found

    @cached_property
    def gpus_needed(self) -> Device | None:
        """The GPUs that the head of the profile's file names, or else its servers' GPUs; ``None`` without either.

        Only a plan on the machine of the project knows the file.
        """
        if self.root and (named := profiles.machine_for(self.root, self.params.profile)):
            return named
        needs = [need for each in self.verdicts.values() for need in _servers(each)]
        if not needs:
            return None
        return gpus(max(need.total / need.share for need in needs) / GIB, max(need.cards for need in needs))

    @cached_property
    def settings(self) -> dict[str, Any]:
        """Changes by key of params.yaml that make every stage fit that can fit; empty if all fit as they are.

        Each stage is checked with the changes for the other stages, so the changes are consistent.
        """
        changes: dict[str, Any] = {}
        for stage in [*reversed(self.stages), *self.stages]:
            found = verdict(stage, with_changes(self.params, changes), self.device, self.shape_of)
            if found and not found.fits:
                changes |= found.changes
        return changes

    @property
    def fits(self) -> bool:
        """True if every stage fits on the device."""
        return all(each is None or each.fits for each in self.verdicts.values())

    @property
    def has_room(self) -> bool:
        """True if main memory and disk suffice as well, as far as they are known."""
        if self.root is None or not is_estimated(self.params):
            return True
        return max(self.main_memory().values()) <= main_memory()[0] and all(room.suffices for room in self.rooms)

    def cards_of(self, stage: str) -> int:
        """The cards that a stage takes: its servers' cards and its own processes' cards, unless they share them."""
        found = self.verdicts[stage]
        counts = [self._cards(need, found) for need in (found.needs if found else ())]
        return (max if self.params.search.shared_card else sum)(counts or [0])

    def main_memory_of(self, stages: Collection[str]) -> float:
        """The largest entry of ``main_memory`` for one of ``stages``; 0 if none has an entry."""
        sizes = self.main_memory().items()
        return max((size for name, size in sizes if name.partition(" ")[0] in stages), default=0.0)

    @cached_property
    def estimates(self) -> list[Estimate]:
        """Hours and tokens; empty for generated worlds, without GPUs, and if a stage does not fit."""
        if not (is_estimated(self.params) and self.device.kind == "cuda" and self.fits):
            return []
        return estimates.estimates(self.params, self.device, self.shape_of, self.stages)

    def _cards(self, need: Need, found: Verdict | None) -> int:
        """The cards that the processes of ``need`` take.

        If score.processes is 0, scoring takes all cards that are left, and counts one if none is left.
        """
        if self.device.kind == "cpu":
            return 0
        if need.share or need.stage in ("train", "label", "sample", "control") or self.params.score.processes:
            return need.cards
        servers = 0 if self.params.search.shared_card else sum(other.cards for other in _servers(found))
        return max(need.cards, self.device.cards - servers)

    def main_memory(self) -> dict[str, float]:
        """Bytes of main memory by stage, on one machine."""
        found = {"prepare to build": _DATA_GIB * GIB}
        for stage in self.stages:
            if servers := sum(need.cards for need in _servers(self.verdicts[stage])):
                found[f"{stage} (server)"] = servers * _SERVER_GIB * GIB
        if "train" in self.stages:
            train, shape = self.params.train, self.shape_of("base")
            machines = launch.configuration(train.launch).machines if train.launch else 1
            all_processes, shards = launch.division(train.launch, self.device.cards)
            processes = all_processes / machines
            copied = 12.0 * self._learned / machines  # of a checkpoint, while it is written
            # if sharded, the GPUs get the rows as they are read, and one process gets the result
            copies = 1 if shards > 1 and not train.lora.rank else processes
            half = train.lora.rank and train.lora.base_dtype == "bfloat16"
            whole = copies * (2.0 if half else 4.0) * shape.parameters
            found["train"] = processes * _PROCESS_GIB * GIB + copied + whole
        return found

    def disk(self) -> dict[str, float]:
        """Bytes on disk by purpose, for a run that starts with nothing."""
        found = {"sources and results": _SOURCES_GB * _GB}
        found[disks.HUB] = sum(size for _, size in self._models())
        if "train" in self.stages:
            size = 12.0 * self._learned
            kept = int(self.params.train.checkpoint_gib * GIB // size) if self.params.train.checkpoint_gib else 2
            found["checkpoints"] = max(2, kept) * size
            found["trained models"] = _COPIES * len(self.params.runs) * 2.0 * self.shape_of("base").parameters
        return found

    def _models(self) -> Iterable[tuple[Source, float]]:
        """The models that are fetched into the Hub's cache, each once, with their bytes."""
        wanted = {f"models/{name}" for name in ("base", "judge", "policy", *self.params.baselines)}
        found = {
            source.location: (source, 2.0 * self.shape_of(source.name.removeprefix("models/")).parameters)
            for source in self.params.download.sources
            if source.kind == "hub" and source.name in wanted and not source.files
        }
        return found.values()

    @cached_property
    def rooms(self) -> list[Room]:
        """The disks of the project and of the Hub's cache, with the bytes that are not yet on them.

        Empty for generated worlds and for other machines. Only models in the Hub's cache count as present.
        """
        if self.root is None or not is_estimated(self.params):
            return []
        left = self.disk()
        left[disks.HUB] = sum(max(0.0, size - disks.fetched(source)) for source, size in self._models())
        return disks.rooms(self.root, left)

    @property
    def _learned(self) -> float:
        shape, lora = self.shape_of("base"), self.params.train.lora
        return float(shape.adapter(lora) if lora.rank else shape.parameters)

    def as_json(self) -> dict[str, Any]:
        """The plan, from which ``plan_text`` makes tables and sentences; docs/commands.md lists the keys.

        Hours, main memory and disk hold with ``settings``. There are no hours if a stage fits with no settings.
        """
        adapted = replace(self, params=with_changes(self.params, self.settings))
        has_estimates = is_estimated(self.params)
        memory, here = adapted.main_memory(), self.root is not None and has_estimates
        return {
            "profile": self.params.profile,
            "device": {name: getattr(self.device, name) for name in ("kind", "name", "cards")}
            | {"free_gib": self.device.memory / GIB, "total_gib": self.device.total / GIB},
            "fits": self.fits,
            "has_room": adapted.has_room,
            "settings": {key: shown(value) for key, value in sorted(self.settings.items())},
            "stages": [self._stage_json(stage, adapted.verdicts[stage]) for stage in self.stages],
            "hours": [asdict(each) for each in adapted.estimates],
            "peaks": asdict(card_of(self.device)) if adapted.estimates else None,
            "main_memory_gib": _in(GIB, memory) if has_estimates else {},
            "free_main_memory_gib": main_memory()[0] / GIB if here else None,
            "disk_gb": _in(_GB, adapted.disk()) if has_estimates else {},
            "disks": [
                {"folder": str(room.folder), "free_gb": room.free / _GB, "parts_gb": _in(_GB, room.parts)}
                for room in adapted.rooms
            ],
        }

    def _stage_json(self, stage: str, adapted: Verdict | None) -> dict[str, Any]:
        found = self.verdicts[stage]
        processes = [
            {
                "model": need.model,
                "is_server": bool(need.share),
                "share_of_card": need.share,
                "cards": self._cards(need, found),
                "gib": need.total / GIB,
                "parts_gib": _in(GIB, need.parts),
            }
            for need in (found.needs if found else ())
        ]
        return {
            "stage": stage,
            "runs_elsewhere": found is None,
            "fits": found is None or found.fits,
            "fits_with_settings": adapted is None or adapted.fits,
            "remedy": found.remedy if found else "",
            "processes": processes,
        }


def _servers(found: Verdict | None) -> list[Need]:
    return [need for need in found.needs if need.share] if found else []


def _in(unit: float, sizes: Mapping[str, float]) -> dict[str, float]:
    return {name: size / unit for name, size in sizes.items()}


def plan_of(root: Path, name: str = "", count: int = 1, memory: float = 0.0, card: str = "") -> Plan:
    """The plan of profile ``name``, or else of params.yaml.

    The machine has ``count`` GPUs, called ``card`` or of ``memory`` GiB. Without both, the head of the profile's file
    names the machine or, without a profile, it is this one. Raises ``DataError`` if the profile, one of its servers or
    the machine is not valid.
    """
    params = profiles.load(root, name) if name else load_params(root / PARAMS_FILE)
    if count > 1 and not (memory or card):
        raise UsageError("--gpus needs --card, the name of each GPU, or --memory, its GiB")
    asked = profiles.machine_of(root, name) if name and not (memory or card) else None
    if card:
        asked = cards.machine(card, count)
    if memory:
        asked = gpus(memory, count, card)
    found = Plan(params, asked) if asked else Plan(params, this_device(), root)
    _require_divisible(found)
    return found


def _require_divisible(plan: Plan) -> None:
    """Raise ``DataError`` if vLLM cannot divide a model as set, which a stage would notice only when it starts."""
    label, search, score = plan.params.label, plan.params.search, plan.params.score
    servers = (
        ("label", label.engine == "vllm", "label.vllm", "judge", label.vllm),
        ("sample", search.engine == "vllm", "search.vllm", "policy", search.vllm),
        ("processbench", score.engine == "vllm" and not score.base_url, "score.vllm", "base", score.vllm),
    )
    for stage, is_served, key, model, settings in servers:
        count = settings.tensor_parallel
        if is_served and stage in plan.stages and not (shape := plan.shape_of(model)).divides(count):
            most = ", ".join(str(other) for other in range(1, 17) if shape.divides(other))
            raise DataError(
                f"{key}.tensor_parallel {count}: vLLM cannot divide the attention heads of {shape.name} over "
                f"{count} GPUs; use one of {most}"
            )


def plans(root: Path) -> dict[str, Plan]:
    """The plan of each GPU profile on its own machine, by name."""
    return {name: plan_of(root, name) for name in profiles.names(root) if profiles.machine_for(root, name)}
