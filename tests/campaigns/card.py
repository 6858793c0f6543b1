"""Data, models and parameters for measurements on a card, or at a tiny size on a CPU.

Each source is taken from the first of these places that has it: a mirror folder (``PATHFINDER_MIRROR``), the network at
the commits of the profile one-gpu-24, the shipped world. A model that is nowhere is made with random weights in its
true shape, and the tokenizer of the shipped model: its answers mean nothing, its speed and memory do.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import chdir
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
import yaml
from transformers import Qwen2Config, Qwen2ForCausalLM

from ground.io import PathfinderError, write_json, write_text
from infra.doctor.cards import VLLM
from pathfinder.benchmarks.readers import read_processbench
from pathfinder.core.params import Download, Source, load_params
from pathfinder.core.prompts import VARIANTS
from pathfinder.data.exclusions import EXCLUSIONS
from pathfinder.models.architectures import Shape
from pathfinder.models.folders import open_model
from pathfinder.models.shapes import KNOWN
from pathfinder.models.tokens import add_label_tokens, load_tokenizer
from pathfinder.planning.profiles import render
from pathfinder.sources.catalogue import Fetched, fetch_source
from pathfinder.tree.passes import Prompter, Query
from tests.conftest import ROOT

PROFILE, PHASE = "one-gpu-24", "prm800k/data/phase1_train.jsonl"
JUDGE = {"location": "Qwen/Qwen2.5-1.5B-Instruct", "revision": "main", "files": {}}
"""A judge that leaves room for everything else and starts in a minute."""
SOURCES = ("prm800k", "processbench", "prmbench", "mistral", "search", "models/base", "models/judge")
UNUSED = ("mistral", "search")
"""Sources that stages want to see and of which nothing is measured."""
HEAD = 128
"""Width of a head, of all published models here and of their tiny substitute."""
TINY = Shape("a tiny model", 256, 256, 2, 256, HEAD, 4096, tied=False, biased=True)


@dataclass(frozen=True, slots=True)
class Day:
    """The device, and the folder in which the stages run, with a params.yaml and artifacts of its own."""

    device: str
    work: Path

    @property
    def is_rehearsal(self) -> bool:
        """True on a CPU: everything has a tiny size."""
        return self.device == "cpu"

    def size(self, real: int, rehearsed: int) -> int:
        """A number of items."""
        return rehearsed if self.is_rehearsal else real


def prepare(day: Day) -> list[tuple[str, str]]:
    """Fetch or make everything that the tests read; returns where each source came from."""
    raw, settings = day.work / "artifacts/raw", network_settings()
    shutil.rmtree(raw, ignore_errors=True)
    manifest, origins = {}, []
    for name in SOURCES:
        tried = ((source, fetched(source, raw / name, settings)) for source in places(name, settings, day))
        source, found = next((each for each in tried if each[1] is not None), (None, None))
        if source is None or found is None:
            origins.append((name, random_weights(day, raw / name, name)))
            continue
        origins.append((name, f"{source.kind}: {source.location}{f' at {found.revision}' if found.revision else ''}"))
        manifest[name] = {"location": source.location, "revision": found.revision}
    write_text(day.work / EXCLUSIONS, "")
    write_text(day.work / "params.yaml", yaml.safe_dump(params_of(day), sort_keys=False))
    load_params(day.work / "params.yaml")
    write_json(raw / "manifest.json", manifest)
    return origins


def network_settings() -> Download:
    """The sources of the profile, with the small judge and one file of PRM800K."""
    content = yaml.safe_load(render(ROOT, PROFILE))["download"]
    for entry in content["sources"]:
        if entry["name"] == "models/judge":
            entry |= JUDGE
        if entry["name"] == "prm800k":
            entry["files"] = {PHASE: entry["files"][PHASE]}
    return Download.model_validate(content | {"retries": 0, "timeout_s": 20.0})


def places(name: str, settings: Download, day: Day) -> Iterator[Source]:
    """The places to look for a source, in this order."""
    base: dict[str, Any] = {"name": name, "revision": None, "licence": "see the source", "files": {}}
    if not day.is_rehearsal and name not in UNUSED:
        if (Path(os.environ.get("PATHFINDER_MIRROR", "/nonexistent")) / name).is_dir():
            yield Source.model_validate(base | {"kind": "mirror", "location": name})
        yield from (source for source in settings.sources if source.name == name)
    if name != "models/base" if day.is_rehearsal else not name.startswith("models/"):  # a rehearsal makes one model
        yield Source.model_validate(base | {"kind": "shipped", "location": f"data/{name}"})


def fetched(source: Source, folder: Path, settings: Download) -> Fetched | None:
    """The fetched files, or ``None`` if the source is not to be had there."""
    try:
        with chdir(ROOT):
            found = fetch_source(source, folder, settings.model_copy(update={"sources": [source]}))
    except (PathfinderError, OSError) as error:
        print(f"{source.name} from {source.kind} {source.location}: {error}", flush=True)
        shutil.rmtree(folder, ignore_errors=True)
        return None
    for file in sorted(folder.rglob("*.jsonl")):  # the published paths are deeper than the folder that stages read
        if file.parent != folder and source.name == "prm800k":
            file.replace(folder / file.name)
    return found


def random_weights(day: Day, folder: Path, name: str) -> str:
    """Random weights in the shape of Qwen2.5-1.5B, with the tokenizer and the vocabulary of the shipped model."""
    shape = TINY if day.is_rehearsal else KNOWN["Qwen/Qwen2.5-Math-1.5B-Instruct"]
    shutil.copytree(ROOT / "data" / name, folder, ignore=shutil.ignore_patterns("*.safetensors", "config.json"))
    vocabulary = len(load_tokenizer(folder))  # a server could sample an id beyond it, which has no text
    random_model(replace(shape, vocabulary=vocabulary), day.device).save_pretrained(folder)
    return f"random weights in the shape of {shape.name} with a vocabulary of {vocabulary:,}"


def params_of(day: Day) -> dict[str, Any]:
    """The parameters of the stages."""
    content: dict[str, Any] = yaml.safe_load(render(ROOT, PROFILE))
    content |= {"profile": "gpu-day", "runs": ["full"], "mixes": [{"name": "400k", "share": 1.0}]}
    server = {"command": [str(ROOT / VLLM), "serve"], "replicas": 1, "tensor_parallel": 1, "options": []}
    server |= {"gpu_memory_utilization": 0.85, "max_num_batched_tokens": 8192}
    content["label"] |= {"engine": "vllm", "vllm": content["label"]["vllm"] | server}
    content["label"] |= {"prm800k_limit": day.size(500, 20), "mistral_per_rating": 0, "max_tokens": 1024}
    content["label"] |= {"max_model_len": 4096, "parse_attempts": 1, "disagreement_rounds": 0}
    content["validate"] |= {"min_parsed_share": 0.0, "max_dropped_share": 1.0, "min_agreement": 0.0}
    content["validate"] |= {"min_positive_share": 0.0, "max_positive_share": 1.0}  # a small or random judge, no gates
    content["build"] |= {"prm800k_records": 0, "mistral_records": 0, "max_records": day.size(2000, 150)}
    content["build"] |= {"test_share": 0.1}
    content["train"] |= {"epochs": 1, "batch_samples": 128, "launch": ""}
    content["processbench"] |= {"limit": day.size(25, 2)}
    content["prmbench"] |= {"limit": day.size(12, 1)}
    if day.is_rehearsal:
        content["label"] |= {"engine": "transformers", "batch_size": 32, "max_tokens": 96, "max_model_len": 1024}
        content["train"] |= {"dtype": "float32", "token_budget": 4096, "gradient_checkpointing": False}
        content["train"]["lora"] |= {"rank": 4, "base_dtype": "float32"}
        content["score"] |= {"dtype": "float32", "token_budget": 4096}
    return content


def random_model(shape: Shape, device: str, dtype: torch.dtype = torch.bfloat16) -> Any:
    """A Qwen2 of this shape with random weights in ``dtype`` on ``device``, in evaluation mode."""
    config = Qwen2Config(
        hidden_size=shape.hidden,
        intermediate_size=shape.inner,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.query_width // HEAD,
        num_key_value_heads=shape.key_width // HEAD,
        vocab_size=shape.vocabulary,
        max_position_embeddings=32768,
        tie_word_embeddings=shape.tied,
        initializer_range=0.05,
    )
    torch.manual_seed(0)
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        with torch.device(device):
            model: Any = Qwen2ForCausalLM(config)
    finally:
        torch.set_default_dtype(before)
    return model.eval()


def problems(day: Day, per_set: int) -> tuple[Prompter, list[list[Query]]]:
    """The prompts of the full variant, and the steps of ``per_set`` solutions of each ProcessBench subset."""
    tokenizer = open_model(day.work / "artifacts/raw/models/base").tokenizer
    add_label_tokens(tokenizer)
    items = read_processbench(day.work / "artifacts/raw/processbench", per_set).items
    return Prompter(tokenizer, VARIANTS["full"]), [
        [Query(f"{item.id}-{t}", item.problem, tuple(item.steps[:t]), step) for t, step in enumerate(item.steps)]
        for item in items
    ]
