"""Open a PRM by its name: a folder, or a repository of the Hub."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pathfinder.baselines.opening import open_prm
from pathfinder.core.steps import PRM
from pathfinder.models.cards import confined
from pathfinder.models.folders import stored_dtype
from pathfinder.prm.opening import DEFAULTS
from pathfinder.sources.named_models import model_folder
from pathfinder.tree.passes import Mode


@contextmanager
def open_named(
    name: str,
    revision: str | None = None,
    dtype: str = "auto",
    url: str | None = None,
    system: str | None = None,
    mode: Mode = Mode.BOTH,
    preset: str = "default",
) -> Iterator[PRM]:
    """``open_prm`` for the folder or the repository ``name``, on a GPU of its own, or behind the server at ``url``.

    ``dtype`` "auto" is that of the files. Raises ``DataError`` as ``open_prm`` and ``model_folder`` do.
    """
    folder = model_folder(name, revision)
    given = {"dtype": stored_dtype(folder) if dtype == "auto" else dtype}
    server = {"engine": "vllm", "base_url": url} if url else {}
    with (
        confined(0 if url else 1),
        open_prm(folder, DEFAULTS.model_copy(update=given | server), system, mode, preset) as prm,
    ):
        yield prm
