"""The strict reader of ``params.yaml``: it names every unknown, missing or ill-typed key.

There is one class per section. A stage reads its own sections, and DVC tracks exactly those.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from pathfinder.core.io import DataError

PARAMS_FILE = Path("params.yaml")

Share = Annotated[float, Field(ge=0.0, le=1.0)]
Positive = Annotated[int, Field(ge=1)]
Count = Annotated[int, Field(ge=0)]
Seconds = Annotated[float, Field(gt=0.0)]
Seed = Annotated[int, Field(ge=0, lt=2**32)]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
# Names become part of commands in dvc.yaml and of paths, hence these characters only; core/runs.py parses them.
RunName = Annotated[str, Field(pattern=r"^[a-z_]+(-[0-9a-z]*k)?(-s[1-9][0-9]*)?$")]
SystemName = Annotated[str, Field(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$")]
CriticName = Annotated[str, Field(pattern=r"^critic(-[a-z0-9]+)+$")]
SearchSet = Literal["aime24", "amc23", "math", "olympiadbench", "college_math", "minerva_math"]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Source(_Section):
    """One entry of the source catalogue."""

    name: Annotated[str, Field(pattern=r"^[a-z0-9_]+(/[a-z0-9_]+(-[a-z0-9_]+)*)?$")]
    kind: Literal["shipped", "mirror", "https", "hub", "s3"]
    location: str
    revision: str | None
    licence: str
    files: dict[str, Sha256 | None]


class Download(_Section):
    """Where the raw files come from; ``world`` is the folder of the shipped sources."""

    world: Annotated[str, Field(pattern=r"^(data|artifacts/pretraining/[a-z0-9]+(-[a-z0-9]+)*)$")]
    retries: Count
    timeout_s: Seconds
    sources: list[Source]

    @model_validator(mode="after")
    def _names_are_unique(self) -> Download:
        names = [source.name for source in self.sources]
        if len(names) != len(set(names)):
            raise ValueError(f"source names repeat: {sorted(n for n in set(names) if names.count(n) > 1)}")
        return self


class Prepare(_Section):
    """Reading the upstream files."""

    preset: Literal["repaired", "official"]
    max_quarantined_share: Share


class Vllm(_Section):
    """A vLLM server that a stage starts and stops."""

    command: Annotated[list[str], Field(min_length=1)]
    replicas: Positive
    dtype: Literal["float32", "bfloat16"]
    tensor_parallel: Positive
    gpu_memory_utilization: Share
    max_num_batched_tokens: Positive
    max_num_seqs: Positive
    options: list[str]
    start_timeout_s: Seconds


class Label(_Section):
    """The LLM judge."""

    engine: Literal["openai", "vllm", "transformers"]
    preset: Literal["repaired", "official"]
    base_urls: Annotated[list[str], Field(min_length=1)]
    vllm: Vllm
    max_calls: Count
    max_tokens_total: Count
    max_hours: Annotated[float, Field(ge=0.0)]
    price_per_million_tokens: Annotated[float, Field(ge=0.0)]
    concurrency: Positive
    batch_size: Positive
    timeout_s: Seconds
    retries: Count
    temperature: Annotated[float, Field(ge=0.0)]
    top_p: Annotated[float, Field(gt=0.0, le=1.0)]
    max_tokens: Positive
    max_model_len: Positive
    parse_attempts: Annotated[int, Field(ge=1, le=8)]
    disagreement_rounds: Annotated[int, Field(ge=0, le=7)]
    prm800k_limit: Count
    mistral_per_rating: Count
    seed: Seed


class Validate(_Section):
    """Bounds of the data gates."""

    min_parsed_share: Share
    max_dropped_share: Share
    min_agreement: Share
    min_positive_share: Share
    max_positive_share: Share
    max_text_chars: Positive


class Build(_Section):
    """The training set: mix, split and overlap with the benchmarks."""

    test_share: Share
    prm800k_records: Count
    mistral_records: Count
    max_records: Count
    near_duplicate_jaccard: Share
    remove_overlap: bool
    seed: Seed


class Mix(_Section):
    """A data mix: every human rating and this share of the built Monte-Carlo records."""

    name: Annotated[str, Field(pattern=r"^[0-9a-z]*k$")]
    share: Share


class Lora(_Section):
    """A low-rank adapter instead of full fine-tuning."""

    rank: Count
    alpha: Positive
    targets: Annotated[list[str], Field(min_length=1)]


class Train(_Section):
    """Fine-tuning of one run."""

    dtype: Literal["float32", "bfloat16"]
    learning_rate: Annotated[float, Field(gt=0.0)]
    schedule: Literal["cosine", "linear", "constant"]
    warmup_ratio: Share
    epochs: Annotated[float, Field(gt=0.0)]
    batch_samples: Positive
    token_budget: Positive
    max_grad_norm: Annotated[float, Field(gt=0.0)]
    weight_decay: Annotated[float, Field(ge=0.0)]
    gradient_checkpointing: bool
    weighting: Literal["sample", "problem"]
    records_per_tree: Count
    soft_labels: bool
    lora: Lora
    launch: Annotated[str, Field(pattern=r"^[a-z0-9_]*$")]
    save_every: Positive
    seed: Seed


class Score(_Section):
    """Scoring with the PRM, in this process or behind a vLLM server."""

    engine: Literal["local", "vllm"]
    base_url: str
    concurrency: Positive
    vllm: Vllm
    preset: Literal["default", "official-processbench", "official-prmbench", "official-search"]
    dtype: Literal["float32", "bfloat16"]
    token_budget: Positive


class ProcessBench(_Section):
    """Finding the first wrong step."""

    limit: Count
    early_stop: bool


class PRMBench(_Section):
    """Judging steps by error type."""

    threshold: Share
    limit: Count


class Search(_Section):
    """The policy and reward-guided search."""

    engine: Literal["openai", "transformers"]
    base_url: str
    sets: list[SearchSet]
    strategy: Literal["greedy", "beam"]
    width: Positive
    n: Positive
    temperature: Annotated[float, Field(ge=0.0)]
    top_p: Annotated[float, Field(gt=0.0, le=1.0)]
    max_tokens: Positive
    max_rounds: Positive
    solution_tokens: Positive
    limit: Count
    batch_size: Positive
    seed: Seed


class CriticSettings(_Section):
    """Calls to LLM judges of whole solutions."""

    base_urls: Annotated[list[str], Field(min_length=1)]
    votes: Count
    preset: Literal["repaired", "official"]
    concurrency: Positive
    timeout_s: Seconds
    retries: Count
    max_calls: Count
    max_tokens_total: Count
    max_hours: Annotated[float, Field(ge=0.0)]
    price_per_million_tokens: Annotated[float, Field(ge=0.0)]


class Report(_Section):
    """Statistics of the tables."""

    bootstrap_samples: Positive
    confidence: Annotated[float, Field(gt=0.0, lt=1.0)]
    seed: Seed


class Params(_Section):
    """The whole file."""

    profile: Annotated[str, Field(pattern=r"^[a-z0-9-]+$")]
    download: Download
    prepare: Prepare
    label: Label
    validate_: Validate = Field(alias="validate")
    build: Build
    mixes: list[Mix]
    runs: Annotated[list[RunName], Field(min_length=1)]
    baselines: list[SystemName]
    critics: list[CriticName]
    critic: CriticSettings
    train: Train
    score: Score
    processbench: ProcessBench
    prmbench: PRMBench
    search: Search
    report: Report

    @model_validator(mode="after")
    def _runs_are_unique(self) -> Params:
        for what, names in (("runs", self.runs), ("baselines", self.baselines), ("critics", self.critics)):
            if len(names) != len(set(names)):
                raise ValueError(f"{what} repeat: {sorted(n for n in set(names) if names.count(n) > 1)}")
        return self


def load_params(path: Path = PARAMS_FILE) -> Params:
    """Read and check ``params.yaml``; raises ``DataError`` with the dotted name of every wrong key."""
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise DataError(f"{path}: no such file; write one with `pathfinder profile quickstart`") from error
    except yaml.YAMLError as error:
        raise DataError(f"{path}: not valid YAML: {error}") from error
    try:
        return Params.model_validate(content)
    except ValidationError as error:
        problems = "\n".join(f"  {_dotted(item['loc'])}: {item['msg']}" for item in error.errors())
        raise DataError(f"{path}: wrong parameters:\n{problems}\nSee infra/profiles/ for complete examples.") from error


def _dotted(location: tuple[int | str, ...]) -> str:
    return ".".join(str(part) for part in location) or "(the whole file)"
