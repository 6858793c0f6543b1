"""Attention over trees of prompts, registered with transformers under the name ``tree``.

A row holds the real tokens of many trees, no padding. Every slot has an ``order`` and an ``end``, and one rule says
what it sees: key k is visible to query q exactly when ``order[k] <= order[q] < end[k]``. Two plans apply the rule:

``BinPlan`` (processors) cuts the row into bins, each with the ranges of the row, and of what earlier passes left
(``slabs``), that its slots see: a trunk is plain causal, and each bin of branches runs against the trunk's part above
it and itself, so little is computed that the mask then hides. One bin a tree is the dense reference.

``FlexPlan`` (CUDA) hands the two arrays to FlexAttention as a mask function; whole blocks that see nothing are skipped.

A model is switched once and for good (gradient checkpointing reads the setting again in its backward pass). Without a
plan the function refuses: any other back end would treat a tree as a plain text and be silently wrong.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, NamedTuple

import torch
from torch.nn.functional import scaled_dot_product_attention
from transformers import PreTrainedModel
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from pathfinder.tree.inference import KVCache, final_states, supports

NAME = "tree"


def _additive(mask: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The mask as 0 and minus infinity; a no-op where it is that already (autocast changes the type once more)."""
    if mask.dtype != torch.bool:
        return mask.to(dtype)
    return torch.zeros(mask.shape, dtype=dtype, device=mask.device).masked_fill_(~mask, float("-inf"))


class Part(NamedTuple):
    """A range of keys: of the row's bin ``source``, or, where that is negative, of slab ``~source``."""

    source: int
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class Bin:
    """``size`` slots, and the keys that they see before their own. ``mask`` (asks, keys + size), boolean or additive.

    Without a mask the bin is causal and sees itself alone. ``asks`` of its slots have queries.
    """

    size: int
    asks: int
    parts: tuple[Part, ...] = ()
    mask: torch.Tensor | None = None

    def asked(self, rows: torch.Tensor) -> Bin:
        """With queries at ``rows`` of its slots alone."""
        whole = torch.ones(self.size, self.size, dtype=torch.bool).tril() if self.mask is None else self.mask
        return replace(self, asks=len(rows), mask=whole.to(rows.device)[rows])


@dataclass(frozen=True, slots=True)
class BinPlan:
    """Bins in the order in which they fill the row."""

    bins: tuple[Bin, ...]
    slabs: tuple[KVCache, ...] = ()

    def to(self, device: torch.device | str, dtype: torch.dtype) -> BinPlan:
        """On ``device``, the masks additive in ``dtype`` (converted once, not in every layer)."""
        moved = (
            one if one.mask is None else replace(one, mask=_additive(one.mask.to(device), dtype)) for one in self.bins
        )
        return replace(self, bins=tuple(moved))

    def asked(self, slots: torch.Tensor) -> BinPlan:
        """With queries at ``slots`` (ascending) alone; keys and values stay those of the whole row."""
        bins, start = [], 0
        for one in self.bins:
            rows = slots[(slots >= start) & (slots < start + one.size)] - start
            bins.append(one.asked(rows))
            start += one.size
        return replace(self, bins=tuple(bins))

    def attend(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scale: float, layer: int
    ) -> torch.Tensor:
        """Queries (1, heads, asked, head size), keys and values (1, key heads, slots, head size), the row's.

        Gives (1, asked, heads, head size).
        """
        sizes = [one.size for one in self.bins]
        queries = torch.split(query[0], [one.asks for one in self.bins], dim=1)
        keys, values = (torch.split(x[0], sizes, dim=1) for x in (key, value))
        out = []
        for number, one in enumerate(self.bins):
            if not one.asks:
                continue
            k, v = keys[number], values[number]
            if one.parts:
                seen = [(keys[at], values[at]) if at >= 0 else self.slabs[~at][layer] for at, _, _ in one.parts]
                k, v = (
                    torch.cat([*(x[i][:, lo:hi] for x, (_, lo, hi) in zip(seen, one.parts, strict=True)), own], dim=1)
                    for i, own in enumerate((k, v))
                )
            out.append(_attend(queries[number], k, v, one.mask, scale))
        return torch.cat(out)[None]


def _attend(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor | None, scale: float
) -> torch.Tensor:
    """(heads, new, size) on (key heads, keys, size) -> (new, heads, size); shared key heads are not copied."""
    groups = len(query) // len(key)
    if groups == 1:
        q, k, v = query[None], key[None], value[None]
    else:
        q = query.view(len(key), groups, *query.shape[1:])
        k, v = (x[:, None].expand(-1, groups, -1, -1) for x in (key, value))
    mask = None if mask is None else _additive(mask, query.dtype)
    found = scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=mask is None, scale=scale)
    return found.permute(2, 0, 1, 3).flatten(1, 2)


@dataclass(frozen=True, slots=True)
class FlexPlan:
    """``order`` int64 (asked,) of the row's queries; ``key_order`` and ``key_end`` (keys,) of slabs and row, joined.

    ``block_mask`` is made on the device by ``to``.
    """

    order: torch.Tensor
    key_order: torch.Tensor
    key_end: torch.Tensor
    slabs: tuple[KVCache, ...] = ()
    block_mask: Any = None

    def to(self, device: torch.device | str, dtype: torch.dtype) -> FlexPlan:
        """On ``device``, with the block mask."""
        del dtype  # the mask is a function, not a tensor
        from torch.nn.attention.flex_attention import create_block_mask

        order, key_order, key_end = (x.to(device) for x in (self.order, self.key_order, self.key_end))

        def visible(_b: torch.Tensor, _h: torch.Tensor, q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
            return (key_order[k] <= order[q]) & (order[q] < key_end[k])

        made = create_block_mask(visible, None, None, len(order), len(key_order), device=str(order.device))
        return FlexPlan(order, key_order, key_end, self.slabs, made)

    def asked(self, slots: torch.Tensor) -> FlexPlan:
        """With queries at ``slots`` alone."""
        return replace(self, order=self.order[slots]).to(slots.device, torch.bool)

    def attend(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scale: float, layer: int
    ) -> torch.Tensor:
        """As ``BinPlan.attend``."""
        key, value = (
            torch.cat([*(slab[layer][i] for slab in self.slabs), own[0]], dim=1)[None]
            for i, own in enumerate((key, value))
        )
        groups = query.shape[1] != key.shape[1]
        found = _flex(query.device.type)(query, key, value, block_mask=self.block_mask, scale=scale, enable_gqa=groups)
        return found.transpose(1, 2)


@cache
def _flex(kind: str) -> Callable[..., torch.Tensor]:
    """FlexAttention as a kernel on CUDA; elsewhere its plain form, which is slow and right."""
    from torch.nn.attention.flex_attention import flex_attention

    made: Any = torch.compile(flex_attention, dynamic=True) if kind == "cuda" else flex_attention
    return made  # type: ignore[no-any-return]


Plan = BinPlan | FlexPlan


def tree_attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float,
    dropout: float = 0.0,
    tree: Plan | None = None,
    kept: KVCache | None = None,
    **_: Any,
) -> tuple[torch.Tensor, None]:
    """The attention function of a switched model; needs the keyword ``tree``, leaves keys and values in ``kept``."""
    if tree is None or attention_mask is not None or dropout:
        raise ValueError("a model switched to tree attention takes a tree plan, no mask and no dropout")
    layer: Any = module.layer_idx
    if kept is not None:
        kept[layer] = (key[0], value[0])
    return tree.attend(query, key, value, scaling, layer), None


ALL_ATTENTION_FUNCTIONS.register(NAME, tree_attention)


def use_trees(model: PreTrainedModel) -> None:
    """Switch a model to tree attention for good; raises ``ValueError`` for one with sliding windows."""
    kinds = set(getattr(model.config, "layer_types", None) or ["full_attention"])
    if kinds != {"full_attention"}:
        raise ValueError(f"trees need full attention in every layer, this model has {sorted(kinds)}")
    model.config._attn_implementation = NAME


def read_logits(model: Any, batch: Any, kept: KVCache | None = None) -> torch.Tensor:
    """Logits at the batch's readings only: (readings, vocabulary). ``batch`` is a ``layout.TreeBatch``.

    ``kept``, where given, is filled with every layer's keys and values. Raises ``ValueError`` for a model that is not
    switched: FlashAttention 2 and every other back end would take the row for one plain text and say nothing.
    """
    used = getattr(getattr(model, "config", None), "_attn_implementation", NAME)
    if used != NAME:
        raise ValueError(f"attention {used!r} would treat a tree as a plain text; switch the model with use_trees")
    if supports(model):
        found: torch.Tensor = model.get_output_embeddings()(final_states(model, batch, kept))
        return found
    output = model(
        input_ids=batch.input_ids,
        position_ids=batch.position_ids,
        attention_mask={"full_attention": None},  # the plan is the mask; a dict keeps transformers from making one
        use_cache=False,
        logits_to_keep=batch.reads,
        tree=batch.plan,
        kept=kept,
    )
    logits: torch.Tensor = output.logits[0]
    return logits
