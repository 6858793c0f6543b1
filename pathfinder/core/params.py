"""The strict reader of ``params.yaml``: it names every unknown, missing or ill-typed key.

There is one class per section. A stage reads its own sections, and DVC tracks exactly those.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt
from pydantic.functional_validators import AfterValidator, model_validator

from ground.settings import Section, read_settings
from pathfinder.core.runs import parse_runs

PARAMS_FILE = Path("params.yaml")

Preset = Literal["repaired", "official"]
BenchmarkPreset = Literal["default", "official"]
"""``official``: the prompt and the decision rule of the benchmark's published runner."""
Dtype = Literal["float32", "bfloat16"]
Share = Annotated[float, Field(ge=0.0, le=1.0)]
Seed = Annotated[int, Field(ge=0, lt=2**32)]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
# Only these characters, because names become part of paths and of commands in dvc.yaml; core/runs.py parses them.
RunName = Annotated[str, Field(pattern=r"^[a-z_]+(-[0-9a-z]*k)?(-s[1-9][0-9]*)?$")]
SystemName = Annotated[str, Field(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$")]
CriticName = Annotated[str, Field(pattern=r"^critic(-[a-z0-9]+)+$")]
SearchSet = Literal["aime24", "amc23", "math", "olympiadbench", "college_math", "minerva_math"]


def _refuse_repeats(entries: list[Any]) -> list[Any]:
    counts = Counter(getattr(entry, "name", entry) for entry in entries)
    if repeated := sorted(name for name, count in counts.items() if count > 1):
        raise ValueError(f"names repeat: {repeated}")
    return entries


UNIQUE = AfterValidator(_refuse_repeats)
"""The names of a list, or of its entries, must not repeat."""


class Upstream(Section):
    """A file whose path in its source differs from its path in the local folder."""

    path: str
    sha256: Sha256 | None


class Source(Section):
    """One entry of the source catalogue.

    A part of a model's folder may come from a different repository: ``models/math-psa/lora`` belongs to
    ``models/math-psa``.
    """

    name: Annotated[str, Field(pattern=r"^[a-z0-9_]+(/[a-z0-9_]+(-[a-z0-9_]+)*){0,2}$")]
    kind: Literal["shipped", "mirror", "https", "hub", "s3"]
    location: str
    revision: str | None
    licence: str
    files: dict[str, Sha256 | Upstream | None]

    def path_of(self, file: str) -> str:
        """The path of a listed file in its source."""
        entry = self.files.get(file)
        return entry.path if isinstance(entry, Upstream) else file

    def sha256_of(self, file: str) -> str | None:
        """The sha256 that a file must have, if the catalogue gives one."""
        entry = self.files.get(file)
        return entry.sha256 if isinstance(entry, Upstream) else entry

    @property
    def is_pinned(self) -> bool:
        """True if every download gives the same files. A Hub commit or a sha256 of each file pins a remote source."""
        if self.kind == "hub":
            return re.fullmatch(r"[0-9a-f]{40}", self.revision or "") is not None
        is_local = self.kind in ("shipped", "mirror")
        return is_local or (bool(self.files) and all(map(self.sha256_of, self.files)))


class Download(Section):
    """Where the raw files come from; ``world`` is the folder of the shipped sources."""

    world: Annotated[str, Field(pattern=r"^(data|artifacts/pretraining/[a-z0-9]+(-[a-z0-9]+)*)$")]
    retries: NonNegativeInt
    timeout_s: PositiveFloat
    sources: Annotated[list[Source], UNIQUE]


class Prepare(Section):
    """Reading the upstream files."""

    preset: Preset
    max_quarantined_share: Share


class Vllm(Section):
    """A vLLM server that a stage starts and stops."""

    command: Annotated[list[str], Field(min_length=1)]
    replicas: PositiveInt
    dtype: Dtype
    tensor_parallel: PositiveInt
    gpu_memory_utilization: Share
    max_num_batched_tokens: PositiveInt
    max_num_seqs: PositiveInt
    options: list[str]
    start_timeout_s: PositiveFloat

    @property
    def gpus(self) -> int:
        """The number of GPUs that all replicas take."""
        return self.replicas * self.tensor_parallel

    @property
    def deciding(self) -> dict[str, Any]:
        """The settings that determine answers; an option may quantise the weights or replace the chat template."""
        return self.model_dump(include={"dtype", "options"})


class Budget(Section):
    """Limits of paid calls, 0 for none, and the price that the progress line shows."""

    max_calls: NonNegativeInt
    max_tokens_total: NonNegativeInt
    max_hours: NonNegativeFloat
    price_per_million_tokens: NonNegativeFloat


class Label(Budget):
    """The LLM judge."""

    engine: Literal["openai", "vllm", "transformers"]
    preset: Preset
    base_urls: Annotated[list[str], Field(min_length=1)]
    vllm: Vllm
    concurrency: PositiveInt
    batch_size: PositiveInt
    timeout_s: PositiveFloat
    retries: NonNegativeInt
    temperature: NonNegativeFloat
    top_p: Annotated[float, Field(gt=0.0, le=1.0)]
    max_tokens: PositiveInt
    max_model_len: PositiveInt
    parse_attempts: Annotated[int, Field(ge=1, le=8)]
    disagreement_rounds: Annotated[int, Field(ge=0, le=7)]
    prm800k_limit: NonNegativeInt
    mistral_per_rating: NonNegativeInt
    seed: Seed

    @model_validator(mode="after")
    def _prompts_have_room(self) -> Label:
        if self.max_tokens >= self.max_model_len:
            raise ValueError(
                f"max_tokens {self.max_tokens} leaves no room for a prompt in max_model_len {self.max_model_len}; "
                "lower the first or raise the second"
            )
        return self


class Validate(Section):
    """Bounds of the data gates."""

    min_parsed_share: Share
    max_dropped_share: Share
    min_agreement: Share
    min_positive_share: Share
    max_positive_share: Share
    max_text_chars: PositiveInt
    mix_tolerance: NonNegativeFloat


class Build(Section):
    """The training set: mix, split and overlap with the benchmarks."""

    test_share: Share
    prm800k_records: NonNegativeInt
    mistral_records: NonNegativeInt
    max_records: NonNegativeInt
    near_duplicate_jaccard: Share
    remove_overlap: bool
    seed: Seed


class Mix(Section):
    """A data mix: every human rating and this share of the built Monte-Carlo records."""

    name: Annotated[str, Field(pattern=r"^[0-9a-z]*k$")]
    share: Share


class Lora(Section):
    """A low-rank adapter instead of full fine-tuning."""

    rank: NonNegativeInt
    alpha: PositiveInt
    base_dtype: Dtype
    targets: Annotated[list[str], Field(min_length=1)]


DEVICES, AT_ONCE = 8, 2
"""Processes of the published training (``deepspeed_zero2.yaml``), and samples that each takes at once."""


class Train(Section):
    """Fine-tuning of one run."""

    dtype: Dtype
    learning_rate: PositiveFloat
    schedule: Literal["cosine", "linear", "constant"]
    warmup_ratio: Share
    epochs: PositiveFloat
    steps: NonNegativeInt
    batch_samples: PositiveInt
    token_budget: PositiveInt
    max_grad_norm: PositiveFloat
    weight_decay: NonNegativeFloat
    gradient_checkpointing: bool
    weighting: Literal["sample", "problem", "device"]
    records_per_tree: NonNegativeInt
    soft_labels: bool
    lora: Lora
    launch: Annotated[str, Field(pattern=r"^[a-z0-9_]*$")]
    save_every: PositiveInt
    checkpoint_gib: NonNegativeFloat
    seed: Seed

    @model_validator(mode="after")
    def _devices_have_equal_shares(self) -> Train:
        if self.weighting == "device" and self.steps:
            raise ValueError(
                f"steps {self.steps}: weighting `device` has the published number of steps; set steps to 0"
            )
        if self.weighting == "device" and self.batch_samples % (DEVICES * AT_ONCE):
            raise ValueError(
                f"batch_samples {self.batch_samples} is not a multiple of {DEVICES * AT_ONCE}, which weighting "
                f"`device` needs: {DEVICES} devices take {AT_ONCE} samples at once"
            )
        return self


class Score(Section):
    """Scoring with the PRM: in this process, in ``processes`` workers (0: one per GPU), or behind a vLLM server."""

    engine: Literal["local", "vllm"]
    processes: NonNegativeInt
    base_url: str
    concurrency: PositiveInt
    vllm: Vllm
    dtype: Dtype
    token_budget: PositiveInt


class ProcessBench(Section):
    """Finding the first wrong step."""

    preset: BenchmarkPreset
    limit: NonNegativeInt
    early_stop: bool


class PRMBench(Section):
    """Judging steps by error type."""

    preset: BenchmarkPreset
    threshold: Share
    limit: NonNegativeInt


class Search(Section):
    """The policy and reward-guided search."""

    preset: BenchmarkPreset
    engine: Literal["openai", "vllm", "transformers"]
    base_url: str
    vllm: Vllm
    shared_card: bool
    sets: list[SearchSet]
    strategy: Literal["greedy", "beam"]
    width: PositiveInt
    n: PositiveInt
    temperature: NonNegativeFloat
    top_p: Annotated[float, Field(gt=0.0, le=1.0)]
    max_tokens: PositiveInt
    max_rounds: PositiveInt
    solution_tokens: PositiveInt
    limit: NonNegativeInt
    batch_size: PositiveInt
    seed: Seed

    @property
    def context(self) -> int:
        """Tokens of the policy's longest text: up to 2,048 of a problem, and all steps of a search or a solution."""
        return 2048 + max(self.max_rounds * self.max_tokens, self.solution_tokens)


class CriticSettings(Budget):
    """Calls to LLM judges of whole solutions."""

    base_urls: Annotated[list[str], Field(min_length=1)]
    votes: NonNegativeInt
    preset: Preset
    concurrency: PositiveInt
    timeout_s: PositiveFloat
    retries: NonNegativeInt


class Report(Section):
    """Statistics of the tables."""

    bootstrap_samples: PositiveInt
    confidence: ClassVar[float] = 0.95  # the report's words and the metric files of all stages say 95 %
    seed: Seed


class Params(Section):
    """The whole file."""

    profile: Annotated[str, Field(pattern=r"^[a-z0-9-]+$")]
    targets: list[str]
    download: Download
    prepare: Prepare
    label: Label
    validate_: Validate = Field(alias="validate")
    build: Build
    mixes: Annotated[list[Mix], UNIQUE]
    runs: Annotated[list[RunName], UNIQUE]
    baselines: Annotated[list[SystemName], UNIQUE]
    critics: Annotated[list[CriticName], UNIQUE]
    comparisons: list[Literal["published"]]
    critic: CriticSettings
    train: Train
    score: Score
    processbench: ProcessBench
    prmbench: PRMBench
    search: Search
    report: Report

    @model_validator(mode="after")
    def _runs_can_be_trained(self) -> Params:
        """Checked when the file is read, because the first training starts hours after the first stage."""
        mixes = [mix.name for mix in self.mixes]
        for run in parse_runs(self.runs):
            if run.mix not in mixes:
                raise ValueError(f"run {run.name!r} has the mix {run.mix!r}, which is not one of `mixes`: {mixes}")
        return self


def load_params(path: Path = PARAMS_FILE) -> Params:
    """Read and check ``params.yaml``; raises ``DataError`` with the dotted name of every wrong key."""
    return read_settings(Params, path, "write a complete one with `pathfinder profile NAME`")
