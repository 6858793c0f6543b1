"""The declared decoders without transformers' modelling code, which takes seconds to import.

``load_decoder`` builds a ``Decoder`` from the safetensors of a folder whose config.json is plain, and leaves every
other folder to transformers. Its modules have the names of transformers' modules and round as they do, so the numbers
are the same (``tests/models/test_decoder.py``).

``final_states`` is the forward pass of both over a row of tokens; it does less work than transformers' own. In the last
layer only the readings need attention and the feed-forward block. The other slots only contribute keys and values. The
rotary embedding reuses its buffers; without gradients, the feed-forward block does so too. A ``Decoder`` is also
trained (``training.network``).
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn.functional import silu

from ground.io import DataError, write_json
from pathfinder.models import model
from pathfinder.models.architectures import Shape, architecture_of, shape_of
from pathfinder.models.folders import OpenedModel

KVCache = dict[int, tuple[Tensor, Tensor]]
"""Layer -> keys and values, each (key heads, slots, head size)."""
_SPECIAL = (
    "attention_bias",
    "mlp_bias",
    "partial_rotary_factor",
    "quantization_config",
    "rope_scaling",
    "transformers_weights",
)
"""Settings of config.json that only transformers follows."""
_GENERATION = "generation_config.json"


class _Linear(nn.Linear):
    """A layer without initial weights, because a file has them: PyTorch would import its compiler to draw some."""

    def reset_parameters(self) -> None:
        pass


class _Embedding(nn.Embedding):
    """See ``_Linear``."""

    def reset_parameters(self) -> None:
        pass


class _Norm(nn.Module):
    """RMSNorm, which calculates in float32 in a model of any type (Zhang and Sennrich 2019)."""

    def __init__(self, size: int, epsilon: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(size))
        self.variance_epsilon = epsilon

    def forward(self, hidden: Tensor) -> Tensor:
        wide = hidden.float()
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.variance_epsilon)
        return self.weight * wide.to(hidden.dtype)


class _Rotary(nn.Module):
    """Cosine and sine of the angles of rotary positions, each (1, slots, head size) (Su et al. 2021)."""

    inv_freq: Tensor

    def __init__(self, size: int, theta: float) -> None:
        super().__init__()
        frequencies = 1.0 / (theta ** (torch.arange(0, size, 2, dtype=torch.float32, device="cpu") / size))
        self.register_buffer("inv_freq", frequencies, persistent=False)

    def forward(self, hidden: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        angles = (positions[..., None].float() * self.inv_freq).repeat(1, 1, 2)
        return angles.cos().to(hidden.dtype), angles.sin().to(hidden.dtype)


class Decoder(nn.Module):
    """A declared decoder with the weights' names of transformers; ``final_states`` is its forward pass."""

    def __init__(self, shape: Shape, config: Mapping[str, Any], files: Path) -> None:
        super().__init__()
        self.shape, self.content, self.files = shape, config, files
        kept = ("eos_token_id", "max_position_embeddings")
        self.config = SimpleNamespace(**{name: config[name] for name in kept})
        epsilon = config["rms_norm_eps"]
        self.model = nn.ModuleDict(
            {
                "embed_tokens": _Embedding(shape.vocabulary, shape.hidden),
                "layers": nn.ModuleList(_layer(shape, epsilon) for _ in range(shape.layers)),
                "norm": _Norm(shape.hidden, epsilon),
                "rotary_emb": _Rotary(shape.head_width, _theta(config)),
            }
        )
        self.lm_head = _Linear(shape.hidden, shape.vocabulary, bias=False)

    def tie(self) -> None:
        """Make both matrices of a tied vocabulary the same parameter."""
        if self.shape.tied:
            shared: Any = self.model["embed_tokens"].weight
            self.lm_head.weight = shared

    @property
    def device(self) -> torch.device:
        """The device of the weights."""
        return self.lm_head.weight.device

    @property
    def dtype(self) -> torch.dtype:
        """The type of the weights."""
        return self.lm_head.weight.dtype

    def num_parameters(self) -> int:
        """Parameters of the whole model; tied matrices count once."""
        return self.shape.parameters

    def get_output_embeddings(self) -> nn.Linear:
        """The layer that turns final states into logits."""
        return self.lm_head


def save_decoder(network: Decoder, folder: Path, dtype: str) -> None:
    """Write the weights in ``dtype`` and the configuration as transformers writes them."""
    content = {name: value for name, value in network.content.items() if name != "torch_dtype"}
    write_json(folder / "config.json", content | {"dtype": dtype})
    if (network.files / _GENERATION).exists():
        shutil.copyfile(network.files / _GENERATION, folder / _GENERATION)
    weights = {name: x.to(model.DTYPES[dtype]).contiguous() for name, x in network.state_dict().items()}
    if network.shape.tied:
        del weights["lm_head.weight"]
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def _layer(shape: Shape, epsilon: float) -> nn.ModuleDict:
    def linear(name: str) -> _Linear:
        sides = shape.matrices[name] if name not in ("o_proj", "down_proj") else shape.matrices[name][::-1]
        return _Linear(*sides, bias=shape.biased and name in ("q_proj", "k_proj", "v_proj"))

    attention = nn.ModuleDict({name: linear(name) for name in ("q_proj", "k_proj", "v_proj", "o_proj")})
    return nn.ModuleDict(
        {
            "self_attn": attention,
            "mlp": nn.ModuleDict({name: linear(name) for name in ("gate_proj", "up_proj", "down_proj")}),
            "input_layernorm": _Norm(shape.hidden, epsilon),
            "post_attention_layernorm": _Norm(shape.hidden, epsilon),
        }
    )


def load_decoder(opened: OpenedModel, dtype: str = "float32", where: str | None = None) -> Any:
    """The language model of a folder: a ``Decoder``, or else the class that ``model.load_model`` loads.

    Raises ``DataError`` as ``model.load_model`` does, which has the same arguments.
    """
    made = _decoder(opened, model.DTYPES[dtype]) if dtype in model.DTYPES else None
    return model.load_model(opened, dtype, where) if made is None else model.placed(made, where)


def _decoder(opened: OpenedModel, dtype: torch.dtype) -> Decoder | None:
    """The decoder of a plain folder; None if transformers must load it, or report an error."""
    config = opened.config.content
    try:
        weights = _weights(opened.files, dtype) if is_plain(opened) else {}
    except (DataError, OSError, SafetensorError):
        return None
    if not weights:
        return None
    shape = shape_of(config, "config.json")
    with torch.device("meta"):
        made = Decoder(shape, config, opened.files)
    tied = {"lm_head.weight": "model.embed_tokens.weight"} if shape.tied else {}
    sizes = {name: tensor.shape for name, tensor in made.state_dict().items() if name not in tied}
    if sizes != {name: tensor.shape for name, tensor in weights.items()}:
        return None
    made.load_state_dict(weights | {name: weights[other] for name, other in tied.items()}, assign=True)
    made.tie()
    return made


def is_plain(opened: OpenedModel) -> bool:
    """Return whether config.json describes a ``Decoder`` completely; the weights may still not fit."""
    config = opened.config.content
    try:
        shape = shape_of(config, "config.json")
    except DataError:
        return False
    heads, keys = shape.query_width // shape.head_width, shape.key_width // shape.head_width
    numbers: tuple[Any, ...] = (_theta(config), config.get("rms_norm_eps"), config.get("max_position_embeddings"))
    return (
        architecture_of(config.get("model_type")) is not None
        and config.get("hidden_act") == "silu"
        and config.get("layer_types") in (None, ["full_attention"] * shape.layers)
        and not (config.get("use_sliding_window", True) and config.get("sliding_window"))
        and not any(config.get(name) for name in _SPECIAL)
        and "eos_token_id" in config
        and type(config.get("tie_word_embeddings", False)) is bool
        and all(type(number) in (int, float) and number > 0 for number in numbers)
        and not (shape.hidden % heads or heads % keys or shape.head_width % 2)
    )


def _theta(config: Mapping[str, Any]) -> Any:
    """The base of the rotary angles, which transformers 5 writes in a separate field. None if not plain."""
    rope = config.get("rope_parameters")
    if rope is None:
        return config.get("rope_theta")
    is_plain = isinstance(rope, dict) and rope.keys() == {"rope_type", "rope_theta"} and "rope_theta" not in config
    return rope["rope_theta"] if is_plain and rope["rope_type"] == "default" else None


def _weights(folder: Path, dtype: torch.dtype) -> dict[str, Tensor]:
    """The tensors of a folder in the form of ``save_pretrained``, in ``dtype``; all other folders give none.

    A tensor whose type is not in ``model.DTYPES`` is left out. Raises ``DataError``, ``OSError`` or ``SafetensorError``
    for a broken file.
    """
    single, index = folder / "model.safetensors", folder / "model.safetensors.index.json"
    indices = [*folder.glob("*.safetensors.index.json")]
    if (folder / "adapter_config.json").exists() or indices != [] if single.exists() else indices != [index]:
        return {}
    found: dict[str, Tensor] = {}
    for path in [single] if single.exists() else model.weight_files(index):
        with safe_open(path, framework="pt") as file:
            found |= {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  # not a mapping
    return {name: x.to(dtype) for name, x in found.items() if x.dtype in model.DTYPES.values()}


def supports(network: nn.Module) -> bool:
    """Return whether ``final_states`` can run this model: a ``Decoder``, or a transformers model without gradients.

    It would skip the hooks of wrapped models and adapters.
    """
    config: Any = getattr(network, "config", None)
    known = architecture_of(getattr(config, "model_type", None))
    is_plain = known is not None and type(network).__name__ == known.causal and config.hidden_act == "silu"
    return isinstance(network, Decoder) or (is_plain and not torch.is_grad_enabled())


def final_states(network: nn.Module, batch: Any, cache: KVCache | None = None) -> Tensor:
    """The normed final hidden states at the batch's readings: (readings, hidden). Fills ``cache``, if given.

    The batch has ``input_ids`` and ``position_ids``, each int64 (1, slots), ``reads``, int64 (readings,), and a
    ``plan`` of the attention (``tree.attention``).
    """
    core: Any = network.model
    reads, place = torch.unique(batch.reads, return_inverse=True)
    hidden = core.embed_tokens(batch.input_ids[0])
    rotation = [x[0, :, None, : x.shape[-1] // 2] for x in core.rotary_emb(hidden, batch.position_ids)]
    size = 2 * rotation[0].shape[-1]
    plan = batch.plan
    for number, layer in enumerate(core.layers):
        attention = layer.self_attn
        normed = layer.input_layernorm(hidden)
        key = _rotate(_heads(attention.k_proj(normed), size), rotation)
        value = _heads(attention.v_proj(normed), size)
        if number == len(core.layers) - 1:
            plan = plan.select_queries(reads)
            hidden, normed, rotation = hidden[reads], normed[reads], [x[reads] for x in rotation]
        query = _rotate(_heads(attention.q_proj(normed), size), rotation)
        query, key, value = (x.transpose(0, 1)[None] for x in (query, key, value))
        if cache is not None:
            cache[number] = (key[0], value[0])
        attended = plan.attend(query, key, value, size**-0.5, number)[0].flatten(1)
        hidden = attention.o_proj(attended).add_(hidden)
        normed = layer.post_attention_layernorm(hidden)
        gate, up = layer.mlp.gate_proj(normed), layer.mlp.up_proj(normed)
        gate = silu(gate) * up if gate.requires_grad else silu(gate, inplace=True).mul_(up)
        hidden = layer.mlp.down_proj(gate).add_(hidden)
    states: Tensor = core.norm(hidden)[place]
    return states


def _heads(x: Tensor, size: int) -> Tensor:
    """(slots, heads * size) -> (slots, heads, size)"""
    return x.view(len(x), -1, size)


def _rotate(x: Tensor, rotation: list[Tensor]) -> Tensor:
    """Rotary embedding of (slots, heads, size); ``rotation`` holds cosine and sine, each (slots, 1, size / 2)."""
    if x.requires_grad:
        return _Rotation.apply(x, *rotation)  # type: ignore[no-any-return, no-untyped-call]
    cosine, sine = rotation
    left, right = x.chunk(2, dim=-1)
    out = torch.empty_like(x)
    new_left, new_right = out.chunk(2, dim=-1)
    torch.mul(left, cosine, out=new_left)
    torch.mul(right, cosine, out=new_right)
    new_left.addcmul_(right, sine, value=-1)
    new_right.addcmul_(left, sine)
    return out


class _Rotation(torch.autograd.Function):
    """``_rotate`` with gradients, which rotate back."""

    @staticmethod
    def forward(context: Any, x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
        context.rotation = cosine, sine
        return _rotate(x.detach(), [cosine, sine])

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        cosine, sine = context.rotation
        return _rotate(gradient.detach(), [cosine, -sine]), None, None
