"""The forward pass of a decoder over a tree batch without gradients: the results of transformers with less work.

In the last layer only the readings need attention and the feed-forward block. The other nodes only contribute keys and
values. The rotary embedding and the feed-forward block reuse their buffers. Weights and norms are the modules of the
model. It runs the decoders that ``models.architectures`` declares.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.functional import silu

from pathfinder.models.architectures import architecture_of

KVCache = dict[int, tuple[torch.Tensor, torch.Tensor]]
"""Layer -> keys and values, each (key heads, slots, head size)."""


def supports(model: torch.nn.Module) -> bool:
    """Return whether ``final_states`` can run this model: a declared decoder, unwrapped, without gradients."""
    config: Any = getattr(model, "config", None)
    known = architecture_of(getattr(config, "model_type", None))
    is_plain = known is not None and type(model).__name__ == known.causal and config.hidden_act == "silu"
    return is_plain and not torch.is_grad_enabled()


def final_states(model: torch.nn.Module, batch: Any, cache: KVCache | None) -> torch.Tensor:
    """The normed final hidden states at the batch's readings: (readings, hidden). Fills ``cache`` if it is given."""
    core: Any = model.model
    reads, place = torch.unique(batch.reads, return_inverse=True)
    hidden = core.embed_tokens(batch.input_ids[0])
    rotation = [x[0, :, None, : x.shape[-1] // 2] for x in core.rotary_emb(hidden, batch.position_ids)]
    plan = batch.plan
    for number, layer in enumerate(core.layers):
        attention = layer.self_attn
        normed = layer.input_layernorm(hidden)
        key = _rotate(_heads(attention.k_proj(normed), attention.head_dim), rotation)
        value = _heads(attention.v_proj(normed), attention.head_dim)
        if number == len(core.layers) - 1:
            plan = plan.select_queries(reads)
            hidden, normed, rotation = hidden[reads], normed[reads], [x[reads] for x in rotation]
        query = _rotate(_heads(attention.q_proj(normed), attention.head_dim), rotation)
        query, key, value = (x.transpose(0, 1)[None] for x in (query, key, value))
        if cache is not None:
            cache[number] = (key[0], value[0])
        attended = plan.attend(query, key, value, attention.scaling, number)[0].flatten(1)
        hidden = attention.o_proj(attended).add_(hidden)
        normed = layer.post_attention_layernorm(hidden)
        gate = silu(layer.mlp.gate_proj(normed), inplace=True).mul_(layer.mlp.up_proj(normed))
        hidden = layer.mlp.down_proj(gate).add_(hidden)
    states: torch.Tensor = core.norm(hidden)[place]
    return states


def _heads(x: torch.Tensor, size: int) -> torch.Tensor:
    """(slots, heads * size) -> (slots, heads, size)"""
    return x.view(len(x), -1, size)


def _rotate(x: torch.Tensor, rotation: list[torch.Tensor]) -> torch.Tensor:
    """Rotary embedding of (slots, heads, size); ``rotation`` holds cosine and sine, each (slots, 1, size / 2)."""
    cosine, sine = rotation
    left, right = x.chunk(2, dim=-1)
    out = torch.empty_like(x)
    new_left, new_right = out.chunk(2, dim=-1)
    torch.mul(left, cosine, out=new_left).addcmul_(right, sine, value=-1)
    torch.mul(right, cosine, out=new_right).addcmul_(left, sine)
    return out
