"""Attention over trees of prompts, registered with transformers under the name ``tree``.

Two equal back ends. ``DensePlan`` masks whole trees (the reference). ``CascadePlan`` runs the trunks as plain causal
attention and every bin of branches against its trunk and itself, so the quadratic part covers the trunk only; what an
earlier pass computed of a trunk (``Past``) it takes as it is.

A model is switched once and for good (gradient checkpointing reads the setting again in its backward pass). Without a
plan the function refuses: any other back end would treat a tree as a plain text and be silently wrong.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch.nn.functional import scaled_dot_product_attention
from transformers import PreTrainedModel
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

NAME = "tree"


def _additive(mask: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The mask as 0 and minus infinity; a no-op where it is that already (autocast changes the type once more)."""
    if mask.dtype != torch.bool:
        return mask.to(dtype)
    return torch.zeros(mask.shape, dtype=dtype, device=mask.device).masked_fill_(~mask, float("-inf"))


@dataclass(frozen=True, slots=True)
class DensePlan:
    """Rows of padded trees; ``mask`` (rows, 1, length, length), boolean or additive."""

    mask: torch.Tensor

    def to(self, device: torch.device | str, dtype: torch.dtype) -> DensePlan:
        """On ``device``, the mask additive in ``dtype`` (converted once, not in every layer)."""
        return DensePlan(_additive(self.mask.to(device), dtype))

    def attend(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scale: float, layer: int
    ) -> torch.Tensor:
        """(1, heads, slots, head size) each -> (1, slots, heads, head size)."""
        rows, _, length, _ = self.mask.shape
        q, k, v = (_rows(x[0], rows, length) for x in (query, key, value))
        k, v = _wide(k, q), _wide(v, q)
        return _flat(scaled_dot_product_attention(q, k, v, attn_mask=_additive(self.mask, query.dtype), scale=scale))[
            None
        ]


@dataclass(frozen=True, slots=True)
class Past:
    """Keys and values of the trunks' first tokens from earlier passes, and those that this pass adds.

    ``keys`` and ``values``: per layer (trunks, key heads, slots, head size), padded at the end. ``mask`` (trunks, 1,
    length, slots + length), boolean or additive: which of both a trunk's new slot sees. ``fresh``: per layer, filled by
    the pass, keys and values (trunks, key heads, length, head size) of the new slots.
    """

    keys: tuple[torch.Tensor, ...]
    values: tuple[torch.Tensor, ...]
    mask: torch.Tensor
    fresh: dict[int, tuple[torch.Tensor, torch.Tensor]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CascadePlan:
    """``trunks`` rows of ``length`` slots, then bins of ``width`` slots, bin i below trunk ``owner[i]``.

    ``mask`` is (bins, 1, width, past slots + length + width), boolean or additive: the trunk's slots, known ones first,
    then the bin's own.
    """

    trunks: int
    length: int
    width: int
    owner: torch.Tensor
    mask: torch.Tensor
    past: Past | None = None

    def to(self, device: torch.device | str, dtype: torch.dtype) -> CascadePlan:
        """On ``device``, the masks additive in ``dtype`` (converted once, not in every layer)."""
        past = self.past and replace(self.past, mask=_additive(self.past.mask.to(device), dtype))
        return replace(self, owner=self.owner.to(device), mask=_additive(self.mask.to(device), dtype), past=past)

    def attend(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scale: float, layer: int
    ) -> torch.Tensor:
        """(1, heads, slots, head size) each -> (1, slots, heads, head size)."""
        cut = self.trunks * self.length
        q, k, v = (_rows(x[0, :, :cut], self.trunks, self.length) for x in (query, key, value))
        if self.past is None:
            k, v = _wide(k, q), _wide(v, q)
            trunk = _flat(scaled_dot_product_attention(q, k, v, is_causal=True, scale=scale))
        else:
            self.past.fresh[layer] = (k, v)
            k = _wide(torch.cat([self.past.keys[layer], k], dim=2), q)
            v = _wide(torch.cat([self.past.values[layer], v], dim=2), q)
            seen = _additive(self.past.mask, query.dtype)
            trunk = _flat(scaled_dot_product_attention(q, k, v, attn_mask=seen, scale=scale))
        if not len(self.owner):
            return trunk[None]
        below = (_rows(x[0, :, cut:], len(self.owner), self.width) for x in (query, key, value))
        q_bin, k_bin, v_bin = below
        k_bin, v_bin = _wide(k_bin, q_bin), _wide(v_bin, q_bin)
        keys = torch.cat([k.index_select(0, self.owner), k_bin], dim=2)
        values = torch.cat([v.index_select(0, self.owner), v_bin], dim=2)
        branches = scaled_dot_product_attention(
            q_bin, keys, values, attn_mask=_additive(self.mask, query.dtype), scale=scale
        )
        return torch.cat([trunk, _flat(branches)])[None]


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
    **_: Any,
) -> tuple[torch.Tensor, None]:
    """The attention function of a switched model; needs the keyword ``tree``."""
    if tree is None or attention_mask is not None or dropout:
        raise ValueError("a model switched to tree attention takes a tree plan, no mask and no dropout")
    layer: Any = module.layer_idx
    return tree.attend(query, key, value, scaling, layer), None


ALL_ATTENTION_FUNCTIONS.register(NAME, tree_attention)


def use_trees(model: PreTrainedModel) -> None:
    """Switch a model to tree attention for good; raises ``ValueError`` for one with sliding windows."""
    kinds = set(getattr(model.config, "layer_types", None) or ["full_attention"])
    if kinds != {"full_attention"}:
        raise ValueError(f"trees need full attention in every layer, this model has {sorted(kinds)}")
    model.config._attn_implementation = NAME


def read_logits(model: torch.nn.Module, batch: Any) -> torch.Tensor:
    """Logits at the batch's readings only: (readings, vocabulary). ``batch`` is a ``tree.TreeBatch``."""
    output = model(
        input_ids=batch.input_ids,
        position_ids=batch.position_ids,
        attention_mask={"full_attention": None},  # the plan is the mask; a dict keeps transformers from making one
        use_cache=False,
        logits_to_keep=batch.reads,
        tree=batch.plan,
    )
    logits: torch.Tensor = output.logits[0]
    return logits
