"""Settings of the judge and of vLLM servers that only fail when a stage starts, after hours of other stages."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from pathfinder.core.io import DataError
from pathfinder.core.params import Params, Vllm
from pathfinder.models.needs import Shapes
from pathfinder.models.shapes import KNOWN, Shape

_HEAD = 128
"""Numbers per head in every model of ``KNOWN``, from its config.json."""


def require(params: Params, stages: Collection[str], shape_of: Shapes) -> None:
    """Raise ``DataError`` with the key of a setting with which one of ``stages`` cannot start."""
    label = params.label
    if "label" in stages and label.max_tokens >= label.max_model_len:
        raise DataError(
            f"label.max_model_len {label.max_model_len} has no room for a prompt beside an answer of label.max_tokens "
            f"{label.max_tokens}; raise the first or lower the second"
        )
    for key, model, settings in _servers(params, stages):
        count, shape = settings.tensor_parallel, shape_of(model)
        if not divides(count, shape):
            most = ", ".join(str(other) for other in range(1, 17) if divides(other, shape))
            raise DataError(
                f"{key}.tensor_parallel {count}: vLLM cannot divide the attention heads of {shape.name} over "
                f"{count} GPUs; use one of {most}"
            )


def divides(count: int, shape: Shape) -> bool:
    """Whether vLLM divides the model over ``count`` GPUs, by its qwen2 and llama models.

    The attention heads are divided. The key-value heads are divided or, if they are fewer than GPUs, repeated. How many
    heads a model outside ``KNOWN`` has is not known: only a width that cannot be divided is refused.
    """
    if shape.name not in KNOWN:
        return shape.query_width % count == 0
    heads, keys = shape.query_width // _HEAD, shape.key_width // _HEAD
    return heads % count == 0 and (keys % count == 0 or count % keys == 0)


def _servers(params: Params, stages: Collection[str]) -> Iterator[tuple[str, str, Vllm]]:
    """The section, the model and the settings of each kind of server that ``stages`` start."""
    label, search, score = params.label, params.search, params.score
    if label.engine == "vllm" and "label" in stages:
        yield "label.vllm", "judge", label.vllm
    if search.engine == "vllm" and "sample" in stages:
        yield "search.vllm", "policy", search.vllm
    if score.engine == "vllm" and not score.base_url and "processbench" in stages:
        yield "score.vllm", "base", score.vllm
