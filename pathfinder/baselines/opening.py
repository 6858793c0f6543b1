"""The door to everything that scores steps: PathFinder-PRM in this process or behind a server, or a published PRM.

``open_prm`` opens a folder. ``named`` finds what a person names, and ``open_named`` opens it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ground.io import DataError
from ground.text import printable
from pathfinder.core.params import Score
from pathfinder.core.steps import PRM
from pathfinder.models.cards import confined
from pathfinder.models.folders import MODEL_FILE, OpenedModel, open_model
from pathfinder.models.imports import uncollected
from pathfinder.prm.opening import CHECKPOINTS, DEFAULTS, open_pathfinder
from pathfinder.tree.passes import Mode

if TYPE_CHECKING:
    from pathfinder.baselines.adapter import Method


@dataclass(frozen=True, slots=True)
class Named:
    """A PRM that a name stands for: its model, its precision, and which published PRM it is (None: PathFinder-PRM).

    ``titles`` are its names in the paper's tables.
    """

    model: OpenedModel
    dtype: str
    system: str | None
    titles: tuple[str, ...]

    def settings(self, url: str | None = None) -> Score:
        """Settings for scoring with it in this process, or behind the server at ``url``.

        Raises ``DataError`` for a published PRM behind a server.
        """
        if url and self.system:
            raise DataError(f"--url: {self.system} is scored in this process; leave the option out")
        server: dict[str, Any] = {"engine": "vllm", "base_url": url} if url else {}
        return DEFAULTS.model_copy(update={"dtype": self.dtype} | server)

    def warn(self) -> None:
        """Print a line on standard error if nothing says that the folder holds a PRM."""
        if not (self.system or self.titles or self.model.is_described or _is_checkpoint(self.model)):
            print(
                printable(
                    f"warning: {self.model.folder} has no {MODEL_FILE}, which training writes; unless it is a copy of "
                    "the authors' checkpoint (--system pathfinder-prm-7b), its scores may mean nothing"
                ),
                file=sys.stderr,
            )


def _is_checkpoint(model: OpenedModel) -> bool:
    from pathfinder.sources.named_models import published_name

    return model.origin is not None and published_name(model.origin.repo) in CHECKPOINTS


def named(name: str | Path, revision: str | None = None, dtype: str = "auto", system: str | None = None) -> Named:
    """Open the model that ``name`` stands for: a folder, a repository of the Hub, or the name of a published PRM.

    ``dtype`` "auto" is the precision of the files. ``system`` says which published PRM a folder or a repository holds;
    a published PRM's own name or repository says it too. Raises ``DataError`` as ``model_folder`` and ``open_model``
    do, and for an unknown system.
    """
    known, folder = system, Path(name)
    is_folder = revision is None and folder.is_dir()
    if not is_folder:
        from pathfinder.sources.named_models import model_folder, published_name  # fetches from the Hub

        known = system or published_name(name)
    titles = _titles(known)  # an unknown system is refused before anything is fetched
    model = open_model(folder if is_folder else model_folder(name, revision))
    precision = model.config.dtype if dtype == "auto" else dtype
    return Named(model, precision, None if known in CHECKPOINTS else known, titles)


def _titles(system: str | None) -> tuple[str, ...]:
    """The names of a published PRM in the paper's tables; raises ``DataError`` for an unknown system."""
    if system is None or system in CHECKPOINTS:
        return (CHECKPOINTS[system],) if system else ()
    from pathfinder.baselines.registry import system as system_named  # imports every published PRM

    return system_named(system).titles


@contextmanager
def open_prm(
    folder: Path,
    settings: Score = DEFAULTS,
    system: str | None = None,
    mode: Mode = Mode.BOTH,
    preset: str = "default",
) -> Iterator[PRM]:
    """The scorer of the model in ``folder``: ours, or the published PRM ``system`` used as its authors do.

    A published PRM runs in this process, whatever ``settings.engine`` is, and has no mode but ``both``; its prompt does
    not depend on ``preset`` (a name in ``PRESETS``). Raises ``DataError`` for an unknown system, another mode, or a
    folder that does not hold the model.
    """
    method = _method(system, mode)  # a wrong name is refused before the folder is opened
    with _open(open_model(folder), settings, method, mode, preset) as scorer:
        yield scorer


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
    """The scorer of what ``named`` finds, on a GPU of its own, or behind the server at ``url``.

    Raises ``DataError`` as ``open_prm`` and ``named`` do.
    """
    found = named(name, revision, dtype, system)
    settings, method = found.settings(url), _method(found.system, mode)
    with confined(0 if url else 1), _open(found.model, settings, method, mode, preset) as scorer:
        found.warn()
        yield scorer


def _method(system: str | None, mode: Mode) -> Method | None:
    """The authors' way to use the published PRM ``system``; None for PathFinder-PRM."""
    if system is None:
        return None
    if mode is not Mode.BOTH:
        raise DataError(f"mode {mode} asks for labels, which {system} does not have; use mode {Mode.BOTH}")
    from pathfinder.baselines.registry import system as system_named

    return system_named(system).methods["authors"]


@contextmanager
def _open(model: OpenedModel, settings: Score, method: Method | None, mode: Mode, preset: str) -> Iterator[PRM]:
    if method is None:
        with open_pathfinder(model, settings, mode, preset) as scorer:
            yield scorer
        return
    with uncollected():  # a PRM behind a server needs no torch
        from pathfinder.baselines.scorer import BaselineScorer
    yield BaselineScorer(model, method, settings.dtype, settings.token_budget)
