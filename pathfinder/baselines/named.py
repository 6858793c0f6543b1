"""A PRM by its name: a folder, a repository of the Hub, or a published PRM."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ground.text import UsageError, printable
from pathfinder.baselines.opening import method_of, open_with
from pathfinder.core.params import Score
from pathfinder.core.steps import PRM
from pathfinder.models.cards import confined
from pathfinder.models.folders import MODEL_FILE, OpenedModel, open_model
from pathfinder.prm.opening import CHECKPOINTS, DEFAULTS
from pathfinder.tree.passes import Mode


@dataclass(frozen=True, slots=True)
class Named:
    """A PRM found by name: its model, its precision, and the published PRM that it is (None: PathFinder-PRM).

    ``titles`` are its names in the paper's tables.
    """

    model: OpenedModel
    dtype: str
    system: str | None
    titles: tuple[str, ...]

    def settings(self, url: str | None = None) -> Score:
        """Settings for scoring with it in this process, or behind the server at ``url``.

        Raises ``UsageError`` for a published PRM behind a server.
        """
        if url and self.system:
            raise UsageError(f"--url: {self.system} is scored in this process; leave the option out")
        server: dict[str, Any] = {"engine": "vllm", "base_url": url} if url else {}
        return DEFAULTS.model_copy(update={"dtype": self.dtype} | server)

    def warn(self) -> None:
        """Print a line on standard error if nothing shows that the folder holds a PRM."""
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


def _has_token_classes(config: Mapping[str, Any]) -> bool:
    """Return whether config.json names a token classification model, such as ``Qwen2ForTokenClassification``."""
    names = config.get("architectures")
    return isinstance(names, list) and any(str(name).endswith("ForTokenClassification") for name in names)


def named(name: str | Path, revision: str | None = None, dtype: str = "auto", system: str | None = None) -> Named:
    """Open the model that ``name`` stands for: a folder, a repository of the Hub, or the name of a published PRM.

    ``dtype`` "auto" is the precision of the files. ``system`` says which published PRM a folder or a repository holds;
    a published PRM's own name or repository and the config.json of a TRL checkpoint say this as well. Raises
    ``DataError`` as ``model_folder`` and ``open_model`` do, and for an unknown system.
    """
    known, folder = system, Path(name)
    is_folder = revision is None and folder.is_dir()
    if not is_folder:
        from pathfinder.sources.named_models import model_folder, published_name  # fetches from the Hub

        known = system or published_name(name)
    titles = _titles(known)  # an unknown system is refused before anything is fetched
    model = open_model(folder if is_folder else model_folder(name, revision))
    if known is None and _has_token_classes(model.config.content):
        known = "trl"
    precision = model.config.dtype if dtype == "auto" else dtype
    return Named(model, precision, None if known in CHECKPOINTS else known, titles)


def _titles(system: str | None) -> tuple[str, ...]:
    """The names of a published PRM in the paper's tables; raises ``DataError`` for an unknown system."""
    if system is None or system in CHECKPOINTS:
        return (CHECKPOINTS[system],) if system else ()
    from pathfinder.baselines.registry import system as system_named  # imports every published PRM

    return system_named(system).titles


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
    """The scorer of the PRM that ``named`` finds, on a GPU of its own, or behind the server at ``url``.

    Raises ``DataError`` as ``open_prm`` and ``named`` do, and ``UsageError`` for a published PRM with another prompt.
    """
    found = named(name, revision, dtype, system)
    if found.system and preset != "default":
        raise UsageError(f"--preset: {found.system} is asked as its authors do; leave the option out")
    settings, method = found.settings(url), method_of(found.system, mode)
    with confined(0 if url else 1), open_with(found.model, settings, method, mode, preset) as scorer:
        found.warn()
        yield scorer
