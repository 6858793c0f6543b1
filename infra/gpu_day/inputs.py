"""Find the data and the models of a GPU day, and write the params.yaml of its work folder.

Each source is taken from the first of these places that has it: a mirror folder (``PATHFINDER_MIRROR``), the network at
the commits of the profile one-gpu-24, the shipped world. A model that is nowhere is made with random weights in its
true shape, and the tokenizer of the shipped model: its answers mean nothing, its speed and memory do.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from ground.io import PathfinderError, write_json, write_text
from infra.gpu_day.day import ROOT, VLLM, Day, Report
from pathfinder.core.params import Download, Source, load_params
from pathfinder.data.exclusions import EXCLUSIONS
from pathfinder.sources.catalogue import Fetched, fetch_source

PROFILE = "one-gpu-24"
JUDGE = {"location": "Qwen/Qwen2.5-1.5B-Instruct", "revision": "main", "files": {}}
"""A judge that leaves room for everything else and starts in a minute."""
_PHASE = "prm800k/data/phase1_train.jsonl"
_SOURCES = ("prm800k", "processbench", "prmbench", "mistral", "search", "models/base", "models/judge")
_UNUSED = ("mistral", "search")
"""Sources that stages want to see and of which nothing is measured."""


def inputs(day: Day) -> Report:
    """Fetch or make everything that the other parts read."""
    report = Report()
    raw = day.work / "artifacts/raw"
    shutil.rmtree(raw, ignore_errors=True)
    settings = _network_settings()
    manifest = {}
    for name in _SOURCES:
        tried = ((source, _fetch(source, raw / name, settings)) for source in _places(name, settings, day))
        source, fetched = next((each for each in tried if each[1] is not None), (None, None))
        if source is None or fetched is None:
            report.add(name, _random_model(day, raw / name, name))
            continue
        report.add(name, f"{source.kind}: {source.location}{f' at {fetched.revision}' if fetched.revision else ''}")
        manifest[name] = {"location": source.location, "revision": fetched.revision}
    write_json(raw / "manifest.json", manifest)
    write_text(day.work / EXCLUSIONS, "")
    write_text(day.work / "params.yaml", yaml.safe_dump(_params(day), sort_keys=False))
    load_params(day.work / "params.yaml")
    return report


def _profile() -> dict[str, Any]:
    """The complete parameters of the profile whose sources and sizes the day takes."""
    code = f"from pathlib import Path; from flows.profiles import render; print(render(Path('.'), {PROFILE!r}))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    content: dict[str, Any] = yaml.safe_load(done.stdout)
    return content


def _network_settings() -> Download:
    content = _profile()["download"]
    for entry in content["sources"]:
        if entry["name"] == "models/judge":
            entry |= JUDGE
        if entry["name"] == "prm800k":
            entry["files"] = {_PHASE: entry["files"][_PHASE]}
    return Download.model_validate(content | {"retries": 0, "timeout_s": 20.0})


def _places(name: str, settings: Download, day: Day) -> Iterator[Source]:
    """Where to look for a source, in this order."""
    wanted = not day.rehearsal and name not in _UNUSED
    base: dict[str, Any] = {"name": name, "revision": None, "licence": "see the source", "files": {}}
    mirror = Path(os.environ.get("PATHFINDER_MIRROR", "/nonexistent"))
    if wanted and (mirror / name).is_dir():
        yield Source.model_validate(base | {"kind": "mirror", "location": name})
    if wanted:
        yield from (source for source in settings.sources if source.name == name)
    if name != "models/base" if day.rehearsal else not name.startswith("models/"):  # a rehearsal makes one model
        yield Source.model_validate(base | {"kind": "shipped", "location": f"data/{name}"})


def _fetch(source: Source, folder: Path, settings: Download) -> Fetched | None:
    """The fetched files, or ``None`` if the source is not to be had there."""
    try:
        fetched = fetch_source(source, folder, settings.model_copy(update={"sources": [source]}))
    except (PathfinderError, OSError) as error:
        print(f"{source.name} from {source.kind} {source.location}: {error}", flush=True)
        shutil.rmtree(folder, ignore_errors=True)
        return None
    for file in sorted(folder.rglob("*.jsonl")):  # the published paths are deeper than the folder that stages read
        if file.parent != folder and source.name == "prm800k":
            file.replace(folder / file.name)
    return fetched


def _random_model(day: Day, folder: Path, name: str) -> str:
    """Random weights in the shape of Qwen2.5-1.5B, with the tokenizer and the vocabulary of the shipped model."""
    from infra.gpu_day.models import random_model, shape_named
    from pathfinder.models.tokens import load_tokenizer

    shape = shape_named(day, "Qwen/Qwen2.5-Math-1.5B-Instruct")
    shutil.copytree(ROOT / "data" / name, folder, ignore=shutil.ignore_patterns("*.safetensors", "config.json"))
    vocabulary = len(load_tokenizer(folder))  # a server could sample an id beyond it, which has no text
    random_model(replace(shape, vocabulary=vocabulary), day.device).save_pretrained(folder)
    return f"random weights in the shape of {shape.name} with a vocabulary of {vocabulary:,}"


def _params(day: Day) -> dict[str, Any]:
    """The parameters of the stages."""
    content = _profile() | {"profile": "gpu-day", "runs": ["full"], "mixes": [{"name": "400k", "share": 1.0}]}
    server = {"command": [str(VLLM), "serve"], "replicas": 1, "tensor_parallel": 1, "gpu_memory_utilization": 0.85}
    content["label"] |= {
        "engine": "vllm",
        "vllm": content["label"]["vllm"] | server | {"options": [], "max_num_batched_tokens": 8192},
        "prm800k_limit": day.size(500, 20),
        "mistral_per_rating": 0,
        "max_tokens": 1024,
        "max_model_len": 4096,
        "parse_attempts": 1,
        "disagreement_rounds": 0,
    }
    content["validate"] |= {"min_parsed_share": 0.0, "max_dropped_share": 1.0, "min_agreement": 0.0}
    content["validate"] |= {"min_positive_share": 0.0, "max_positive_share": 1.0}  # a small or random judge, no gates
    content["build"] |= {
        "prm800k_records": 0,
        "mistral_records": 0,
        "max_records": day.size(2000, 150),
        "test_share": 0.1,
    }
    content["train"] |= {"epochs": 1, "batch_samples": 128, "launch": ""}
    content["processbench"] |= {"limit": day.size(25, 2)}
    content["prmbench"] |= {"limit": day.size(12, 1)}
    if day.rehearsal:
        content["label"] |= {"engine": "transformers", "batch_size": 32, "max_tokens": 96, "max_model_len": 1024}
        content["train"] |= {"dtype": "float32", "token_budget": 4096, "gradient_checkpointing": False}
        content["train"]["lora"] |= {"rank": 4, "base_dtype": "float32"}
        content["score"] |= {"dtype": "float32", "token_budget": 4096}
    return content
