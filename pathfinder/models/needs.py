"""The memory that each stage needs on a device, from the shapes of its models and the parameters.

The count covers weights, gradients, optimiser, activations, cache and logits of one process on one device, as the
stages hold them: float32 master weights under bfloat16 autocast in training, activations of one layer under gradient
checkpointing, and logits only at label positions. tests/campaigns/gpu_day.md compares estimates with measured peaks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pathfinder.core.params import Params, Score, Search, Train, Vllm
from pathfinder.models import launch
from pathfinder.models.architectures import Shape
from pathfinder.models.cards import GIB

LONGEST_RECORD = 6_017
"""Tokens of the longest record in 943 lines of PRM800K with Qwen's tokenizer. It gets a separate pass in training."""
_BYTES = {"float32": 4, "bfloat16": 2}
_PROCESS = {"cpu": 0.55 * GIB, "cuda": 1.0 * GIB}
"""Python with its libraries, or the context and kernels on a GPU."""
_SERVER = 1.5 * GIB
"""The context and kernels on a GPU, and the CUDA graphs of vLLM; assumed."""
_SLACK = 1.1  # memory that allocators reserve for activations without using it
_TOKENS_PER_LABEL = 12
"""Tokens of a packed tree per label: the smallest number in any long batch of the profiles' data."""
_SPREAD = {"cpu": 4.0, "cuda": 1.0}
"""Keys that attention copies per token: for each bin of branches, the CPU copies the part of the trunk that it sees."""
_PROMPT = 256
"""Tokens of a policy's prompt: a problem and the request for a solution."""
_OPEN, _TRUNK = 64, 1024
"""Solutions whose trunks are cached when scoring stops early (``prm.steps.OPEN``), and the tokens of one trunk."""
_POSITIONS = 4096
"""The context of the paper's base, for which a server of a PRM is started."""
_ROWS = 512
"""The largest number of texts sampled in one batch (``generate``)."""
_EIGHT_BITS = {"fp8", "fp8_per_tensor", "int8", "bitsandbytes"}
"""Values of --quantization by which vLLM itself quantises 16-bit weights while loading."""

Shapes = Callable[[str], Shape]
"""Gives the shapes of the models "judge", "policy" and "base" (a trained PRM has the size of the base)."""
STAGES = ("label", "train", "sample", "control", "processbench", "prmbench", "search", "baseline", "baseline_search")
"""The stages that may load a model or start a server."""
_SEARCHES = ("search", "baseline_search")
_POLICY_STAGES = ("sample", "control", *_SEARCHES)
"""The stages that draw from the policy."""
_SCORES = ("processbench", "prmbench", "baseline", *_SEARCHES)


@dataclass(frozen=True, slots=True)
class Need:
    """Bytes that one process of a stage needs on its device, by purpose.

    ``cards`` is the number of devices that the stage's processes of this kind take. A server takes ``share`` of the
    memory of each device, however little it needs; 0 means no server.
    """

    stage: str
    model: str
    parts: dict[str, float]
    cards: int = 1
    share: float = 0.0

    @property
    def total(self) -> float:
        """The sum of all parts."""
        return sum(self.parts.values())


def train_need(shape: Shape, settings: Train, kind: str, longest: int = 0, gpus: int | None = None) -> Need:
    """One process of the train stage on a machine with ``gpus`` (default: this one).

    ``longest`` is the number of tokens of the longest record.
    """
    processes, shards = launch.division(settings.launch, gpus)
    rank = settings.lora.rank
    learned = shape.adapter(settings.lora) if rank else shape.parameters
    frozen = _BYTES[settings.lora.base_dtype] * shape.parameters if rank else 0
    half = settings.dtype == "bfloat16"
    copies = 0.0
    if shards > 1:  # two layers and the larger end of the model are gathered at a time
        copies = _BYTES[settings.dtype] * (2 * shape.layer + shape.vocabulary * shape.hidden)
    elif half and not (rank and settings.lora.base_dtype == "bfloat16"):
        # autocast keeps a copy of every matrix until the pass ends
        copies = 2.0 * shape.layers * shape.matrix_parameters + 2.0 * shape.vocabulary * shape.hidden
    if processes > 1 and shards == 1:
        copies += 4.0 * learned  # the buckets in which replicas exchange gradients
    tokens, layer = max(settings.token_budget, longest), _layer_activations(shape, half, kind)
    if settings.gradient_checkpointing:
        activations = tokens * 4.0 * shape.hidden * shape.layers
        # the forward pass makes the copies, the backward pass holds one layer's activations and their gradients
        copies, activations = 0.0, activations + max(copies, 2.0 * tokens * layer)
    else:
        activations = tokens * layer * (shape.layers + 0.5)
    parts = {
        "process": _PROCESS[kind],
        "weights": (frozen + 4.0 * learned) / shards + copies,
        "gradients": 4.0 * learned / shards,
        "optimiser": 8.0 * learned / shards,
        "activations": _SLACK * activations,
        "logits": tokens / _TOKENS_PER_LABEL * shape.vocabulary * (16.0 if half else 12.0),
    }
    if rank:  # at the end the adapter is merged in float32, when activations and logits are gone
        kept = parts["weights"] + parts["activations"] + parts["logits"]
        parts["merge"] = max(0.0, 4.0 * (shape.parameters + learned) - kept)
    is_alone = launch.launched() or not settings.launch
    here = 1 if is_alone else launch.configuration(settings.launch).local_processes(gpus)
    return Need("train", shape.name, parts, cards=here)


def _layer_activations(shape: Shape, half: bool, kind: str) -> float:
    """Bytes that one layer stores per token for its backward pass."""
    item = 2 if half else 4
    residual = 4 * 6 * shape.hidden + (2 * 2 * shape.hidden if half else 0)  # norms in float32, and their cast copies
    attention = item * (2 * shape.query_width * (1 + _SPREAD[kind]) + 2 * shape.key_width)
    return residual + attention + item * 4 * shape.inner


def score_need(stage: str, shape: Shape, settings: Score, kind: str, cached: int = 0) -> Need:
    """A stage that scores; ``cached`` tokens of trunks persist between rounds of a search or waves of scoring."""
    item = _BYTES[settings.dtype]
    tokens = settings.token_budget
    running = item * (4 * shape.hidden + 2 * shape.inner + 2 * shape.query_width * (1 + _SPREAD[kind]))
    return Need(
        stage,
        f"PRM as {shape.name}",
        {
            "process": _PROCESS[kind],
            "weights": item * shape.parameters,
            "activations": _SLACK * tokens * running,
            "cache": item * shape.keys_and_values * (2 * tokens + cached),  # computed, and copied into the next batch
            "logits": tokens / _TOKENS_PER_LABEL * shape.vocabulary * (item + 4),
        },
    )


def generate_need(stage: str, shape: Shape, rows: int, prompt: int, more: int, kind: str) -> Need:
    """A model that samples in process in float32: ``rows`` prompts of ``prompt`` tokens and ``more`` new ones each."""
    rows = min(rows, _ROWS)
    return Need(
        stage,
        shape.name,
        {
            "process": _PROCESS[kind],
            "weights": 4.0 * shape.parameters,
            "activations": _SLACK * rows * prompt * 4.0 * (4 * shape.hidden + 2 * shape.inner),
            "cache": rows * (prompt + more) * 4.0 * shape.keys_and_values * (1 + 1 / shape.layers),
            "logits": rows * shape.vocabulary * 12.0,
        },
    )


def weight_bytes(settings: Vllm) -> float:
    """Bytes that a server holds per parameter."""
    return 1.0 if _EIGHT_BITS & set(settings.options) else float(_BYTES[settings.dtype])


def served_need(stage: str, shape: Shape, settings: Vllm, longest: int) -> Need:
    """One GPU of a vLLM server, which does not start without this memory.

    The server measures the largest pass and a sample of each text in float32, and the rest of its share must hold the
    cache of one text of ``longest`` tokens.
    """
    cards, item = settings.tensor_parallel, _BYTES[settings.dtype]
    weights = weight_bytes(settings) * shape.parameters / cards
    cache = item * shape.keys_and_values * longest / cards
    running = settings.max_num_batched_tokens * item * (4 * shape.hidden + 3 * shape.inner / cards)
    sampling = 5 * 4.0 * settings.max_num_seqs * shape.vocabulary
    activations = _SLACK * max(running, sampling)
    # the server loads weights in full before it quantises them, when cache and activations do not exist yet
    loading = max(0.0, item * shape.parameters / cards - weights - cache - activations)
    parts = {"process": _SERVER, "weights": weights, "activations": activations, "cache": cache, "loading": loading}
    return Need(stage, shape.name, parts, settings.gpus, settings.gpu_memory_utilization)


def longest_record(params: Params) -> int:
    """Tokens of the longest training record: the measured number for real sources, 0 (none is long) for a world."""
    return 0 if all(source.kind == "shipped" for source in params.download.sources) else LONGEST_RECORD


def stage_needs(stage: str, params: Params, kind: str, shape_of: Shapes, gpus: int | None = None) -> list[Need]:
    """The needs of ``stage`` with its current settings, a server first; empty if all its models run elsewhere.

    ``gpus`` is the number of the machine's GPUs (default: this one).
    """
    search, score, label = params.search, params.score, params.label
    if stage == "train":
        return [train_need(shape_of("base"), params.train, kind, longest_record(params), gpus)]
    if stage == "label":
        if label.engine == "openai":
            return []
        if label.engine == "vllm":
            return [served_need(stage, shape_of("judge"), label.vllm, label.max_model_len)]
        room = label.max_model_len - label.max_tokens
        return [generate_need(stage, shape_of("judge"), label.batch_size, room, label.max_tokens, kind)]
    needs = []
    if stage in _POLICY_STAGES:
        needs += _policy_needs(stage, search, kind, shape_of)
    if stage in _SCORES and (score.engine == "local" or stage.startswith("baseline")):
        cached = search.batch_size * (_PROMPT + search.solution_tokens) if stage in _SEARCHES else 0
        cached += _OPEN * _TRUNK if stage == "processbench" and params.processbench.early_stop else 0
        need = score_need(stage, shape_of("base"), score, kind, cached)
        if stage.startswith("baseline"):  # published PRMs keep no cache
            need = Need(stage, need.model, need.parts | {"cache": 0.0})
        needs.append(need)
    elif stage in _SCORES and not score.base_url:
        needs.append(served_need(stage, shape_of("base"), score.vllm, _POSITIONS))
    return _in_one_process(stage, needs, kind, score.processes or 1)


def _policy_needs(stage: str, search: Search, kind: str, shape_of: Shapes) -> list[Need]:
    if search.engine == "transformers":
        rows = search.batch_size * search.n
        return [generate_need(stage, shape_of("policy"), rows, _PROMPT, search.solution_tokens, kind)]
    if search.engine == "vllm":
        return [served_need(stage, shape_of("policy"), search.vllm, search.context)]
    return []


def _in_one_process(stage: str, needs: list[Need], kind: str, processes: int) -> list[Need]:
    """The servers, and one need for all models that each of the stage's own processes loads."""
    servers, own = [need for need in needs if need.share], [need for need in needs if not need.share]
    if own:
        parts = {part: sum(need.parts.get(part, 0.0) for need in own) for part in own[-1].parts}
        models = " and ".join(need.model for need in own)
        own = [Need(stage, models, parts | {"process": _PROCESS[kind]}, processes if kind == "cuda" else 1)]
    return servers + own
