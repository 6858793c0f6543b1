"""Models by the names that people use: a folder, or a repository of the Hub at a revision."""

from __future__ import annotations

import os
import re
from pathlib import Path

from pathfinder.core.hub import HUB_FILE, is_commit, write_hub_model
from pathfinder.core.io import DataError
from pathfinder.core.params import Download, Source
from pathfinder.sources.hub import fetch_model, look_up, require_cache_space

PUBLISHED = {"declare-lab/PathFinder-PRM-7B": "84a7412511836cb4ed74377d9c703eb5638d814c"}
"""The authors' checkpoint and the commit that is used unless another revision is named."""
_SETTINGS = Download.model_construct(world="", retries=3, timeout_s=30.0, sources=[])


def model_folder(name: str | Path, revision: str | None = None) -> Path:
    """The folder of the model ``name``: itself, or for ``owner/name`` a folder that points to the Hub's cache.

    A repository is fetched on first use. After that, a full commit id needs no network. The default revision of the
    authors' checkpoint is its commit in ``PUBLISHED``, that of other repositories is ``main``. Raises ``DataError`` for
    a name that is neither, or a repository that cannot be read; ``TransientError`` if the Hub cannot be reached.
    """
    text, path = str(name), Path(name)
    if path.is_dir():
        if revision is not None:
            raise DataError(f"{path}: a folder has no revision; leave it out, or name a repository of the Hub")
        return path
    owner, _, rest = text.partition("/")
    if not re.fullmatch(r"[\w.-]+/[\w.-]+", text) or Path(owner).is_dir() or owner in ("models", "artifacts"):
        raise DataError(f"{text}: no such folder; name a model folder, or a repository of the Hub such as owner/name")
    revision = revision or PUBLISHED.get(text, "main")
    if is_commit(revision) and (known := _pointer(owner, rest, revision) / HUB_FILE).is_file():
        return known.parent
    source = Source.model_construct(
        _fields_set=None, name=text, kind="hub", location=text, revision=revision, licence="", files={}
    )
    listing = look_up(source, _SETTINGS)
    require_cache_space({text: listing})
    folder = _pointer(owner, rest, listing.revision)
    write_hub_model(folder, fetch_model(source, listing, _SETTINGS))
    return folder


def _pointer(owner: str, name: str, commit: str) -> Path:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "pathfinder" / "models" / owner / name / commit
