"""Tiny random models in the shape of published ones, in the files of their Hub repositories.

Heads, grouped keys, vocabulary rows, positions, tied embeddings, precision and sampling defaults are the published
ones, as is the tokenizer. Only the width of a head, the inner width and the number of layers are tiny.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from ground.io import DataError, atomic_folder
from tests.campaigns.rehearsal import material

_VERSION = "3"  # part of the cache's folder names: raise it after a change of random_models.py


@dataclass(frozen=True)
class Published:
    """The entries of a published model's config.json and generation_config.json that matter here."""

    heads: int
    keys: int
    positions: int
    rows: int = 152_064
    tied: bool = False
    tokenizer: str = "qwen"
    sampling: dict[str, Any] = field(default_factory=dict)


_CHAT = {"do_sample": True, "repetition_penalty": 1.05, "temperature": 0.7, "top_p": 0.8, "top_k": 20}
_MATH = {"do_sample": False, "repetition_penalty": 1.0}
_THINK = {"do_sample": True, "temperature": 0.6, "top_p": 0.95}
PUBLISHED = {
    "Qwen/Qwen2.5-Math-7B-Instruct": Published(28, 4, 4096, tokenizer="qwen-math", sampling=_MATH),
    "declare-lab/PathFinder-PRM-7B": Published(28, 4, 4096, tokenizer="pathfinder", sampling=_MATH),
    "Qwen/Qwen2.5-Math-1.5B-Instruct": Published(12, 2, 4096, 151_936, True, "qwen-math", _MATH),
    "Qwen/Qwen2.5-7B-Instruct": Published(28, 4, 32_768, sampling=_CHAT),
    "Qwen/Qwen2.5-1.5B-Instruct": Published(12, 2, 32_768, 151_936, True, sampling=_CHAT),
    "Qwen/Qwen2.5-14B-Instruct": Published(40, 8, 32_768, sampling=_CHAT),
    "Qwen/Qwen2.5-32B-Instruct": Published(40, 8, 32_768, sampling=_CHAT),
    "Qwen/QwQ-32B-Preview": Published(40, 8, 32_768, sampling=_CHAT),
    "deepseek-ai/DeepSeek-R1-Distill-Qwen-32B": Published(40, 8, 131_072, tokenizer="deepseek-r1", sampling=_THINK),
    "deepseek-ai/DeepSeek-R1-Distill-Qwen-14B": Published(40, 8, 131_072, tokenizer="deepseek-r1", sampling=_THINK),
    "deepseek-ai/DeepSeek-R1-Distill-Qwen-7B": Published(28, 4, 131_072, tokenizer="deepseek-r1", sampling=_THINK),
}
"""From the config.json and generation_config.json of each repository."""


def model_folder(name: str, repository: str) -> Path:
    """The files of a repository that ``download`` stores as ``models/<name>``, made once per cache folder.

    Raises ``DataError`` for a repository of unknown shape.
    """
    folder = material.cache() / f"models-{_VERSION}" / repository
    if folder.exists():
        return folder
    from tests.baselines.model_folders import FOLDERS  # imports torch, which a later rehearsal does not need
    from tests.campaigns.rehearsal import random_models

    system, _, part = name.partition("/")
    if repository in PUBLISHED:
        write = partial(random_models.write_qwen, shape=PUBLISHED[repository])
    elif name == "math-psa/lora":
        write = partial(random_models.write_lora, shape=PUBLISHED["Qwen/Qwen2.5-Math-7B-Instruct"])
    elif system in FOLDERS and part in ("", "tokenizer"):
        write = partial(random_models.write_baseline, system=system, part=part)
    else:
        raise DataError(
            f"{repository}: its shape is unknown; add heads, positions and sampling to PUBLISHED in {__name__}"
        )
    with atomic_folder(folder) as temporary:
        write(temporary)
    return folder
