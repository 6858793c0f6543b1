"""Whether a stage fits into the memory of a device, and the nearest settings that do.

``pathfinder plan --gpu`` asks for a whole profile, and every stage asks for itself before it loads anything.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from pathfinder.core.io import DataError
from pathfinder.core.params import Params
from pathfinder.models.devices import GIB, Device, this_device
from pathfinder.models.needs import Need, Shapes, longest_record, stage_needs
from pathfinder.models.shapes import Shape, fetched_shape, planned_shape

_LEAST_BUDGET = 1024


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a stage needs on a device. If it does not fit, ``remedy`` names the nearest settings that do."""

    needs: list[Need]
    fits: bool
    remedy: str = ""


def verdict(stage: str, params: Params, device: Device, shape_of: Shapes | None = None) -> Verdict | None:
    """Whether ``stage`` fits on ``device``, and the nearest settings that do; None if its models run elsewhere.

    The default ``shape_of`` takes the models of the source catalogue, fetched or not.
    """
    shape_of = shape_of or partial(planned_shape, sources=params.download.sources)
    gpus = device.cards if device.kind == "cuda" else None
    needs = stage_needs(stage, params, device.kind, shape_of, gpus)
    if not needs:
        return None
    if _fit(needs, device, params):
        return Verdict(needs, True)
    for changes in _smaller(stage, params, device, shape_of):
        changed = params
        for key, value in changes.items():
            changed = _changed(changed, key, value)
        less = stage_needs(stage, changed, device.kind, shape_of, gpus)
        if _fit(less, device, changed):
            settings = ", ".join(f"{key}: {_shown(value)}" for key, value in changes.items())
            return Verdict(needs, False, f"{settings} needs {_largest(less) / GIB:.1f} GiB")
    return Verdict(needs, False, "no setting of this stage fits; use a smaller model or a larger device")


def _shown(value: Any) -> str:
    """A value as params.yaml has it."""
    return '""' if value == "" else f"[{', '.join(value)}]" if isinstance(value, list) else str(value).lower()


def cards_of(needs: Sequence[Need], params: Params) -> int:
    """The cards that a stage takes: of its server and its own processes, unless they share cards."""
    counts = [need.cards for need in needs]
    return max(counts) if params.search.shared_card else sum(counts)


def _fit(needs: Sequence[Need], device: Device, params: Params) -> bool:
    """Whether there are enough cards, each server fits into its share, and the rest into what is left."""
    own = max((need.total for need in needs if not need.share), default=0.0)
    if device.kind == "cpu":
        return own <= device.memory
    taken = max(need.share for need in needs) * device.total
    servers = all(need.total <= need.share * device.total <= device.memory for need in needs if need.share)
    left = device.memory - (taken if params.search.shared_card else 0.0)
    return cards_of(needs, params) <= device.cards and servers and own <= left


def _largest(needs: Sequence[Need]) -> float:
    return max(need.total for need in needs)


def _changed(section: Any, key: str, value: Any) -> Any:
    first, _, rest = key.partition(".")
    return section.model_copy(update={first: _changed(getattr(section, first), rest, value) if rest else value})


_Changes = dict[str, Any]


def _smaller(stage: str, params: Params, device: Device, shape_of: Shapes) -> Iterator[_Changes]:
    """Settings that need less memory or fewer cards, the smallest changes first."""
    if stage == "train":
        yield from _smaller_training(params, device)
    elif stage == "label" and params.label.engine == "vllm":
        yield from _smaller_server("label.vllm", params.label.vllm.options, device, shape_of("judge"))
    elif stage == "label":
        yield from _halved({}, "label.batch_size", params.label.batch_size, 1)
    elif stage in ("sample", "control"):
        if params.search.engine == "vllm":
            yield from _smaller_server("search.vllm", params.search.vllm.options, device, shape_of("policy"))
        yield from _halved({}, "search.batch_size", params.search.batch_size, 1)
    else:
        servers: list[_Changes] = [{}]
        if "search" in stage and params.search.engine == "vllm":
            one: _Changes = {"search.vllm.replicas": 1, "search.vllm.tensor_parallel": 1, "score.processes": 1}
            servers += [one] if device.cards > 1 else []
            shared = {**one, "search.shared_card": True}
            servers += [shared | {"search.vllm.gpu_memory_utilization": share} for share in (0.8, 0.7, 0.6, 0.5, 0.4)]
        for half in ({}, {"score.dtype": "bfloat16"}):
            for server in servers:
                for changes in _halved(server | half, "score.token_budget", params.score.token_budget, _LEAST_BUDGET):
                    yield changes
                    if "search" in stage:
                        yield from _halved(changes, "search.batch_size", params.search.batch_size, 1)


def _smaller_training(params: Params, device: Device) -> Iterator[_Changes]:
    """Checkpointing, all cards of the device, an adapter, one over a bfloat16 base; each with smaller passes.

    A record longer than the budget has a pass of its own, so no budget below the longest record saves anything.
    """
    train, least = params.train, max(_LEAST_BUDGET, longest_record(params))
    base: _Changes = {} if train.gradient_checkpointing else {"train.gradient_checkpointing": True}
    ways: list[_Changes] = [{}]
    if device.kind == "cuda" and device.cards > 1 and not train.launch:
        ways.append({"train.launch": "machine"})
    if not train.lora.rank:
        ways.append({"train.lora.rank": 16})
    if train.lora.base_dtype == "float32" and device.kind == "cuda":
        ways.append({**({} if train.lora.rank else {"train.lora.rank": 16}), "train.lora.base_dtype": "bfloat16"})
    for more in ways:
        yield from _halved(base | more, "train.token_budget", train.token_budget, least)
        if train.token_budget > least:
            yield base | more | {"train.token_budget": least}


def _smaller_server(key: str, options: Sequence[str], device: Device, shape: Shape) -> Iterator[_Changes]:
    """Other divisions of the model over the cards of the device, then the same with 8-bit weights."""
    divisions = [cards for cards in range(1, device.cards + 1) if shape.divides(cards)]
    for quantised in ({}, {f"{key}.options": [*options, "--quantization", "fp8_per_tensor"]}):
        for cards in divisions:
            yield {f"{key}.tensor_parallel": cards, f"{key}.replicas": 1} | quantised


def _halved(changes: _Changes, key: str, value: int, least: int) -> Iterator[_Changes]:
    if changes:
        yield changes
    while value // 2 >= least:
        value //= 2
        yield changes | {key: value}


def require(stage: str, params: Params, folders: Mapping[str, Path]) -> None:
    """Raise ``DataError`` with the nearest settings that fit if ``stage`` cannot fit into the free memory.

    ``folders`` are the models that the stage is about to load, by the names of ``Shapes``. A stage that leases its
    cards calls this while it holds them, so that what other stages use at the moment does not count.
    """
    device = this_device()
    found = verdict(stage, params, device, lambda name: fetched_shape(folders[name]))
    if found is not None and not found.fits:
        place = "this machine" if device.kind == "cpu" else "a GPU here" if device.cards > 1 else "this GPU"
        needed = "; ".join(
            f"{need.model} {need.total / GIB:.1f} GiB"
            + (f" on each of {need.cards} GPUs" if need.cards > 1 else "")
            + f" ({describe(need)})"
            for need in found.needs
        )
        raise DataError(
            f"{stage} does not fit: {needed}; {place} has {device.memory / GIB:.1f} of {device.total / GIB:.1f} GiB "
            f"free. Nearest: {found.remedy}"
        )


def describe(need: Need) -> str:
    """The parts of a need in GiB, largest first, without parts below one percent."""
    parts = sorted(need.parts.items(), key=lambda part: -part[1])
    return ", ".join(f"{name} {size / GIB:.1f}" for name, size in parts if size > need.total / 100)
