"""The environment of a run: interpreter, machine, package versions, git commit. No host names, paths or secrets."""

from __future__ import annotations

import os
import platform
import resource
import subprocess
import sys
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

PACKAGES = (
    *("accelerate", "dvc", "great-expectations", "huggingface-hub", "math-verify", "numpy", "openai", "polars"),
    *("prefect", "pyarrow", "pydantic", "safetensors", "tokenizers", "torch", "transformers"),
)
VARIABLES = ("OMP_NUM_THREADS", "PYTHONHASHSEED", "CUDA_VISIBLE_DEVICES", "CUBLAS_WORKSPACE_CONFIG")


def describe_environment() -> dict[str, Any]:
    """Interpreter, machine, variables and packages as a JSON value; unknown facts are ``None``."""
    return {
        "python": platform.python_version(),
        "implementation": platform.python_implementation(),
        "system": f"{platform.system()} {platform.release()}",
        "machine": platform.machine(),
        "cpu": _cpu(),
        "cpus": os.cpu_count(),
        "cuda": _cuda(),
        "variables": {name: os.environ.get(name) for name in VARIABLES},
        "packages": {name: _version(name) for name in PACKAGES},
    }


def peak_rss_bytes() -> int:
    """Peak resident memory of this process or of its largest finished child, whichever is larger."""
    kib = max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return kib * 1024


def describe_commit(paths: Sequence[str]) -> dict[str, Any]:
    """The commit checked out, and the ``paths`` that differ from it; ``None`` values outside a repository."""
    commit = git("rev-parse", "HEAD")
    if commit is None:
        return {"commit": None, "dirty": None, "changed": None}
    status = git("status", "--porcelain=v1", "-z", "--no-renames", "--untracked-files=all", "--", *paths)
    changed = sorted(entry[3:] for entry in (status or "").split("\0") if entry)
    return {"commit": commit.strip(), "dirty": bool(changed), "changed": changed}


def git(*words: str, root: Path = Path(".")) -> str | None:
    """Run a git command in ``root`` and return its output; ``None`` if it fails or git is not installed."""
    try:
        result = subprocess.run(["git", "-C", str(root), *words], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return None
    return result.stdout if result.returncode == 0 else None


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _cpu() -> str | None:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), None)


def _cuda() -> dict[str, Any] | None:
    torch = sys.modules.get("torch")  # never import it here: a stage that has not done so does not use it
    if torch is None or not torch.cuda.is_available():
        return None
    devices = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
    return {"version": torch.version.cuda, "devices": devices}
