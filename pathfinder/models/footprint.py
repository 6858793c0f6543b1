"""The memory that a profile's stages need, from the shapes of the models and the parameters, before anything is loaded.

Counted are the weights, gradients, optimiser, activations, cache and logits of one process on one device, as the stages
hold them: float32 master weights under bfloat16 autocast in training, activations of one layer under gradient
checkpointing, and logits only at label positions. docs/training.md compares estimates with measured peaks.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from pathfinder.core.io import DataError
from pathfinder.core.params import Label, Params, Score, Train
from pathfinder.models import launch
from pathfinder.models.shapes import Shape, fetched_shape, planned_shape

GIB = 2**30
_BYTES = {"float32": 4, "bfloat16": 2}
_PROCESS = {"cpu": 0.55 * GIB, "cuda": 1.0 * GIB}
"""Python with its libraries, or the context and kernels on a GPU."""
_SLACK = 1.1  # memory of activations that allocators reserve without using it
_TOKENS_PER_LABEL = 12
"""Tokens of a packed tree for each label: the lowest of any long batch in the data of the profiles."""
_SPREAD = {"cpu": 4.0, "cuda": 1.0}
"""Keys that attention copies per token: the CPU copies the part of the trunk that each bin of branches sees."""
_PROMPT = 256
"""Tokens of a policy's prompt: a problem and the request for a solution."""
_OPEN, _TRUNK = 64, 1024
"""Solutions whose trunks are cached when scoring stops early (``scoring.OPEN``), and the tokens of one trunk."""
_ROWS = 512
"""The largest number of texts sampled in one batch (``generate``)."""
_LEAST_BUDGET = 1024


@dataclass(frozen=True, slots=True)
class Need:
    """Bytes that one process of a stage needs on its device, by purpose."""

    stage: str
    model: str
    parts: dict[str, float]

    @property
    def total(self) -> float:
        """The sum of all parts."""
        return sum(self.parts.values())


@dataclass(frozen=True, slots=True)
class Device:
    """The device of the stages: ``kind`` "cpu" or "cuda", and its memory in bytes."""

    kind: str
    memory: float


@dataclass(frozen=True, slots=True)
class Verdict:
    """A stage's need on a device. If it does not fit, ``remedy`` names the nearest settings that do."""

    need: Need
    fits: bool
    remedy: str = ""


def train_need(shape: Shape, settings: Train, kind: str) -> Need:
    """One process of the train stage."""
    processes, shards = launch.division(settings.launch)
    learned = shape.adapter(settings.lora) if settings.lora.rank else shape.parameters
    whole = shape.parameters + (learned if settings.lora.rank else 0)
    half = settings.dtype == "bfloat16"
    copies = 0.0
    if shards > 1:  # two layers and the larger end of the model are gathered at a time
        copies = _BYTES[settings.dtype] * (2 * shape.layer + shape.vocabulary * shape.hidden)
    elif half:  # autocast keeps a copy of every matrix until the pass ends
        copies = 2.0 * shape.layers * shape.matrix_parameters + 2.0 * shape.vocabulary * shape.hidden
    if processes > 1 and shards == 1:
        copies += 4.0 * learned  # the buckets in which replicas exchange gradients
    tokens, layer = settings.token_budget, _layer_activations(shape, half, kind)
    if settings.gradient_checkpointing:
        activations = tokens * 4.0 * shape.hidden * shape.layers
        # the forward pass makes the copies, the backward pass holds one layer's activations and their gradients
        copies, activations = 0.0, activations + max(copies, 2.0 * tokens * layer)
    else:
        activations = tokens * layer * (shape.layers + 0.5)
    return Need(
        "train",
        shape.name,
        {
            "process": _PROCESS[kind],
            "weights": 4.0 * whole / shards + copies,
            "gradients": 4.0 * learned / shards,
            "optimiser": 8.0 * learned / shards,
            "activations": _SLACK * activations,
            "logits": tokens / _TOKENS_PER_LABEL * shape.vocabulary * (16.0 if half else 12.0),
        },
    )


def _layer_activations(shape: Shape, half: bool, kind: str) -> float:
    """Bytes that one layer stores per token for its backward pass."""
    item = 2 if half else 4
    residual = 4 * 6 * shape.hidden + (2 * 2 * shape.hidden if half else 0)  # norms in float32, and their cast copies
    attention = item * (2 * shape.query_width * (1 + _SPREAD[kind]) + 2 * shape.key_width)
    return residual + attention + item * 4 * shape.inner


def score_need(stage: str, shape: Shape, settings: Score, kind: str, cached: int = 0) -> Need:
    """A stage that scores; ``cached`` tokens of trunks persist between rounds of a search or waves of scoring."""
    item = _BYTES[settings.dtype]
    tokens = settings.token_budget
    running = item * (4 * shape.hidden + 2 * shape.inner + 2 * shape.query_width * (1 + _SPREAD[kind]))
    return Need(
        stage,
        f"PRM as {shape.name}",
        {
            "process": _PROCESS[kind],
            "weights": item * shape.parameters,
            "activations": _SLACK * tokens * running,
            "cache": item * shape.keys_and_values * (2 * tokens + cached),  # computed, and copied into the next batch
            "logits": tokens / _TOKENS_PER_LABEL * shape.vocabulary * (item + 4),
        },
    )


def generate_need(stage: str, shape: Shape, rows: int, prompt: int, more: int, kind: str) -> Need:
    """A model that samples in process in float32: ``rows`` prompts of ``prompt`` tokens and ``more`` new ones each."""
    rows = min(rows, _ROWS)
    return Need(
        stage,
        shape.name,
        {
            "process": _PROCESS[kind],
            "weights": 4.0 * shape.parameters,
            "activations": _SLACK * rows * prompt * 4.0 * (4 * shape.hidden + 2 * shape.inner),
            "cache": rows * (prompt + more) * 4.0 * shape.keys_and_values * (1 + 1 / shape.layers),
            "logits": rows * shape.vocabulary * 12.0,
        },
    )


def served_need(shape: Shape, settings: Label) -> Need:
    """One GPU of a vLLM server that the label stage starts: its share of the weights, and the cache of one answer."""
    cards = settings.vllm.tensor_parallel
    item = _BYTES[settings.vllm.dtype]
    cache = item * shape.keys_and_values * settings.max_model_len / cards
    parts = {"process": _PROCESS["cuda"], "weights": item * shape.parameters / cards, "cache": cache}
    return Need("label", shape.name, parts)


Shapes = Callable[[str], Shape]
"""Gives the shapes of the models "judge", "policy" and "base" (a trained PRM has the size of the base)."""
STAGES = ("label", "train", "sample", "processbench", "prmbench", "search")
"""The stages that may load a model."""


def stage_need(stage: str, params: Params, kind: str, shape_of: Shapes) -> Need | None:
    """The need of ``stage`` with its present settings; None if a server outside the stage runs its model."""
    search, score, label = params.search, params.score, params.label
    if stage == "train":
        return train_need(shape_of("base"), params.train, kind)
    if stage == "label":
        if label.engine == "openai":
            return None
        if label.engine == "vllm":
            return served_need(shape_of("judge"), label)
        room = label.max_model_len - label.max_tokens
        return generate_need("label", shape_of("judge"), label.batch_size, room, label.max_tokens, kind)
    needs = []
    if stage in ("sample", "search") and search.engine == "transformers":
        rows = search.batch_size * search.n
        needs.append(generate_need(stage, shape_of("policy"), rows, _PROMPT, search.solution_tokens, kind))
    if stage != "sample" and score.engine == "local":
        cached = search.batch_size * (_PROMPT + search.solution_tokens) if stage == "search" else 0
        cached += _OPEN * _TRUNK if stage == "processbench" and params.processbench.early_stop else 0
        needs.append(score_need(stage, shape_of("base"), score, kind, cached))
    if not needs:
        return None
    parts = {part: sum(need.parts.get(part, 0.0) for need in needs) for part in needs[-1].parts}
    return Need(stage, " and ".join(need.model for need in needs), parts | {"process": _PROCESS[kind]})


def verdict(stage: str, params: Params, device: Device, shape_of: Shapes | None = None) -> Verdict | None:
    """Whether ``stage`` fits on ``device``, and the nearest settings that do; None if it loads no model.

    The default ``shape_of`` takes the models of the source catalogue, fetched or not.
    """
    shape_of = shape_of or partial(planned_shape, sources=params.download.sources)
    need = stage_need(stage, params, device.kind, shape_of)
    if need is None:
        return None
    if need.total <= device.memory:
        return Verdict(need, True)
    for changes in _smaller(stage, params, device.kind):
        changed = params
        for key, value in changes.items():
            changed = _changed(changed, key, value)
        less = stage_need(stage, changed, device.kind, shape_of)
        if less is not None and less.total <= device.memory:
            settings = ", ".join(f"{key}: {str(value).lower()}" for key, value in changes.items())
            return Verdict(need, False, f"{settings} needs {less.total / GIB:.1f} GiB")
    return Verdict(need, False, "no setting of this stage fits; use a smaller model or a larger device")


def _changed(section: Any, key: str, value: Any) -> Any:
    first, _, rest = key.partition(".")
    return section.model_copy(update={first: _changed(getattr(section, first), rest, value) if rest else value})


_Changes = dict[str, Any]


def _smaller(stage: str, params: Params, kind: str) -> Iterator[_Changes]:
    """Settings that need less memory, the smallest changes first."""
    if stage == "train":
        train = params.train
        base: _Changes = {} if train.gradient_checkpointing else {"train.gradient_checkpointing": True}
        launched: list[_Changes] = [{"train.launch": "machine"}] if kind == "cuda" and not train.launch else []
        adapted: list[_Changes] = [] if train.lora.rank else [{"train.lora.rank": 16}]
        for more in ({}, *launched, *adapted):
            yield from _halved(base | more, "train.token_budget", train.token_budget, _LEAST_BUDGET)
    elif stage == "label" and params.label.engine == "vllm":
        cards = params.label.vllm.tensor_parallel
        yield from ({"label.vllm.tensor_parallel": more} for more in (2, 4, 8) if more > cards)
    elif stage == "label":
        yield from _halved({}, "label.batch_size", params.label.batch_size, 1)
    elif stage == "sample":
        yield from _halved({}, "search.batch_size", params.search.batch_size, 1)
    else:
        for half in ({}, {"score.dtype": "bfloat16"}):
            for changes in _halved(half, "score.token_budget", params.score.token_budget, _LEAST_BUDGET):
                yield changes
                if stage == "search":
                    yield from _halved(changes, "search.batch_size", params.search.batch_size, 1)


def _halved(changes: _Changes, key: str, value: int, least: int) -> Iterator[_Changes]:
    if changes:
        yield changes
    while value // 2 >= least:
        value //= 2
        yield changes | {key: value}


def this_device() -> Device:
    """The GPU of this process, or the memory available to processes on this machine or in its container."""
    import torch  # takes seconds; a plan for a given size does not need it

    if torch.cuda.is_available():
        return Device("cuda", float(torch.cuda.mem_get_info()[1]))
    memory = float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    bound = Path("/sys/fs/cgroup/memory.max")
    if bound.is_file() and (text := bound.read_text().strip()).isdigit():
        memory = min(memory, float(text))
    return Device("cpu", memory)


def require(stage: str, params: Params, folders: Mapping[str, Path]) -> None:
    """Raise ``DataError`` with the nearest settings that fit if ``stage`` cannot fit on this device.

    ``folders`` are the models that the stage is about to load, by the names of ``Shapes``.
    """
    device = this_device()
    found = verdict(stage, params, device, lambda name: fetched_shape(folders[name]))
    if found is not None and not found.fits:
        raise DataError(
            f"{stage} ({found.need.model}) needs about {found.need.total / GIB:.1f} GiB, this "
            f"{'GPU' if device.kind == 'cuda' else 'machine'} has {device.memory / GIB:.1f} GiB "
            f"({describe(found.need)}). Nearest: {found.remedy}"
        )


def describe(need: Need) -> str:
    """The parts of a need in GiB, largest first, without parts below one percent."""
    parts = sorted(need.parts.items(), key=lambda part: -part[1])
    return ", ".join(f"{name} {size / GIB:.1f}" for name, size in parts if size > need.total / 100)
