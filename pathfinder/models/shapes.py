"""Sizes of models: from their config.json or, for published models, from a table, before they are fetched."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from ground.io import DataError, read_json
from pathfinder.core.hub import MANIFEST, downloaded_sources
from pathfinder.core.params import Source
from pathfinder.models.architectures import Shape, shape_of
from pathfinder.models.folders import open_model

_QWEN_1B = Shape("", 1536, 8960, 28, 1536, 256, 151_936, tied=True, biased=True)
_QWEN_7B = Shape("", 3584, 18944, 28, 3584, 512, 152_064, tied=False, biased=True)
_QWEN_32B = Shape("", 5120, 27648, 64, 5120, 1024, 152_064, tied=False, biased=True)
_LLAMA_8B = Shape("", 4096, 14336, 32, 4096, 1024, 128_256, tied=False, biased=False)
_MISTRAL_7B = replace(_LLAMA_8B, vocabulary=32_000)
_LLEMMA_7B = Shape("", 4096, 11008, 32, 4096, 4096, 32_016, tied=False, biased=False)
KNOWN = {
    name: replace(shape, name=name)
    for name, shape in {
        "Qwen/Qwen2.5-7B-Instruct": _QWEN_7B,
        "Qwen/Qwen2.5-Math-7B-Instruct": _QWEN_7B,
        "Qwen/Qwen2.5-1.5B-Instruct": _QWEN_1B,
        "Qwen/Qwen2.5-Math-1.5B-Instruct": _QWEN_1B,
        "deepseek-ai/DeepSeek-R1-Distill-Qwen-32B": _QWEN_32B,
        "declare-lab/PathFinder-PRM-7B": _QWEN_7B,
        "Qwen/Qwen2.5-Math-PRM-7B": _QWEN_7B,
        "Qwen/Qwen2.5-Math-7B-PRM800K": _QWEN_7B,
        "Skywork/Skywork-o1-Open-PRM-Qwen-2.5-7B": _QWEN_7B,
        "RLHFlow/Llama3.1-8B-PRM-Mistral-Data": _LLAMA_8B,
        "RLHFlow/Llama3.1-8B-PRM-Deepseek-Data": _LLAMA_8B,
        "peiyi9979/math-shepherd-mistral-7b-prm": _MISTRAL_7B,
        "GAIR/ReasonEval-7B": _MISTRAL_7B,
        "ScalableMath/llemma-7b-prm-prm800k-level-1to3-hf": _LLEMMA_7B,
    }.items()
}
"""The published models that the profiles name, so that memory can be planned before anything is fetched."""


def fetched_shape(folder: Path) -> Shape:
    """The shape of a model folder that a stage is about to load."""
    return shape_of(open_model(folder).config.content, str(folder))


def planned_shape(name: str, sources: list[Source], root: Path = Path(".")) -> Shape:
    """The shape of the model ``models/<name>`` of the source catalogue, fetched or not.

    Searches the models that the project ships, ``KNOWN``, and the outputs of the download stage unless they belong to a
    different profile. Raises ``DataError`` if none of these contains the model.
    """
    location = next((source.location for source in sources if source.name == f"models/{name}"), f"models/{name}")
    if (root / location / "config.json").is_file():
        return shape_of(read_json(root / location / "config.json"), location)
    if location in KNOWN:
        return KNOWN[location]
    if downloaded_sources(root).get(f"models/{name}", {}).get("location") == location:
        return replace(fetched_shape(root / MANIFEST.parent / "models" / name), name=location)
    raise DataError(f"{location}: its size is unknown until it is fetched; run `pathfinder run download` first")
