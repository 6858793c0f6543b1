"""Open a PRM by its name: a folder, a repository of the Hub, or one of the published PRMs."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ground.io import DataError
from ground.text import printable
from pathfinder.baselines.opening import open_prm
from pathfinder.baselines.registry import system as system_named
from pathfinder.core.hub import read_hub_model
from pathfinder.core.params import Score
from pathfinder.core.steps import PRM
from pathfinder.models.cards import confined
from pathfinder.models.description import MODEL_FILE
from pathfinder.models.folders import resolve, stored_dtype
from pathfinder.prm.checkpoints import CHECKPOINTS
from pathfinder.prm.opening import DEFAULTS
from pathfinder.sources.named_models import model_folder, published_name
from pathfinder.tree.passes import Mode


@dataclass(frozen=True, slots=True)
class Named:
    """A PRM that a name stands for: its folder, its precision, and which published PRM it is (None: PathFinder-PRM).

    ``titles`` are its names in the paper's tables.
    """

    folder: Path
    dtype: str
    system: str | None
    titles: tuple[str, ...]

    def settings(self, url: str | None = None) -> Score:
        """How to score with it: in this process, or behind the server at ``url``.

        Raises ``DataError`` for a published PRM behind a server.
        """
        if url and self.system:
            raise DataError(f"--url: {self.system} is scored in this process; leave the option out")
        server: dict[str, Any] = {"engine": "vllm", "base_url": url} if url else {}
        return DEFAULTS.model_copy(update={"dtype": self.dtype} | server)

    def warn(self) -> None:
        """Print a line on standard error if nothing says that the folder holds a PRM."""
        pointer = read_hub_model(self.folder)
        is_known = self.system or self.titles or (pointer and published_name(pointer.repo) in CHECKPOINTS)
        if not is_known and not (resolve(self.folder) / MODEL_FILE).exists():
            print(
                printable(
                    f"warning: {self.folder} has no {MODEL_FILE}, which training writes; unless it is a copy of the "
                    "authors' checkpoint (--system pathfinder-prm-7b), its scores may mean nothing"
                ),
                file=sys.stderr,
            )


def named(name: str | Path, revision: str | None = None, dtype: str = "auto", system: str | None = None) -> Named:
    """Find the folder of ``name`` as ``model_folder`` does, and what it holds.

    ``dtype`` "auto" is that of the files. ``system`` says which published PRM a folder or a repository holds; a
    published PRM's own name or repository says it too. Raises ``DataError`` as ``model_folder`` does, and for an
    unknown system.
    """
    known = system or published_name(name)
    checkpoint = CHECKPOINTS.get(known or "")
    other = None if known is None or checkpoint else system_named(known)
    folder = model_folder(name, revision)
    return Named(
        folder,
        stored_dtype(folder) if dtype == "auto" else dtype,
        other.name if other else None,
        other.titles if other else (checkpoint,) if checkpoint else (),
    )


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
    """``open_prm`` for what ``named`` finds, on a GPU of its own, or behind the server at ``url``.

    Raises ``DataError`` as ``open_prm`` and ``named`` do.
    """
    found = named(name, revision, dtype, system)
    with confined(0 if url else 1), open_prm(found.folder, found.settings(url), found.system, mode, preset) as prm:
        found.warn()
        yield prm
