"""Check that a stage fits into the memory of a device, or find the nearest settings that do.

``pathfinder plan --gpu`` asks for a whole profile, and every stage checks itself before it loads anything.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial, reduce
from itertools import product
from pathlib import Path
from typing import Any

from ground.io import DataError
from pathfinder.core.params import Params, Vllm
from pathfinder.models import launch
from pathfinder.models.architectures import Shape
from pathfinder.models.cards import GIB, Device, this_device
from pathfinder.models.needs import Need, Shapes, longest_record, stage_needs
from pathfinder.models.shapes import fetched_shape, planned_shape

_LEAST_BUDGET, _LEAST_PASS = 1024, 8192


@dataclass(frozen=True, slots=True)
class Verdict:
    """The needs of a stage on a device. If it does not fit, ``remedy`` names the nearest settings that do.

    ``changes`` has these settings by key of params.yaml; empty if there are none.
    """

    needs: list[Need]
    fits: bool
    remedy: str = ""
    changes: Mapping[str, Any] = field(default_factory=dict)


def verdict(stage: str, params: Params, device: Device, shape_of: Shapes | None = None) -> Verdict | None:
    """The verdict on whether ``stage`` fits on ``device``; None if its models run elsewhere.

    The default ``shape_of`` takes the models of the source catalogue, whether fetched or not.
    """
    shape_of = cache(shape_of or partial(planned_shape, sources=params.download.sources))
    gpus = device.cards if device.kind == "cuda" else None
    needs = stage_needs(stage, params, device.kind, shape_of, gpus)
    if not needs:
        return None
    if _fit(needs, device, params):
        return Verdict(needs, True)
    for changes in _smaller(stage, params, device, shape_of):
        changes = {key: value for key, value in changes.items() if value != value_of(params, key)}
        changed = with_changes(params, changes)
        less = stage_needs(stage, changed, device.kind, shape_of, gpus)
        if _fit(less, device, changed):
            settings = ", ".join(f"{key}: {shown(value)}" for key, value in changes.items())
            largest = max(need.total for need in less)
            return Verdict(needs, False, f"{settings} needs {largest / GIB:.1f} GiB", changes)
    elsewhere = ", or another's server (label.engine: openai)" if stage == "label" else ""
    return Verdict(needs, False, f"no setting of this stage fits; use a smaller model or a larger device{elsewhere}")


def value_of(params: Params, key: str) -> Any:
    """The value of a key such as ``train.lora.rank``."""
    return reduce(getattr, key.split("."), params)


def with_changes(params: Params, changes: Mapping[str, Any]) -> Params:
    """A copy of the parameters in which some keys, such as ``train.lora.rank``, have the values of ``changes``."""
    for key, value in changes.items():
        params = _changed(params, key, value)
    return params


def shown(value: Any) -> str:
    """A value as params.yaml writes it."""
    return '""' if value == "" else f"[{', '.join(value)}]" if isinstance(value, list) else str(value).lower()


def _fit(needs: Sequence[Need], device: Device, params: Params) -> bool:
    """Return whether there are enough cards, each server fits into its share, and the rest fits next to the servers."""
    own = max((need.total for need in needs if not need.share), default=0.0)
    if device.kind == "cpu":
        return own <= device.memory
    taken = max(need.share for need in needs) * device.total
    servers = all(need.total <= need.share * device.total <= device.memory for need in needs if need.share)
    shared, counts = params.search.shared_card, [need.cards for need in needs]
    left = device.memory - (taken if shared else 0.0)
    return (max(counts) if shared else sum(counts)) <= device.cards and servers and own <= left


def _changed(section: Any, key: str, value: Any) -> Any:
    first, _, rest = key.partition(".")
    return section.model_copy(update={first: _changed(getattr(section, first), rest, value) if rest else value})


_Changes = dict[str, Any]


def _smaller(stage: str, params: Params, device: Device, shape_of: Shapes) -> Iterator[_Changes]:
    """Settings that need less memory or fewer cards, the smallest changes first."""
    if stage == "train":
        yield from _smaller_training(params, device)
    elif stage == "label" and params.label.engine == "vllm":
        yield from _smaller_server("label.vllm", params.label.vllm, device, shape_of("judge"))
    elif stage == "label":
        yield from _halved("label.batch_size", params.label.batch_size, 1)
    elif stage in ("sample", "control"):
        if params.search.engine == "vllm":
            yield from _smaller_server("search.vllm", params.search.vllm, device, shape_of("policy"))
        yield from _halved("search.batch_size", params.search.batch_size, 1)
    else:
        yield from _smaller_scoring(stage, params, device)


def _smaller_scoring(stage: str, params: Params, device: Device) -> Iterator[_Changes]:
    """A policy server on half of the cards, or on all of them, shared with the PRM; each with smaller batches."""
    servers: list[_Changes] = [{}]
    if "search" in stage and params.search.engine == "vllm":
        alone: _Changes = {"search.vllm.tensor_parallel": 1} | (
            {"score.processes": 0} if params.score.processes else {}
        )
        if device.cards > 1:
            servers.append({"search.vllm.replicas": device.cards // 2, **alone})
        shared: _Changes = {"search.vllm.replicas": device.cards, **alone, "search.shared_card": True}
        servers += [shared | {"search.vllm.gpu_memory_utilization": share} for share in (0.8, 0.7, 0.6, 0.5, 0.4)]
    budgets = [{}, *_halved("score.token_budget", params.score.token_budget, _LEAST_BUDGET)]
    batches = [{}, *(_halved("search.batch_size", params.search.batch_size, 1) if "search" in stage else ())]
    for half in ({}, {"score.dtype": "bfloat16"}):
        for smaller in sorted(product(range(len(budgets)), range(len(batches))), key=sum):
            for server in servers:
                yield server | half | budgets[smaller[0]] | batches[smaller[1]]


def _smaller_training(params: Params, device: Device) -> Iterator[_Changes]:
    """Checkpointing, all cards, an adapter, an adapter over a bfloat16 base; each with smaller passes.

    A record longer than the budget has a separate pass, so no budget below the longest record saves anything.
    """
    train, least = params.train, max(_LEAST_BUDGET, longest_record(params))
    base: _Changes = {} if train.gradient_checkpointing else {"train.gradient_checkpointing": True}
    if device.kind == "cuda" and train.launch:
        started = launch.configuration(train.launch).local_processes(device.cards)
        base |= {"train.launch": "machine" if device.cards > 1 else ""} if started > device.cards else {}
    ways: list[_Changes] = [{}]
    if device.kind == "cuda" and device.cards > 1 and not train.launch:
        ways.append({"train.launch": "machine"})
    if not train.lora.rank:
        ways.append({"train.lora.rank": 16})
    if train.lora.base_dtype == "float32" and device.kind == "cuda":
        ways.append({**({} if train.lora.rank else {"train.lora.rank": 16}), "train.lora.base_dtype": "bfloat16"})
    for more in ways:
        for fewer in ({}, *_halved("train.token_budget", train.token_budget, least), {"train.token_budget": least}):
            if fewer.get("train.token_budget", 0) < train.token_budget:
                yield base | more | fewer


def _smaller_server(key: str, settings: Vllm, device: Device, shape: Shape) -> Iterator[_Changes]:
    """Different divisions of the model over all cards of the device, then smaller passes, then 8-bit weights as well.

    Divisions into fewer parts than now come first, because they leave no card idle.
    """
    divisions = [cards for cards in range(1, device.cards + 1) if shape.divides(cards)]
    divisions.sort(key=lambda cards: (cards > settings.tensor_parallel, abs(cards - settings.tensor_parallel)))
    passes = {f"{key}.max_num_batched_tokens": min(_LEAST_PASS, settings.max_num_batched_tokens)}
    quantised = {f"{key}.options": [*settings.options, "--quantization", "fp8_per_tensor"]}
    for less in ({}, passes, passes | quantised):
        for cards in divisions:
            yield {f"{key}.tensor_parallel": cards, f"{key}.replicas": device.cards // cards} | less


def _halved(key: str, value: int, least: int) -> Iterator[_Changes]:
    while value // 2 >= least:
        value //= 2
        yield {key: value}


def require(stage: str, params: Params, folders: Mapping[str, Path]) -> None:
    """Raise ``DataError`` with the nearest settings that fit if ``stage`` cannot fit into the free memory.

    ``folders`` are the models that the stage is about to load, by the names of ``Shapes``. A stage that leases its
    cards calls this while it holds them, so the current use by other stages does not count.
    """
    device = this_device()
    found = verdict(stage, params, device, lambda name: fetched_shape(folders[name]))
    if found is not None and not found.fits:
        place = "this machine" if device.kind == "cpu" else "a GPU here" if device.cards > 1 else "this GPU"
        needed = "; ".join(
            f"{need.model} {need.total / GIB:.1f} GiB"
            + (f" on each of {need.cards} GPUs" if need.cards > 1 else "")
            + f" ({describe(need.parts)})"
            for need in found.needs
        )
        raise DataError(
            f"{stage} does not fit: {needed}; {place} has {device.memory / GIB:.1f} of {device.total / GIB:.1f} GiB "
            f"free. Nearest: {found.remedy}"
        )


def describe(parts: Mapping[str, float], unit: float = GIB) -> str:
    """The parts of a need in GiB, largest first, without parts below one percent."""
    least = sum(parts.values()) / 100
    ordered = sorted(parts.items(), key=lambda part: -part[1])
    return ", ".join(f"{name} {size / unit:.1f}" for name, size in ordered if size > least)
