"""Open PathFinder-PRM in this process or behind a server. ``pathfinder.baselines.opening`` adds the published PRMs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pathfinder.core.params import Score
from pathfinder.engines.vllm_server import gpus_of, vllm_servers
from pathfinder.models.folders import longest_context
from pathfinder.models.imports import uncollected
from pathfinder.tree.passes import Mode

if TYPE_CHECKING:
    from pathfinder.prm.scoring import Scorer
    from pathfinder.prm.served_scoring import ServedScorer

_LOCAL: dict[str, Any] = {"engine": "local", "processes": 1, "dtype": "float32", "token_budget": 16384}
DEFAULTS = Score.model_construct(**_LOCAL, base_url="", concurrency=32)
"""Settings for scoring without a ``params.yaml``. They cannot start a server, so they have no ``vllm``."""


def cards_needed(settings: Score) -> int:
    """The number of GPUs that one process needs to open a PRM with these settings."""
    if settings.engine == "local":
        return 1
    return 0 if settings.base_url else gpus_of(settings.vllm)


@contextmanager
def open_pathfinder(
    folder: Path, settings: Score = DEFAULTS, mode: Mode = Mode.BOTH, preset: str = "default"
) -> Iterator[Scorer | ServedScorer]:
    """The scorer of the PathFinder-PRM in ``folder``; a vLLM server that it starts ends with the block.

    ``preset`` is a name in ``PRESETS``. Raises ``DataError`` if the folder holds no such model or a server offers
    another one.
    """
    if settings.engine == "local":
        with uncollected():  # a PRM behind a server needs no torch
            from pathfinder.prm.scoring import Scorer
        yield Scorer(folder, preset, settings.dtype, settings.token_budget, mode=mode)
        return
    from pathfinder.prm.served_scoring import ServedScorer  # its client takes a second to load

    with ExitStack() as stack:
        urls = [settings.base_url]
        if not settings.base_url:
            longest = longest_context(folder)
            logs = Path(".pathfinder/vllm") / folder.name
            urls = stack.enter_context(vllm_servers(folder, folder.name, longest, settings.vllm, logs))
        yield ServedScorer(folder, urls, preset, settings.concurrency, mode)
