"""How much memory a profile's stages will need, from the models' shapes and the parameters, before anything is loaded.

Counted are weights, gradients, optimiser, activations, keys and values, and logits of one process on one device, as
the stages really hold them: float32 master weights under bfloat16 autocast in training, one layer's activations under
gradient checkpointing, logits at label positions only. docs/training.md has estimates beside measured peaks.
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
"""Python with its libraries; on a GPU its context and kernels."""
_SLACK = 1.1  # of activations, that allocators hold without using it
_TOKENS_A_LABEL = 12
"""Tokens of a packed tree for each label that is read: the fewest of a long batch seen in any of the profiles' data."""
_SPREAD = {"cpu": 4.0, "cuda": 1.0}
"""Keys that attention lays out for each token: the CPU lays out what a bin of branches sees of its trunk."""
_REPLAYED = 2.0
"""One layer's activations and the gradients that pass through them, as a multiple of the former."""
_PROMPT = 256
"""Tokens of a policy's prompt: a problem and the request for a solution."""
_OPEN, _TRUNK = 64, 1024
"""Solutions whose trunks stay where scoring stops early (``scoring.OPEN``), and tokens of one."""
_ROWS = 512
"""Texts that are sampled side by side, at most (``generate``)."""
_LEAST_BUDGET = 1024


@dataclass(frozen=True, slots=True)
class Need:
    """Bytes that one process of a stage needs on its device, by what they are for."""

    stage: str
    model: str
    parts: dict[str, float]

    @property
    def total(self) -> float:
        """All of them."""
        return sum(self.parts.values())


@dataclass(frozen=True, slots=True)
class Device:
    """Where the stages run: ``kind`` "cpu" or "cuda", and its memory in bytes."""

    kind: str
    memory: float


@dataclass(frozen=True, slots=True)
class Verdict:
    """A stage's need on a device; ``remedy`` names the nearest settings that fit where these do not."""

    need: Need
    fits: bool
    remedy: str


def train_need(title: str, shape: Shape, settings: Train, kind: str) -> Need:
    """One process of the train stage."""
    processes, shards = launch.division(settings.launch)
    learned = shape.adapter(settings.lora) if settings.lora.rank else shape.parameters
    whole = shape.parameters + (learned if settings.lora.rank else 0)
    half = settings.dtype == "bfloat16"
    copies = 0.0
    if shards > 1:  # two layers and the larger end of the model are gathered at a time
        copies = _BYTES[settings.dtype] * (2 * shape.layer + shape.vocabulary * shape.hidden)
    elif half:  # autocast keeps a copy of every matrix until the pass ends
        copies = 2.0 * shape.layers * sum(shape.matrices.values()) + 2.0 * shape.vocabulary * shape.hidden
    if processes > 1 and shards == 1:
        copies += 4.0 * learned  # the buckets in which replicas exchange gradients
    tokens, layer = settings.token_budget, _layer_activations(shape, half, kind)
    if settings.gradient_checkpointing:
        activations = tokens * 4.0 * shape.hidden * shape.layers
        # copies are made on the way forward, one layer's activations and their gradients on the way back
        copies, activations = (0.0, activations + max(copies, _REPLAYED * tokens * layer))
    else:
        activations = tokens * layer * (shape.layers + 0.5)
    return Need(
        "train",
        title,
        {
            "process": _PROCESS[kind],
            "weights": 4.0 * whole / shards + copies,
            "gradients": 4.0 * learned / shards,
            "optimiser": 8.0 * learned / shards,
            "activations": _SLACK * activations,
            "logits": tokens / _TOKENS_A_LABEL * shape.vocabulary * (16.0 if half else 12.0),
        },
    )


def _layer_activations(shape: Shape, half: bool, kind: str) -> float:
    """Bytes that one layer keeps of one token for its backward pass."""
    wide = shape.heads * shape.head_size
    narrow = shape.key_heads * shape.head_size
    item = 2 if half else 4
    residual = 4 * 6 * shape.hidden + (2 * 2 * shape.hidden if half else 0)  # norms in float32, and their cast copies
    attention = item * (2 * wide + 2 * narrow + 2 * wide * _SPREAD[kind])
    return residual + attention + item * 4 * shape.inner


def score_need(stage: str, title: str, shape: Shape, settings: Score, kind: str, kept: int = 0) -> Need:
    """A stage that scores; ``kept`` tokens of trunks stay between the rounds of a search, or waves."""
    item = _BYTES[settings.dtype]
    tokens = settings.token_budget
    wide = shape.heads * shape.head_size
    running = item * (4 * shape.hidden + 2 * shape.inner + 2 * wide + 2 * wide * _SPREAD[kind])
    return Need(
        stage,
        title,
        {
            "process": _PROCESS[kind],
            "weights": item * shape.parameters,
            "activations": _SLACK * tokens * running,
            "cache": item * shape.keys_and_values * (2 * tokens + kept),  # as computed, and as laid out again
            "logits": tokens / _TOKENS_A_LABEL * shape.vocabulary * (item + 4),
        },
    )


def generate_need(stage: str, title: str, shape: Shape, rows: int, prompt: int, more: int, kind: str) -> Need:
    """A model that samples in process, in float32: up to ``rows`` prompts of ``prompt`` tokens and ``more`` behind."""
    rows = min(rows, _ROWS)
    return Need(
        stage,
        title,
        {
            "process": _PROCESS[kind],
            "weights": 4.0 * shape.parameters,
            "activations": _SLACK * rows * prompt * 4.0 * (4 * shape.hidden + 2 * shape.inner),
            "cache": rows * (prompt + more) * 4.0 * shape.keys_and_values * (1 + 1 / shape.layers),
            "logits": rows * shape.vocabulary * 12.0,
        },
    )


def served_need(title: str, shape: Shape, settings: Label) -> Need:
    """One GPU of a vLLM server that the label stage starts: its share of the weights, and room for one answer."""
    cards = settings.vllm.tensor_parallel
    item = _BYTES[settings.vllm.dtype]
    cache = item * shape.keys_and_values * settings.max_model_len / cards
    parts = {"process": _PROCESS["cuda"], "weights": item * shape.parameters / cards, "cache": cache}
    return Need("label", title, parts)


Shapes = Callable[[str], tuple[str, Shape]]
STAGES = ("label", "train", "sample", "processbench", "prmbench", "search")
"""Those that may load a model."""


def stage_need(stage: str, params: Params, kind: str, shape_of: Shapes) -> Need | None:
    """What ``stage`` needs as it is set; None where somebody else serves its model.

    ``shape_of`` gives title and shape of the models "judge", "policy" and "base" (a trained PRM is as large as that).
    """
    search, score, label = params.search, params.score, params.label
    if stage == "train":
        return train_need(*shape_of("base"), params.train, kind)
    if stage == "label":
        if label.engine == "openai":
            return None
        if label.engine == "vllm":
            return served_need(*shape_of("judge"), label)
        room = label.max_model_len - label.max_tokens
        return generate_need("label", *shape_of("judge"), label.batch_size, room, label.max_tokens, kind)
    parts = []
    if stage in ("sample", "search") and search.engine == "transformers":
        rows = search.batch_size * search.n
        parts.append(generate_need(stage, *shape_of("policy"), rows, _PROMPT, search.solution_tokens, kind))
    if stage != "sample" and score.engine == "local":
        base, shape = shape_of("base")
        kept = search.batch_size * (_PROMPT + search.solution_tokens) if stage == "search" else 0
        kept += _OPEN * _TRUNK if stage == "processbench" and params.processbench.early_stop else 0
        parts.append(score_need(stage, f"PRM as {base}", shape, score, kind, kept))
    return _together(parts)


def _together(needs: list[Need]) -> Need | None:
    """Models that one process holds side by side."""
    if not needs:
        return None
    parts = {part: sum(need.parts.get(part, 0.0) for need in needs) for part in needs[-1].parts}
    parts["process"] = needs[0].parts["process"]
    return Need(needs[0].stage, " and ".join(need.model for need in needs), parts)


def verdict(stage: str, params: Params, device: Device, shape_of: Shapes | None = None) -> Verdict | None:
    """Does ``stage`` fit on ``device``, and if not, what is the nearest setting that does?

    Without ``shape_of`` the models are those of the source catalogue, fetched or not.
    """
    if shape_of is None:
        shape_of = partial(planned_shape, sources=params.download.sources)
    need = stage_need(stage, params, device.kind, shape_of)
    if need is None:
        return None
    if need.total <= device.memory:
        return Verdict(need, True, "")
    for changes in _smaller(stage, params, device.kind):
        changed = params
        for key, value in changes.items():
            section, _, name = key.partition(".")
            changed = changed.model_copy(update={section: _with(getattr(changed, section), name, value)})
        less = stage_need(stage, changed, device.kind, shape_of)
        if less is not None and less.total <= device.memory:
            settings = ", ".join(f"{key}: {str(value).lower()}" for key, value in changes.items())
            return Verdict(need, False, f"{settings} needs {less.total / GIB:.1f} GiB")
    return Verdict(need, False, "no setting of this stage fits; take a smaller model or a larger device")


def _with(section: Any, name: str, value: Any) -> Any:
    first, _, rest = name.partition(".")
    return section.model_copy(update={first: _with(getattr(section, first), rest, value) if rest else value})


_Changes = dict[str, Any]


def _smaller(stage: str, params: Params, kind: str) -> Iterator[_Changes]:
    """Settings that need less, those that change the least first."""
    if stage == "train":
        train = params.train
        saving: _Changes = {} if train.gradient_checkpointing else {"train.gradient_checkpointing": True}
        over_cards = [{"train.launch": "machine"}] if kind == "cuda" and not train.launch else []
        adapted = [] if train.lora.rank else [{"train.lora.rank": 16}]
        alone: _Changes = {}
        for more in (alone, *over_cards, *adapted):
            yield from _halved(saving | more, "train.token_budget", train.token_budget, _LEAST_BUDGET)
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
    """The GPU of this process, or the memory that this machine (or its container) gives to processes."""
    import torch  # seconds; a plan for a named size does without

    if torch.cuda.is_available():
        return Device("cuda", float(torch.cuda.mem_get_info()[1]))
    memory = float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    bound = Path("/sys/fs/cgroup/memory.max")
    if bound.is_file() and (text := bound.read_text().strip()).isdigit():
        memory = min(memory, float(text))
    return Device("cpu", memory)


def require(stage: str, params: Params, folders: Mapping[str, Path]) -> None:
    """Refuse ``stage`` where it cannot fit on this device; raises ``DataError`` with the nearest settings that do.

    ``folders`` are the models that it is about to load, by the names of ``stage_need``.
    """
    device = this_device()
    found = verdict(stage, params, device, lambda name: fetched_shape(folders[name]))
    if found is not None and not found.fits:
        raise DataError(
            f"{stage} ({found.need.model}) needs about {found.need.total / GIB:.1f} GiB, this "
            f"{'GPU' if device.kind == 'cuda' else 'machine'} has {device.memory / GIB:.1f} GiB ({describe(found.need)}). "
            f"Nearest: {found.remedy}"
        )


def describe(need: Need) -> str:
    """The parts of a need in GiB, largest first, without those that hardly count."""
    parts = sorted(need.parts.items(), key=lambda part: -part[1])
    return ", ".join(f"{name} {size / GIB:.1f}" for name, size in parts if size > need.total / 100)
