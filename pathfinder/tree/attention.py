"""Attention over trees of prompts, registered with transformers under the name ``tree``.

A row holds the tokens of many trees without padding. Every slot has an ``order`` and an ``end``, and query q sees key k
exactly when ``order[k] <= order[q] < end[k]`` (see the package's docstring). Two plans apply this rule:

``BinPlan`` (CPU) cuts the row into bins. Each bin lists the key ranges that its slots see, in the row or in the caches
of earlier passes, so few scores are computed and then masked. One bin per tree is the dense reference.
``FlexPlan`` (CUDA) passes the two arrays to FlexAttention as a mask function, which skips fully masked blocks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from ground.io import DataError
from pathfinder.models.decoder import Decoder, KVCache, final_states, supports

NAME = "tree"
_BLOCK = 128
"""Queries or keys of a block that FlexAttention skips as a whole."""
_PAIRS = 2**25
"""Pairs of a query and a key that are compared at once to find these blocks."""
_GRAPHS = 64
"""The largest number of kernels that one process compiles: for each type, with and without gradients, and for each
relation of sizes. Past the limit, torch computes every score: 28 GiB for a row of 16,384 tokens in a 7B model."""


def _additive(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """A boolean mask as 0 and minus infinity. An additive mask only changes its type, as under autocast."""
    if mask.dtype != torch.bool:
        return mask.to(dtype)
    return torch.zeros(mask.shape, dtype=dtype, device=mask.device).masked_fill_(~mask, float("-inf"))


class KeyRange(NamedTuple):
    """Keys ``start`` to ``stop`` of bin ``source`` of the row or, if ``source`` is negative, of cache ``~source``."""

    source: int
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class Bin:
    """``size`` slots, of which ``queries`` have queries, and the keys before them that they see.

    ``mask`` is (queries, keys + size), boolean or additive. A bin without a mask is causal and sees only itself.
    """

    size: int
    queries: int
    keys: tuple[KeyRange, ...] = ()
    mask: Tensor | None = None

    def select_queries(self, slots: Tensor) -> Bin:
        """The bin with queries only at ``slots``, int64 (queries,)."""
        mask = torch.ones(self.size, self.size, dtype=torch.bool).tril() if self.mask is None else self.mask
        return replace(self, queries=len(slots), mask=mask.to(slots.device)[slots])


@dataclass(frozen=True, slots=True)
class BinPlan:
    """Bins in the order in which they fill the row."""

    bins: tuple[Bin, ...]
    caches: tuple[KVCache, ...] = ()

    def to(self, device: torch.device | str, dtype: torch.dtype) -> BinPlan:
        """The plan on ``device`` with additive masks in ``dtype``, converted once rather than in every layer."""
        masks = [None if part.mask is None else _additive(part.mask.to(device), dtype) for part in self.bins]
        return replace(self, bins=tuple(replace(b, mask=mask) for b, mask in zip(self.bins, masks, strict=True)))

    def select_queries(self, slots: Tensor) -> BinPlan:
        """The plan with queries only at ``slots``, int64 (queries,), ascending. The keys of the whole row remain."""
        bins, start = [], 0
        for part in self.bins:
            bins.append(part.select_queries(slots[(slots >= start) & (slots < start + part.size)] - start))
            start += part.size
        return replace(self, bins=tuple(bins))

    def attend(self, query: Tensor, key: Tensor, value: Tensor, scale: float, layer: int) -> Tensor:
        """Attend with queries (1, heads, queries, head size) to keys and values (1, key heads, slots, head size).

        Returns (1, queries, heads, head size).
        """
        queries = torch.split(query[0], [part.queries for part in self.bins], dim=1)
        keys, values = (torch.split(x[0], [part.size for part in self.bins], dim=1) for x in (key, value))
        out = []
        for number, part in enumerate(self.bins):
            if not part.queries:
                continue
            k, v = keys[number], values[number]
            if part.keys:
                seen = [(keys[at], values[at]) if at >= 0 else self.caches[~at][layer] for at, _, _ in part.keys]
                k, v = (
                    torch.cat([*(x[i][:, lo:hi] for x, (_, lo, hi) in zip(seen, part.keys, strict=True)), own], dim=1)
                    for i, own in enumerate((k, v))
                )
            out.append(_attend(queries[number], k, v, part.mask, scale))
        return torch.cat(out)[None]


def _attend(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, scale: float) -> Tensor:
    """(heads, queries, size) on (key heads, keys, size) -> (queries, heads, size), without copying shared key heads."""
    groups = len(query) // len(key)
    if groups == 1:
        q, k, v = query[None], key[None], value[None]
    else:
        q = query.view(len(key), groups, *query.shape[1:])
        k, v = (x[:, None].expand(-1, groups, -1, -1) for x in (key, value))
    mask = None if mask is None else _additive(mask, query.dtype)
    attended = scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=mask is None, scale=scale)
    return attended.permute(2, 0, 1, 3).flatten(1, 2)


@dataclass(frozen=True, slots=True)
class FlexPlan:
    """``order`` int64 (queries,); ``key_order`` and ``key_end`` int64 (keys,) of the caches and the row, concatenated.

    ``to`` makes ``block_mask`` on the device.
    """

    order: Tensor
    key_order: Tensor
    key_end: Tensor
    caches: tuple[KVCache, ...] = ()
    block_mask: Any = None

    def to(self, device: torch.device | str, dtype: torch.dtype) -> FlexPlan:
        """The plan on ``device`` with its block mask."""
        del dtype  # the mask is a function, not a tensor
        order, key_order, key_end = (x.to(device) for x in (self.order, self.key_order, self.key_end))
        return FlexPlan(order, key_order, key_end, self.caches, _block_mask(order, key_order, key_end))

    def select_queries(self, slots: Tensor) -> FlexPlan:
        """See ``BinPlan.select_queries``."""
        return replace(self, order=self.order[slots]).to(slots.device, torch.bool)

    def attend(self, query: Tensor, key: Tensor, value: Tensor, scale: float, layer: int) -> Tensor:
        """See ``BinPlan.attend``."""
        key, value = (
            torch.cat([*(cached[layer][i] for cached in self.caches), own[0]], dim=1)[None]
            for i, own in enumerate((key, value))
        )
        grouped = query.shape[1] != key.shape[1]
        attend = _flex_attention(query.device.type)
        return attend(query, key, value, block_mask=self.block_mask, scale=scale, enable_gqa=grouped).transpose(1, 2)


def _block_mask(order: Tensor, key_order: Tensor, key_end: Tensor) -> Any:
    """The mask of some queries and keys as FlexAttention takes it: a function, and the blocks where it holds.

    ``create_block_mask`` compares all pairs at once, with ten bytes for each. Here it gets a part of the queries at a
    time, so memory does not grow with the cached keys of a search.
    """
    from torch.nn.attention.flex_attention import BlockMask, create_block_mask

    def visible(_b: Tensor, _h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        return (key_order[k] <= order[q]) & (order[q] < key_end[k])

    def part(start: int) -> Any:
        queries = min(step, len(order) - start)
        return create_block_mask(
            lambda b, h, q, k: visible(b, h, start + q, k), None, None, queries, keys, device=str(order.device)
        )

    keys = len(key_order)
    step = max(_PAIRS // keys // _BLOCK, 1) * _BLOCK
    parts = [part(start) for start in range(0, len(order), step)]
    names = ("kv_num_blocks", "kv_indices", "full_kv_num_blocks", "full_kv_indices")
    some, places, full, full_places = (torch.cat([getattr(one, name) for one in parts], dim=2) for name in names)
    return BlockMask.from_kv_blocks(some, places, full, full_places, _BLOCK, visible, (len(order), keys))


@cache
def _flex_attention(device: str) -> Callable[..., Tensor]:
    """FlexAttention as a compiled kernel on CUDA. On other devices, its eager form, which is slow but correct.

    Raises ``DataError`` on CUDA if Triton could not build the kernel's launcher.
    """
    from torch.nn.attention.flex_attention import flex_attention

    if device != "cuda":
        return flex_attention
    from pathfinder.models.toolchain import require_compiler

    require_compiler()
    settings: Any = torch._dynamo.config
    settings.recompile_limit = max(settings.recompile_limit, _GRAPHS)
    compiled: Any = torch.compile
    return compiled(flex_attention, dynamic=True)  # type: ignore[no-any-return]


Plan = BinPlan | FlexPlan


def tree_attention(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float,
    dropout: float = 0.0,
    tree: Plan | None = None,
    kv_cache: KVCache | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """The attention function of a switched model, with the shapes of ``BinPlan.attend``.

    Stores keys and values in ``kv_cache``, if given.
    Raises ``ValueError`` without a plan ``tree``, or with a mask or dropout.
    """
    if tree is None or attention_mask is not None or dropout:
        raise ValueError("a model switched to tree attention takes a tree plan, no mask and no dropout")
    layer: Any = module.layer_idx
    if kv_cache is not None:
        kv_cache[layer] = (key[0], value[0])
    return tree.attend(query, key, value, scaling, layer), None


def use_trees(model: Any) -> None:
    """Switch a model of transformers to tree attention; a ``Decoder`` has no other.

    The switch is permanent because gradient checkpointing reads the setting again in the backward pass. It ends all
    dropout, which would make a tree's loss differ from the sum over its samples. Raises ``DataError`` for a model with
    sliding windows, or whose attention cannot be replaced.
    """
    if isinstance(model, Decoder):
        return
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS  # takes seconds; a ``Decoder`` does not need it

    if not model._supports_attention_backend:
        raise DataError(
            f"{model.config.name_or_path or 'the model'}: transformers has no replaceable attention for a "
            f"{model.config.model_type}; choose a model such as Qwen2, Llama or Mistral"
        )
    ALL_ATTENTION_FUNCTIONS.register(NAME, tree_attention)
    kinds = set(getattr(model.config, "layer_types", None) or ["full_attention"])
    if kinds != {"full_attention"}:
        found = f"{model.config.name_or_path or 'the model'}: has layers of {', '.join(sorted(kinds))}"
        raise DataError(f"{found}; choose a model in which every layer has full_attention")
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
        if getattr(module, "attention_dropout", 0.0):
            module.attention_dropout = 0.0
    model.config._attn_implementation = NAME


def read_logits(model: Any, batch: Any, cache: KVCache | None = None) -> Tensor:
    """Logits at the readings of ``batch`` (a ``layout.TreeBatch``): (readings, vocabulary). Fills ``cache`` if given.

    A model that classifies tokens has its classes in place of a vocabulary. Raises ``ValueError`` for a model that is
    not switched, because every other back end, including FlashAttention 2, would silently read the row as one plain
    text.
    """
    used = getattr(getattr(model, "config", None), "_attn_implementation", NAME)
    if used != NAME:
        raise ValueError(f"attention {used!r} would treat a tree as a plain text; switch the model with use_trees")
    if supports(model):
        return model.get_output_embeddings()(final_states(model, batch, cache))  # type: ignore[no-any-return]
    classifies = type(model).__name__.endswith("ForTokenClassification")  # also with an adapter of peft
    logits: Tensor = model(
        input_ids=batch.input_ids,
        position_ids=batch.position_ids,
        attention_mask=None,  # the plan is the mask; transformers makes no mask for attention of this name
        use_cache=False,
        tree=batch.plan,
        kv_cache=cache,
        **({} if classifies else {"logits_to_keep": batch.reads}),
    ).logits[0]
    return logits[batch.reads] if classifies else logits
