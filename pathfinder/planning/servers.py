"""Settings of vLLM servers that only fail when a stage starts, after hours of other stages."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from ground.io import DataError
from pathfinder.core.params import Params, Vllm
from pathfinder.models.needs import Shapes


def require(params: Params, stages: Collection[str], shape_of: Shapes) -> None:
    """Raise ``DataError`` with the key of a setting with which one of ``stages`` cannot start."""
    for key, model, settings in _servers(params, stages):
        count, shape = settings.tensor_parallel, shape_of(model)
        if not shape.divides(count):
            most = ", ".join(str(other) for other in range(1, 17) if shape.divides(other))
            raise DataError(
                f"{key}.tensor_parallel {count}: vLLM cannot divide the attention heads of {shape.name} over "
                f"{count} GPUs; use one of {most}"
            )


def _servers(params: Params, stages: Collection[str]) -> Iterator[tuple[str, str, Vllm]]:
    """The section, the model and the settings of each kind of server that ``stages`` start."""
    label, search, score = params.label, params.search, params.score
    if label.engine == "vllm" and "label" in stages:
        yield "label.vllm", "judge", label.vllm
    if search.engine == "vllm" and "sample" in stages:
        yield "search.vllm", "policy", search.vllm
    if score.engine == "vllm" and not score.base_url and "processbench" in stages:
        yield "score.vllm", "base", score.vllm
