"""Open PathFinder-PRM in this process or behind a server. ``pathfinder.baselines.opening`` adds the published PRMs.

A PathFinder-PRM is a run of the project or a checkpoint of the authors, which is evaluated like a run, but never
trained. A profile lists the checkpoints under ``baselines``, together with the published PRMs.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ground.text import extra_named
from pathfinder.core.params import Score
from pathfinder.core.runs import parse_run
from pathfinder.models.folders import OpenedModel, uncollected
from pathfinder.tree.passes import Mode

if TYPE_CHECKING:
    from pathfinder.prm.scoring import Scorer
    from pathfinder.prm.served_scoring import ServedScorer

FETCHED = Path("artifacts/raw/models")
CHECKPOINTS = {"pathfinder-prm-7b": "PathFinder-PRM-7B"}
"""The authors' checkpoints: the name in profiles and files, and the name in the paper's tables."""
_LOCAL: dict[str, Any] = {"engine": "local", "processes": 1, "dtype": "float32", "token_budget": 16384}
DEFAULTS = Score.model_construct(**_LOCAL, base_url="", concurrency=32)
"""Settings for scoring without a ``params.yaml``. They cannot start a server, so they have no ``vllm``."""


def model_of(name: str) -> Path:
    """The model folder of a run or a checkpoint; raises ``DataError`` for any other name."""
    return FETCHED / name if name in CHECKPOINTS else Path("models") / parse_run(name).name


def titles_of(name: str) -> dict[str, list[str]]:
    """The extra entry in the metrics of a checkpoint: its name in the paper's tables."""
    return {"titles": [CHECKPOINTS[name]]} if name in CHECKPOINTS else {}


def cards_needed(settings: Score) -> int:
    """The number of GPUs that one process needs to open a PRM with these settings."""
    if settings.engine == "local":
        return 1
    return 0 if settings.base_url else settings.vllm.gpus


@contextmanager
def open_pathfinder(
    model: OpenedModel, settings: Score = DEFAULTS, mode: Mode = Mode.BOTH, preset: str = "default"
) -> Iterator[Scorer | ServedScorer]:
    """The scorer of a PathFinder-PRM; a vLLM server that it starts ends with the block.

    ``preset`` is a name in ``PRESETS``. Raises ``DataError`` if the folder holds no such model, a server offers a
    different one, or a package for servers is missing.
    """
    if settings.engine == "local":
        with uncollected():  # a PRM behind a server needs no torch
            from pathfinder.prm.scoring import Scorer
        yield Scorer(model, preset, settings.dtype, settings.token_budget, mode=mode)
        return
    with extra_named():
        from pathfinder.prm.served_scoring import ServedScorer  # its client takes a second to load

    if settings.base_url:
        yield ServedScorer(model, [settings.base_url], preset, settings.concurrency, mode)
        return
    from pathfinder.engines.vllm_server import vllm_servers

    name = model.folder.name
    with vllm_servers(
        model.folder, name, model.config.positions, settings.vllm, Path(".pathfinder/vllm") / name
    ) as urls:
        yield ServedScorer(model, urls, preset, settings.concurrency, mode)
