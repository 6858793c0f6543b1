"""Loads model folders and adds the label tokens to a model.

It reads only safetensors weights, and never runs code of a model folder.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch

from ground.io import DataError, read_json
from ground.text import lacks_memory
from pathfinder.core.prompts import MASK
from pathfinder.models.folders import OpenedModel
from pathfinder.models.tokens import add_label_tokens, silence

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerFast

DTYPES = {name: getattr(torch, name) for name in ("float32", "bfloat16", "float16", "float64")}
_SMALL = 50_000_000
"""A model with fewer parameters runs on one thread. A second one makes it at most 1.6 times as fast, but ten times
slower when another process competes for the core, because threads that wait for each other spin."""


def device() -> Literal["cpu", "cuda"]:
    """The device of models: the GPU, or the CPU if there is no GPU."""
    return "cuda" if torch.cuda.is_available() else "cpu"


def load_model(
    model: OpenedModel, dtype: str = "float32", where: str | None = None, kind: Any = None, **more: Any
) -> PreTrainedModel:
    """The causal language model of a folder in transformers, in evaluation mode, where ``placed`` puts it.

    ``kind`` is a different class of transformers, and ``more`` are arguments for ``read_model``. Raises ``DataError``
    for an unknown dtype, and for a folder without safetensors weights or with broken files.
    """
    from transformers import AutoModelForCausalLM  # takes seconds; a declared decoder does not need it

    if dtype not in DTYPES:
        raise DataError(f"unknown dtype {dtype!r}; expected one of {', '.join(DTYPES)}")
    path = model.files
    if not any(path.glob("*.safetensors")):
        raise DataError(
            f"{path}: no safetensors weights; other formats are refused (they can run code). For a model of the Hub, "
            "leave `files` of its source in download.sources empty, and run the download stage again"
        )
    return placed(read_model(kind or AutoModelForCausalLM, path, dtype, **more), where)  # type: ignore[no-any-return]


def placed(network: Any, where: str | None) -> Any:
    """A network in evaluation mode on ``where`` (default: ``device()``).

    On the CPU, a small network sets torch to one thread, whatever ``OMP_NUM_THREADS`` says.
    """
    place = where or device()
    if place == "cpu" and network.num_parameters() < _SMALL:
        torch.set_num_threads(1)
    return network.to(place).eval()


def read_model(kind: Any, path: Path, dtype: str, new: Sequence[str] = (), **more: Any) -> Any:
    """A model of the transformers class ``kind`` from the files in ``path``, with ``more`` arguments for its loader.

    The files may lack the ``new`` weights, which transformers then draws. Raises ``DataError`` for broken files, and if
    the files lack further weights (transformers would draw them too).
    """
    silence()
    for index in path.glob("*.safetensors.index.json"):
        weight_files(index)
    try:
        model, found = kind.from_pretrained(
            path,
            dtype=DTYPES[dtype],
            trust_remote_code=False,
            use_safetensors=True,
            local_files_only=True,
            output_loading_info=True,
            **more,
        )
    except Exception as error:  # transformers passes on any error that a setting of config.json causes
        if lacks_memory(error):
            raise
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise DataError(f"{path}: the model cannot be loaded ({reason}); fetch or create its files again") from error
    if missing := sorted(set(found["missing_keys"]) - set(new)):
        raise DataError(f"{path}: the weights have no {', '.join(missing[:3])} …; fetch or create them again")
    return model


def weight_files(index: Path) -> list[Path]:
    """The files that an index names.

    Raises ``DataError`` unless they are safetensors files of its folder: transformers unpickles any other file.
    """
    content = read_json(index)
    names = content.get("weight_map") if isinstance(content, dict) else None
    files = names.values() if isinstance(names, dict) else [None]
    if not all(isinstance(file, str) and file.endswith(".safetensors") and "/" not in file for file in files):
        raise DataError(f"{index}: names weights that are no safetensors files of its folder; fetch the model again")
    return sorted({index.parent / str(file) for file in files})


def longest(config: Any) -> int:
    """The longest text in tokens that a model with this transformers configuration reads as a tree.

    A sliding window is a limit, because a node of a tree sees all its ancestors.
    """
    most = 2**31
    limits = (getattr(config, name, None) or most for name in ("max_position_embeddings", "sliding_window"))
    return int(min(limits))


@torch.no_grad()
def add_labels(model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast) -> list[str]:
    """Add the missing label tokens to tokenizer and model, and return those added.

    The matrices grow only if they have no spare rows. A new ``<extra>`` starts from the input row of the padding token;
    the other two keep the rows at their ids (``prepare_model.py``). Raises ``DataError`` without a padding token.
    """
    added = add_label_tokens(tokenizer)
    whole: Any = model
    if len(tokenizer) > whole.get_input_embeddings().weight.shape[0]:
        whole.resize_token_embeddings(len(tokenizer))
    if MASK in added:
        if tokenizer.pad_token_id is None:
            raise DataError("the tokenizer has no padding token, whose row <extra> starts from; set pad_token")
        rows = whole.get_input_embeddings().weight
        rows[tokenizer.convert_tokens_to_ids(MASK)] = rows[tokenizer.pad_token_id]
    return added
