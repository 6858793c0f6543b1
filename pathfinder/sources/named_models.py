"""Models by name: a folder, a Hub repository at a revision, or a published PRM."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from ground.io import DataError
from ground.text import UsageError, meant
from pathfinder.core.hub import is_cached, is_commit, write_hub_model
from pathfinder.core.params import Download, Source
from pathfinder.sources.hub import fetch_model, look_up, require_cache_space


@dataclass(frozen=True, slots=True)
class Repository:
    """A repository of the Hub at a revision, the files to fetch (none: all that are used) and parts from elsewhere.

    ``title`` names the repository that people look for, if the weights are in a different one.
    """

    name: str
    revision: str
    files: tuple[str, ...] = ()
    parts: Mapping[str, Repository] = field(default_factory=dict)
    title: str = ""


_LORA = ("checkpoint-2127/adapter_config.json", "checkpoint-2127/adapter_model.safetensors")
PUBLISHED = {
    "pathfinder-prm-7b": Repository("declare-lab/PathFinder-PRM-7B", "84a7412511836cb4ed74377d9c703eb5638d814c"),
    "math-shepherd": Repository(
        "peiyi9979/math-shepherd-mistral-7b-prm",
        "refs/pr/5",
        parts={
            "tokenizer": Repository("OpenRLHF/Mistral-7b-PRM-Math-Shepherd", "41d1ad86cc6aa4aa18006d2b2b51537138d22d26")
        },
    ),
    "math-psa": Repository(
        "Qwen/Qwen2.5-Math-7B-Instruct",
        "ef9926d75ab1d54532f6a30dd5e760355eb9aa4d",
        parts={"lora": Repository("openreasoner/Math-psa", "549f4cd6f4f75367f8466ac53bcdb7532897b392", _LORA)},
        title="openreasoner/Math-psa",
    ),
    "rlhflow-mistral": Repository("RLHFlow/Llama3.1-8B-PRM-Mistral-Data", "main"),
    "rlhflow-deepseek": Repository("RLHFlow/Llama3.1-8B-PRM-Deepseek-Data", "f645c109984a72255d2e01f980fd86b85da48f14"),
    "skywork": Repository("Skywork/Skywork-o1-Open-PRM-Qwen-2.5-7B", "refs/pr/4"),
    "reasoneval": Repository("GAIR/ReasonEval-7B", "0a6556ef5c937bb17d265ba681b501fd60056cfe"),
    "llemma": Repository(
        "ScalableMath/llemma-7b-prm-prm800k-level-1to3-hf",
        "refs/pr/2",
        parts={"tokenizer": Repository("EleutherAI/llemma_7b", "e223eee41c53449e6ea6548c9b71c50865e4a85c")},
    ),
    "qwen-prm": Repository("Qwen/Qwen2.5-Math-PRM-7B", "98218b1f4b7ca4cca7ec47348b3f8b457a679d97"),
    "qwen-prm800k": Repository("Qwen/Qwen2.5-Math-7B-PRM800K", "9d6e292f6ccfd474fa44461ce6d5b80d08d8f3c7"),
}
"""The published PRMs by name, as in the profile ``evaluate-published``; four revisions are branches, which can move."""
_DEMO = "pathfinder/demo_model"
"""The small PRM of this package, under its name in the help's examples."""
_NAME_OF = {repository.title or repository.name: name for name, repository in PUBLISHED.items()}
_SETTINGS = Download.model_construct(world="", retries=3, timeout_s=30.0, sources=[])


def published_name(name: str | Path) -> str | None:
    """The name in ``PUBLISHED`` of a PRM given by this name or its repository; not if that is a folder."""
    text = str(name)
    return None if Path(name).is_dir() else text if text in PUBLISHED else _NAME_OF.get(text)


def model_folder(name: str | Path, revision: str | None = None) -> Path:
    """The folder of the model ``name``: itself, or for a repository a folder that points to the Hub's cache.

    A repository is ``owner/name`` or a name in ``PUBLISHED``. It is fetched on first use. After that, a full commit id
    needs no network. The default revision is the one in ``PUBLISHED`` or, for any other repository, ``main``.
    ``pathfinder/demo_model`` is the small PRM of this package, in any folder.
    Raises ``DataError`` for a name that is none of these, or a repository that cannot be read; ``TransientError`` if
    the Hub cannot be reached.
    """
    text, path = str(name), Path(name)
    if text == _DEMO and not path.is_dir():  # outside a clone
        path = Path(__file__).parents[1] / "demo_model"
    if path.is_dir():
        if revision is not None:
            raise UsageError(f"{path}: a folder has no revision; leave it out, or name a repository of the Hub")
        return path
    if (known := published_name(text)) is not None:
        return _fetched(PUBLISHED[known], revision)
    owner = text.partition("/")[0]
    if not re.fullmatch(r"[\w.-]+/[\w.-]+", text) or Path(owner).is_dir() or owner in ("models", "artifacts"):
        near = meant(text, [*PUBLISHED, *map(str, path.parent.glob("*/"))])
        raise DataError(
            f"{text}: no such folder; {near}name a model folder or a repository of the Hub such as owner/name; a PRM "
            f"may also be {_DEMO}, models/full, which `make run` in a clone trains, or a published one such as "
            "qwen-prm (docs/benchmarks.md#published-prms)"
        )
    return _fetched(Repository(text, "main"), revision)


def _fetched(repository: Repository, revision: str | None) -> Path:
    """The folder that points to the repository in the Hub's cache, with its parts, fetched if they are missing."""
    model = _source(repository.name, replace(repository, revision=revision or repository.revision))
    name = repository.title or repository.name  # the base model's own folder has no parts
    folder = _pointer(name, commit) if is_commit(commit := model.revision or "") else None
    if folder is None or not is_cached(folder):
        listing = look_up(model, _SETTINGS)
        require_cache_space({model.name: listing})
        folder = _pointer(name, listing.revision)
        write_hub_model(folder, fetch_model(model, listing, _SETTINGS))
    for place, other in repository.parts.items():
        if not is_cached(folder / place):
            part = _source(f"{repository.name}/{place}", other)
            write_hub_model(folder / place, fetch_model(part, look_up(part, _SETTINGS), _SETTINGS))
    return folder


def _source(name: str, repository: Repository) -> Source:
    return Source.model_construct(
        _fields_set=None,
        name=name,
        kind="hub",
        location=repository.name,
        revision=repository.revision,
        licence="",
        files=dict.fromkeys(repository.files),
    )


def _pointer(repository: str, commit: str) -> Path:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "pathfinder" / "models" / repository / commit
