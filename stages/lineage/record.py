"""The record of an executed stage: what it read, ran on and wrote, with digests, written after it succeeded.

Records lie in ``.pathfinder/lineage/<stage>/<digest>.json``, outside the outs (they hold times), named by the sha256 of
their own content, so that an edited record shows.
"""

from __future__ import annotations

import os
import platform
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import yaml

from stages.core.io import digest_of, write_json
from stages.lineage.hashing import digest_path
from stages.lineage.pipeline import Stage, read_pipeline

RECORDS = Path(".pathfinder/lineage")
LOCK_FILES = ("infra/requirements-cpu.lock", "infra/requirements-cuda.lock")
PACKAGES = (
    "torch",
    "transformers",
    "tokenizers",
    "safetensors",
    "numpy",
    "polars",
    "great-expectations",
    "dvc",
    "prefect",
)


@contextmanager
def recorded(stage: str, variant: str | None = None) -> Iterator[None]:
    """Run a stage's work and record it; nothing is written when the work raises.

    A stage that ``dvc.yaml`` does not list (a module run by hand somewhere else) runs without a record and says so.
    """
    name = f"{stage}@{variant}" if variant else stage
    definition = _find(name)
    if definition is None:
        print(f"{name}: dvc.yaml here does not list this stage; no lineage record is kept", file=sys.stderr)
        yield
        return
    inputs = {path: digest_path(Path(path)).as_json() for path in definition.deps if Path(path).exists()}
    start, clock = datetime.now(UTC), time.monotonic()
    yield
    seconds = time.monotonic() - clock
    outputs = {path: digest_path(Path(path)).as_json() for path in definition.all_outs if Path(path).exists()}
    record = {
        "stage": definition.name,
        "cmd": definition.cmd,
        "inputs": inputs,
        "outputs": outputs,
        "params": _params(definition),
        "git": _git(),
        "locks": {path: digest_path(Path(path)).sha256 for path in LOCK_FILES if Path(path).exists()},
        "environment": environment(),
        "times": {
            "start": start.isoformat(timespec="seconds"),
            "seconds": round(seconds, 3),
            "peak_rss_mib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
        },
    }
    write_json(RECORDS / name / f"{digest_of(record)}.json", record)


def _find(name: str) -> Stage | None:
    if not Path("dvc.yaml").exists():
        return None
    return read_pipeline().get(name)


def _params(stage: Stage) -> dict[str, Any]:
    """The values of the stage's parameter sections."""
    if not stage.params:
        return {}
    content = yaml.safe_load(Path("params.yaml").read_text(encoding="utf-8"))
    return {key: content.get(key) for key in stage.params}


def _git() -> dict[str, Any]:
    """The commit that the working tree stands on and the tracked files that differ from it."""

    def ask(*words: str) -> str | None:
        result = subprocess.run(["git", *words], capture_output=True, text=True, check=False)
        return result.stdout if result.returncode == 0 else None

    try:
        commit, changed = ask("rev-parse", "HEAD"), ask("status", "--porcelain", "--untracked-files=no")
    except FileNotFoundError:
        return {"commit": None, "changed": None}
    return {
        "commit": commit.strip() if commit else None,
        "changed": sorted(line[3:] for line in changed.splitlines()) if changed is not None else None,
    }


def environment() -> dict[str, Any]:
    """Interpreter, platform, versions and thread settings; no names, no paths, no secrets."""
    versions = {}
    for package in PACKAGES:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            versions[package] = None
    return {
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()}",
        "machine": platform.machine(),
        "cpu": _cpu(),
        "cpus": os.cpu_count(),
        "threads": os.environ.get("OMP_NUM_THREADS"),
        "cuda": _cuda(),
        "packages": versions,
    }


def _cpu() -> str | None:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), None)


def _cuda() -> str | None:
    torch = sys.modules.get("torch")  # a stage that never imported it does not use it
    return torch.cuda.get_device_name() if torch is not None and torch.cuda.is_available() else None
