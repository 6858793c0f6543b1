"""A decoder's forward pass over a tree batch for scoring: less work than transformers' own, the same numbers.

In the last layer only the readings need their attention and their feed-forward part; every other slot is asked for its
keys and values alone. Rotary embedding and feed-forward part write into what they have. Weights and norms are the
model's own modules. Used where no gradient is wanted, for the decoders that are known to be built this way.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.functional import silu

KVCache = dict[int, tuple[torch.Tensor, torch.Tensor]]
"""Layer -> keys and values of a pass: (key heads, slots, head size) each."""

_KNOWN = {"Qwen2ForCausalLM", "LlamaForCausalLM"}


def supports(model: torch.nn.Module) -> bool:
    """Is the model one that ``final_states`` can run, and is no gradient wanted?"""
    config: Any = getattr(model, "config", None)
    return not torch.is_grad_enabled() and type(model).__name__ in _KNOWN and config.hidden_act == "silu"


def final_states(model: torch.nn.Module, batch: Any, kept: KVCache | None) -> torch.Tensor:
    """The normed last hidden states at the batch's readings: (readings, width). Fills ``kept``."""
    core: Any = model.model
    reads, place = torch.unique(batch.reads, return_inverse=True)
    hidden = core.embed_tokens(batch.input_ids[0])
    turn = [x[0, :, None, : x.shape[-1] // 2] for x in core.rotary_emb(hidden, batch.position_ids)]
    here, plan = slice(None), batch.plan
    for number, layer in enumerate(core.layers):
        attention = layer.self_attn
        normed = layer.input_layernorm(hidden)
        key = _rotated(_heads(attention.k_proj(normed), attention.head_dim), turn)
        value = _heads(attention.v_proj(normed), attention.head_dim)
        if number == len(core.layers) - 1:
            here, plan = reads, plan.asked(reads)
            hidden, normed, turn = hidden[here], normed[here], [x[here] for x in turn]
        query = _rotated(_heads(attention.q_proj(normed), attention.head_dim), turn)
        query, key, value = (x.transpose(0, 1)[None] for x in (query, key, value))
        if kept is not None:
            kept[number] = (key[0], value[0])
        found = plan.attend(query, key, value, attention.scaling, number)[0].flatten(1)
        hidden = attention.o_proj(found).add_(hidden)
        normed = layer.post_attention_layernorm(hidden)
        gate = silu(layer.mlp.gate_proj(normed), inplace=True).mul_(layer.mlp.up_proj(normed))
        hidden = layer.mlp.down_proj(gate).add_(hidden)
    states: torch.Tensor = core.norm(hidden)[place]
    return states


def _heads(x: torch.Tensor, size: int) -> torch.Tensor:
    """(slots, heads * size) -> (slots, heads, size)"""
    return x.view(len(x), -1, size)


def _rotated(x: torch.Tensor, turn: list[torch.Tensor]) -> torch.Tensor:
    """Rotary embedding of (slots, heads, size); ``turn`` are cosine and sine, (slots, 1, size / 2)."""
    cosine, sine = turn
    left, right = x.chunk(2, dim=-1)
    out = torch.empty_like(x)
    new_left, new_right = out.chunk(2, dim=-1)
    torch.mul(left, cosine, out=new_left).addcmul_(right, sine, value=-1)
    torch.mul(right, cosine, out=new_right).addcmul_(left, sine)
    return out
