"""Loading a model over several processes (FSDP): each reads only the rows that it keeps.

The network is built without memory (on torch's meta device) and cut by torch; then every process fills its rows. No
process ever holds a whole copy, neither in main memory nor on its GPU.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, GenerationConfig, PreTrainedTokenizerFast

from pathfinder.core.prompts import MASK
from pathfinder.models.model import device
from pathfinder.models.slices import Slices, row_range
from pathfinder.models.tokens import add_label_tokens

_from_config: Any = AutoModelForCausalLM.from_config


def has_rows(files: Path, tokenizer: PreTrainedTokenizerFast) -> bool:
    """Return whether the matrices of the model in ``files`` have a row for each token, label tokens included."""
    add_label_tokens(tokenizer)
    return len(tokenizer) <= int(AutoConfig.from_pretrained(files, trust_remote_code=False).vocab_size)


def empty_model(files: Path, rows: int = 0) -> Any:
    """The network of the model in ``files`` in float32, in evaluation mode, without memory for its parameters.

    ``rows`` is the size of its vocabulary if it differs from the files.
    """
    config = AutoConfig.from_pretrained(files, trust_remote_code=False)
    config.vocab_size = rows or config.vocab_size
    with torch.device("meta"):
        model: Any = _from_config(config, dtype=torch.float32)
    for module in model.modules():
        if any(buffer.is_meta for buffer in module.buffers(recurse=False)):
            for name, buffer in module.named_buffers(recurse=False):
                module._buffers[name] = torch.empty_like(buffer, device="cpu")
            model._init_weights(module)  # positional frequencies: calculated, not stored in the files
    if (files / "generation_config.json").exists():
        model.generation_config = GenerationConfig.from_pretrained(files)
    return model.eval()


def load_sharded(files: Path, tokenizer: PreTrainedTokenizerFast, dtype: str) -> tuple[Any, list[str]]:
    """The model in ``files`` with the label tokens, sharded over all processes, and the label tokens that were added.

    Master weights are float32. ``dtype`` "bfloat16" calculates in that type and sums gradients in float32. The model
    must have a row for each token (``has_rows``), as ``model.add_labels`` explains.
    """
    from torch.distributed.tensor import DTensor

    added = add_label_tokens(tokenizer)
    model = empty_model(files)
    place = device()
    mesh = cut(model, dtype)
    slices = Slices(files.glob("*.safetensors"))
    embedding = model.get_input_embeddings().weight
    mask, pad = (int(tokenizer.get_vocab()[token]) for token in (MASK, str(tokenizer.pad_token)))
    state = {}
    for name, parameter in model.named_parameters():
        first, stop = row_range(parameter)
        local = torch.empty((stop - first, *parameter.shape[1:]), dtype=parameter.dtype, device=place)
        if stop > first:
            local.copy_(slices.read(name, first, stop))
        if parameter is embedding and MASK in added and first <= mask < stop:
            local[mask - first] = slices.read(name, pad, pad + 1)[0].to(local)
        state[name] = DTensor.from_local(
            local, mesh, parameter.placements, run_check=False, shape=parameter.shape, stride=parameter.stride()
        )
    model.load_state_dict(state, assign=True, strict=False)
    model.tie_weights()
    for module in model.modules():
        for name, buffer in module.named_buffers(recurse=False):
            module._buffers[name] = buffer.to(place)
    return model, added


def cut(model: Any, dtype: str) -> Any:
    """Shard the parameters over all processes: one unit for each layer and for each end of the model.

    Parameters with memory move to the device of this process. Returns the mesh of the processes.
    """
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    mesh = init_device_mesh(device(), (torch.distributed.get_world_size(),))
    half = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    policy = half if dtype == "bfloat16" else MixedPrecisionPolicy()
    base = model.get_base_model() if hasattr(model, "get_base_model") else model
    embedding, tail = base.get_input_embeddings(), [base.model.norm, base.get_output_embeddings()]
    for layer in base.model.layers:
        fully_shard(layer, mesh=mesh, mp_policy=policy, reshard_after_forward=True)
    if base.config.tie_word_embeddings:
        tail.append(embedding)
    else:
        fully_shard(embedding, mesh=mesh, mp_policy=policy, reshard_after_forward=True)
    fully_shard(tail, mesh=mesh, mp_policy=policy, reshard_after_forward=False)
    fully_shard(model, mesh=mesh, mp_policy=policy)
    return mesh
