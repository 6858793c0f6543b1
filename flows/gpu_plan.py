"""The needs of a profile on a machine with GPUs: memory, main memory, disk, hours, tokens and cost, stage by stage."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from flows import estimates, profiles
from flows.estimates import Estimate, card_of, is_estimated
from flows.machines import disks, servers
from flows.machines.disks import Room
from pathfinder.core.io import DataError
from pathfinder.core.params import PARAMS_FILE, Params, Source, load_params
from pathfinder.core.settings import check_settings, parse_yaml
from pathfinder.models import launch
from pathfinder.models.devices import GIB, Device, gpus, main_memory, this_device
from pathfinder.models.footprint import Verdict, describe, verdict
from pathfinder.models.needs import STAGES, Need
from pathfinder.models.shapes import Shape, planned_shape

HOURS = ("stage", "hours", "judge's tokens", "cost", "basis")
OVERVIEW = ("profile", "machine", "fits", "hours", "judge's tokens", "main memory, GiB", "disk, GB")
_MACHINE = re.compile(r"(\d+) x (\d+) GB")
_DATA_GIB = 1.35
"""Main memory of the stages between raw files and training set, for a million completions (docs/scale.md)."""
_PROCESS_GIB = 2.0
"""Main memory of one training process without weights: Python, torch and the driver's part; assumed."""
_SERVER_GIB = 4.0
"""Main memory of one vLLM process; assumed."""
_SOURCES_GB = 10.0
"""Disk of sources, labels, trees, predictions and reports; rounded up."""
_COPIES = 3
"""Of a trained model on disk: the workspace, DVC's cache and a remote in a local folder."""
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
        """Whether each stage fits. A server needs a GPU, which ``verdict`` does not ask of a CPU."""
        found = {stage: verdict(stage, self.params, self.device, self.shape_of) for stage in self.stages}
        if self.device.kind == "cuda":
            return found
        return {stage: _without_gpu(each) if _servers(each) else each for stage, each in found.items()}

    @cached_property
    def gpus_needed(self) -> Device | None:
        """The GPUs that the head of the profile's file names, or else those of its servers; None without either.

        Only a plan on the machine of the project knows the file.
        """
        root, profile = self.root, self.params.profile
        if root and profile in profiles.names(root) and (named := _named_gpus(root, profile)):
            return named
        needs = [need for each in self.verdicts.values() for need in _servers(each)]
        if not needs:
            return None
        return gpus(max(need.total / need.share for need in needs) / GIB, max(need.cards for need in needs))

    @property
    def fits(self) -> bool:
        """Whether every stage fits on the device."""
        return all(each is None or each.fits for each in self.verdicts.values())

    @property
    def has_room(self) -> bool:
        """Whether main memory and disk suffice as well, as far as they are known."""
        if self.root is None or not is_estimated(self.params):
            return True
        return max(self.main_memory().values()) <= main_memory()[0] and all(room.suffices for room in self.rooms)

    @cached_property
    def estimates(self) -> list[Estimate]:
        """Hours and tokens; empty for generated worlds."""
        if not self.is_estimated:
            return []
        return estimates.estimates(self.params, self.device, self.shape_of, self.stages)

    @property
    def is_estimated(self) -> bool:
        """Whether the constants of the estimates hold for this profile and device."""
        return is_estimated(self.params) and self.device.kind == "cuda" and self.fits

    def memory_rows(self) -> Iterator[tuple[str, ...]]:
        """Stage, cards, GiB per card, its parts, whether it fits, model."""
        for stage, each in self.verdicts.items():
            if each is None:
                yield stage, "0", "0.0", "", "its model runs elsewhere", ""
                continue
            fits = "fits" if each.fits else f"does not fit; {each.remedy}"
            for need in each.needs:
                server = " server, ended by the stage" if need.share else ""
                kept = f"{need.share:.0%} of each card; needs " if need.share else ""
                model = need.model + server
                yield stage, str(self._cards(need, each)), f"{need.total / GIB:.1f}", kept + describe(need), fits, model
                stage, fits = "", ""

    def _cards(self, need: Need, found: Verdict) -> int:
        """The cards that the processes of ``need`` take; scoring takes all that are left if score.processes is 0."""
        if self.device.kind == "cpu":
            return 0
        if need.share or need.stage in ("train", "label", "sample", "control") or self.params.score.processes:
            return need.cards
        servers = sum(other.cards for other in found.needs if other.share)
        return self.device.cards - (0 if self.params.search.shared_card else servers)

    def hour_rows(self) -> Iterator[tuple[str, ...]]:
        """Stage, hours, tokens of paid calls in millions, cost, basis; then the sum."""
        for each in self.estimates:
            hours = "by its server" if each.hours is None else f"{each.hours:.1f}"
            yield each.stage, hours, _millions(each.tokens), _cost(each), each.basis
        yield "all", f"{self.hours:.0f}", _millions(self.tokens), "", ""

    @property
    def hours(self) -> float:
        """The hours of all stages that do not depend on a foreign server."""
        return sum(each.hours or 0.0 for each in self.estimates)

    @property
    def tokens(self) -> float:
        """Of paid calls or of the judge."""
        return sum(each.tokens for each in self.estimates)

    def main_memory(self) -> dict[str, float]:
        """Bytes of main memory by stage, on one machine."""
        found = {"prepare to build": _DATA_GIB * GIB}
        for stage in self.stages:
            each = self.verdicts[stage]
            servers = sum(need.cards for need in _servers(each))
            if servers:
                found[f"{stage} (server)"] = servers * _SERVER_GIB * GIB
        if "train" in self.stages:
            train, shape = self.params.train, self.shape_of("base")
            machines = int(launch.configuration(train.launch)["num_machines"]) if train.launch else 1
            all_processes, shards = launch.division(train.launch, self.device.cards)
            processes = all_processes / machines
            copied = 12.0 * self._learned / machines  # of a checkpoint, while it is written
            if shards > 1 and not train.lora.rank:  # rows go to the GPUs as they are read, the result to one process
                whole = 4.0 * shape.parameters
            else:
                half = train.lora.rank and train.lora.base_dtype == "bfloat16"
                whole = processes * (2.0 if half else 4.0) * shape.parameters
            found["train"] = processes * _PROCESS_GIB * GIB + copied + whole
        return found

    def disk(self) -> dict[str, float]:
        """Bytes on disk by purpose, of a run from nothing."""
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
        """The disks of the project and of the Hub's cache, with the bytes that are not yet there.

        Empty for generated worlds and for other machines. Only models in the Hub's cache count as there.
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

    def lines(self) -> Iterator[str]:
        """Main memory, disk and the basis of the hours as sentences; empty for generated worlds."""
        if not is_estimated(self.params):
            return
        memory = self.main_memory()
        largest = max(memory, key=memory.__getitem__)
        words = f"main memory: {memory[largest] / GIB:.0f} GiB ({largest})"
        if self.root is None:
            yield words
            yield f"disk: {_gigabytes(self.disk())}"
        else:
            free = main_memory()[0]
            yield f"{words}; free here: {free / GIB:.0f} GiB{_enough(memory[largest] <= free)}"
        for room in self.rooms:
            disk = f"disk of {room.folder}" if len(self.rooms) > 1 else "disk"
            yield f"{disk}: {_gigabytes(room.parts)}; free here: {room.free / _GB:.0f} GB{_enough(room.suffices)}"
        if self.is_estimated:
            card = card_of(self.device)
            yield (
                f"hours: not measured; {estimates.LEARN_SHARE:.0%} of {card.flops / 1e12:.0f} TFLOP/s in training, "
                f"{estimates.READ_SHARE:.0%} in scoring, {estimates.WRITE_SHARE:.0%} of "
                f"{card.bandwidth / 1e12:.2f} TB/s in generation ({card.name}); flows/estimates.py has every assumption"
            )

    def as_json(self) -> dict[str, Any]:
        """The plan with numbers instead of texts; docs/json.md lists the keys."""
        has_estimates = is_estimated(self.params)
        return {
            "profile": self.params.profile,
            "device": {
                "kind": self.device.kind,
                "cards": self.device.cards,
                "free_gib": self.device.memory / GIB,
                "total_gib": self.device.total / GIB,
            },
            "fits": self.fits,
            "has_room": self.has_room,
            "stages": [_stage_json(stage, each) for stage, each in self.verdicts.items()],
            "hours": [asdict(each) for each in self.estimates] if self.is_estimated else [],
            "main_memory_gib": _in(GIB, self.main_memory()) if has_estimates else {},
            "disk_gb": _in(_GB, self.disk()) if has_estimates else {},
        }


def _gigabytes(sizes: Mapping[str, float]) -> str:
    parts = ", ".join(f"{name} {size / _GB:.0f}" for name, size in sizes.items())
    return f"{sum(sizes.values()) / _GB:.0f} GB ({parts})"


def _enough(suffices: bool) -> str:
    return "" if suffices else ", which is too little"


def _servers(found: Verdict | None) -> list[Need]:
    return [need for need in found.needs if need.share] if found else []


def _without_gpu(found: Verdict | None) -> Verdict | None:
    return replace(found, fits=False, remedy="its server needs a GPU") if found else None


def _stage_json(stage: str, found: Verdict | None) -> dict[str, Any]:
    processes = [
        {
            "model": need.model,
            "is_server": bool(need.share),
            "cards": need.cards,
            "gib": need.total / GIB,
            "parts_gib": _in(GIB, need.parts),
        }
        for need in (found.needs if found else ())
    ]
    return {
        "stage": stage,
        "runs_elsewhere": found is None,
        "fits": found is None or found.fits,
        "remedy": found.remedy if found else "",
        "processes": processes,
    }


def _in(unit: float, sizes: Mapping[str, float]) -> dict[str, float]:
    return {name: size / unit for name, size in sizes.items()}


def _millions(tokens: float) -> str:
    return f"{tokens / 1e6:,.0f} M" if tokens else ""


def _cost(each: Estimate) -> str:
    if not each.tokens or each.hours is not None:
        return ""
    return f"{each.cost:,.0f}" if each.price else "no price set"


def load(root: Path, name: str) -> Params:
    """The parameters of a profile, without writing them; raises ``DataError`` if a value is not valid."""
    content = parse_yaml(profiles.render(root, name))
    return check_settings(Params, content, profiles.FOLDER / f"{name}.yaml", f"see {profiles.FOLDER}/paper.yaml")


def machine_of(root: Path, name: str) -> Device:
    """The GPUs that the head of a profile's file names; raises ``DataError`` if it names none."""
    found = _named_gpus(root, name)
    if found is None:
        raise DataError(f"{name}: its head names no GPUs; ask about a machine with --gpus and --memory")
    return found


def _named_gpus(root: Path, name: str) -> Device | None:
    found = _MACHINE.match(profiles.summary(root, name).machine)
    return gpus(float(found[2]), int(found[1])) if found else None


def memory_header(device: Device) -> tuple[str, ...]:
    """The titles of ``Plan.memory_rows``."""
    cards = f"{device.cards} GPUs" if device.cards > 1 else "one GPU" if device.kind == "cuda" else "the CPU"
    each = " each" if device.cards > 1 else ""
    free = f"{device.memory / GIB:.0f} of {device.total / GIB:.0f} GiB free{each}"
    return "stage", "GPUs", "GiB on each", "of which", f"on {cards} with {free}", "model"


def plan_of(root: Path, name: str, count: int, memory: float) -> Plan:
    """The plan of profile ``name``, or else of params.yaml, after ``servers.require``.

    The machine has ``count`` GPUs of ``memory`` GiB. Without a memory it is that of the profile's head or, without a
    name, this one. Raises ``DataError`` if the profile, one of its servers or the number of GPUs is not valid.
    """
    params = load(root, name) if name else load_params(root / PARAMS_FILE)
    if count > 1 and not memory:
        raise DataError("--gpus needs --memory, the GiB of each GPU")
    asked = gpus(memory, count) if memory else machine_of(root, name) if name else None
    found = Plan(params, asked) if asked else Plan(params, this_device(), root)
    servers.require(params, found.stages, found.shape_of)
    return found


def plans(root: Path) -> dict[str, Plan]:
    """The plan of each GPU profile on its own machine, by name."""
    return {name: plan_of(root, name, 1, 0.0) for name in profiles.names(root) if _named_gpus(root, name)}


def overview(root: Path) -> list[tuple[str, ...]]:
    """One row per plan of ``plans``: name, machine, fits, hours, judge's tokens, main memory, disk."""
    rows: list[tuple[str, ...]] = []
    for name, plan in plans(root).items():
        memory, disk = max(plan.main_memory().values()) / GIB, sum(plan.disk().values()) / _GB
        fits = "fits" if plan.fits else "does not fit"
        machine = profiles.summary(root, name).machine
        rows.append((name, machine, fits, f"{plan.hours:.0f}", _millions(plan.tokens), f"{memory:.0f}", f"{disk:.0f}"))
    return rows
