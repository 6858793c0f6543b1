"""Attention over trees of prompts, registered with transformers under the name ``tree``.

Two equal back ends. ``DensePlan`` masks whole trees (the reference). ``CascadePlan`` runs the trunks as plain causal
attention and every bin of branches against its trunk and itself, so the quadratic part covers the trunk only. Both take
keys and values that an earlier pass computed (``Past``). The model's row holds real tokens alone; padding exists inside
an attention call only.

A model is switched once and for good (gradient checkpointing reads the setting again in its backward pass). Without a
plan the function refuses: any other back end would treat a tree as a plain text and be silently wrong.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.nn.functional import scaled_dot_product_attention
from transformers import PreTrainedModel
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

NAME = "tree"
Kept = dict[int, tuple[torch.Tensor, torch.Tensor]]
"""Layer -> keys and values of a pass: (key heads, slots, head size) each."""


def _additive(mask: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The mask as 0 and minus infinity; a no-op where it is that already (autocast changes the type once more)."""
    if mask.dtype != torch.bool:
        return mask.to(dtype)
    return torch.zeros(mask.shape, dtype=dtype, device=mask.device).masked_fill_(~mask, float("-inf"))


@dataclass(frozen=True, slots=True)
class Past:
    """Keys and values of earlier passes, layer by layer: (rows, key heads, length, head size), padded."""

    keys: tuple[torch.Tensor, ...]
    values: tuple[torch.Tensor, ...]

    def before(self, key: torch.Tensor, value: torch.Tensor, layer: int) -> tuple[torch.Tensor, torch.Tensor]:
        """New keys and values (rows, key heads, new, head size) behind the known ones."""
        return torch.cat([self.keys[layer], key], dim=2), torch.cat([self.values[layer], value], dim=2)


@dataclass(frozen=True, slots=True)
class Places:
    """Where slots lie in the padded rows of an attention call.

    ``take`` int64 (places,): the slot that a place holds, any where it is padding. ``back`` int64 (slots,).
    """

    take: torch.Tensor
    back: torch.Tensor

    def to(self, device: torch.device | str) -> Places:
        """The same on ``device``."""
        return Places(self.take.to(device), self.back.to(device))

    def padded(self, x: torch.Tensor) -> torch.Tensor:
        """(1, heads, slots, size) -> (heads, places, size)."""
        return x[0].index_select(1, self.take)

    def slots(self, x: torch.Tensor) -> torch.Tensor:
        """(places, heads, size) -> (1, slots, heads, size)."""
        return x.index_select(0, self.back)[None]


@dataclass(frozen=True, slots=True)
class DensePlan:
    """Rows of padded trees; ``mask`` (rows, 1, length, known + length), boolean or additive."""

    places: Places
    mask: torch.Tensor
    past: Past | None = None

    def to(self, device: torch.device | str, dtype: torch.dtype) -> DensePlan:
        """On ``device``, the mask additive in ``dtype`` (converted once, not in every layer)."""
        return replace(self, places=self.places.to(device), mask=_additive(self.mask.to(device), dtype))

    def attend(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scale: float, layer: int
    ) -> torch.Tensor:
        """(1, heads, slots, head size) each -> (1, slots, heads, head size)."""
        rows, _, length, _ = self.mask.shape
        q, k, v = (_rows(self.places.padded(x), rows, length) for x in (query, key, value))
        if self.past is not None:
            k, v = self.past.before(k, v, layer)
        mask = _additive(self.mask, query.dtype)
        found = scaled_dot_product_attention(q, _wide(k, q), _wide(v, q), attn_mask=mask, scale=scale)
        return self.places.slots(_flat(found))


@dataclass(frozen=True, slots=True)
class CascadePlan:
    """``trunks`` rows of ``length`` places, then bins of ``width`` places, bin i below trunk ``owner[i]``.

    ``mask`` is (bins, 1, width, known + length + width), boolean or additive: the trunk's places, known ones first,
    then the bin's own. ``trunk_mask`` (trunks, 1, length, known + length) stands where something is known of a trunk;
    without it a trunk is causal.
    """

    places: Places
    trunks: int
    length: int
    width: int
    owner: torch.Tensor
    mask: torch.Tensor
    past: Past | None = None
    trunk_mask: torch.Tensor | None = None

    def to(self, device: torch.device | str, dtype: torch.dtype) -> CascadePlan:
        """On ``device``, the masks additive in ``dtype`` (converted once, not in every layer)."""
        return replace(
            self,
            places=self.places.to(device),
            owner=self.owner.to(device),
            mask=_additive(self.mask.to(device), dtype),
            trunk_mask=None if self.trunk_mask is None else _additive(self.trunk_mask.to(device), dtype),
        )

    def attend(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scale: float, layer: int
    ) -> torch.Tensor:
        """(1, heads, slots, head size) each -> (1, slots, heads, head size)."""
        cut = self.trunks * self.length
        every = [self.places.padded(x) for x in (query, key, value)]
        q, k, v = (_rows(x[:, :cut], self.trunks, self.length) for x in every)
        if self.past is not None:
            k, v = self.past.before(k, v, layer)
        k, v = _wide(k, q), _wide(v, q)
        if self.trunk_mask is None:
            trunk = scaled_dot_product_attention(q, k, v, is_causal=True, scale=scale)
        else:
            mask = _additive(self.trunk_mask, query.dtype)
            trunk = scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale)
        if not len(self.owner):
            return self.places.slots(_flat(trunk))
        q_bin, k_bin, v_bin = (_rows(x[:, cut:], len(self.owner), self.width) for x in every)
        keys = torch.cat([k.index_select(0, self.owner), _wide(k_bin, q_bin)], dim=2)
        values = torch.cat([v.index_select(0, self.owner), _wide(v_bin, q_bin)], dim=2)
        mask = _additive(self.mask, query.dtype)
        branches = scaled_dot_product_attention(q_bin, keys, values, attn_mask=mask, scale=scale)
        return self.places.slots(torch.cat([_flat(trunk), _flat(branches)]))


def _rows(x: torch.Tensor, rows: int, length: int) -> torch.Tensor:
    """(heads, rows * length, size) -> (rows, heads, length, size), without a copy."""
    return x.view(len(x), rows, length, x.shape[-1]).transpose(0, 1)


def _wide(x: torch.Tensor, query: torch.Tensor) -> torch.Tensor:
    """Keys or values (rows, key heads, …) repeated to the query's heads, where heads share them."""
    groups = query.shape[1] // x.shape[1]
    return x.repeat_interleave(groups, dim=1) if groups > 1 else x


def _flat(x: torch.Tensor) -> torch.Tensor:
    """(rows, heads, length, size) -> (rows * length, heads, size)."""
    return x.transpose(1, 2).flatten(0, 1)


def tree_attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float,
    dropout: float = 0.0,
    tree: DensePlan | CascadePlan | None = None,
    kept: Kept | None = None,
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


def read_logits(model: torch.nn.Module, batch: Any, kept: Kept | None = None) -> torch.Tensor:
    """Logits at the batch's readings only: (readings, vocabulary). ``batch`` is a ``layout.TreeBatch``.

    ``kept``, where given, is filled with every layer's keys and values.
    """
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
