"""The locks hold the files of every platform on which the README promises an installation."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
UV = Path(sys.prefix) / "bin/uv"
PLATFORMS = ["x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu", "aarch64-apple-darwin"]
_UNREACHABLE = ("Could not connect", "dns error", "error sending request", "Failed to fetch")
_SOURCE_ONLY = "antlr4-python3-runtime"  # pure Python that its authors publish without a wheel


def uv(*words: str) -> str:
    """Run uv as a macOS 14 machine would, the oldest one with wheels of PyTorch."""
    done = subprocess.run(
        [UV, *words],
        cwd=ROOT,
        env={**os.environ, "MACOSX_DEPLOYMENT_TARGET": "14.0"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode and any(text in done.stderr for text in _UNREACHABLE):
        pytest.skip("the package index is not reachable")
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def pins(text: str) -> set[str]:
    return set(re.findall(r"^[a-z0-9._-]+==[^ ;\n]+", text, re.MULTILINE))


@pytest.mark.team
@pytest.mark.parametrize("platform", PLATFORMS)
def test_every_package_of_the_lock_has_a_locked_file_for_the_platform(platform: str, tmp_path: Path) -> None:
    target = ["--python-platform", platform, "--python-version", "3.11", "--target", str(tmp_path)]
    wheels = ["--only-binary", ":all:", "--no-binary", _SOURCE_ONLY]
    lock = ROOT / "infra/locks/cpu.lock"
    planned = uv("pip", "install", "--dry-run", "--no-deps", "--require-hashes", *target, *wheels, "-r", str(lock))
    assert planned.count("==") == len(pins(lock.read_text())) > 190


@pytest.mark.team
def test_the_lock_is_complete_on_a_mac(tmp_path: Path) -> None:
    """PyTorch's file for macOS needs none of the CUDA libraries, as its CPU build for Linux."""
    lock, found = ROOT / "infra/locks/cpu.lock", tmp_path / "found.txt"
    constraints = tmp_path / "constraints.txt"
    constraints.write_text("\n".join(pins(lock.read_text())))
    words = ["--python-platform", PLATFORMS[2], "--python-version", "3.11", "--no-annotate", "--no-header"]
    uv("pip", "compile", "--quiet", *words, "-c", str(constraints), "infra/requirements.in", "-o", str(found))
    assert pins(found.read_text()) == pins(lock.read_text()) | {"torch==2.13.0"}


def test_the_cpu_build_of_pytorch_is_locked_for_linux_and_macos() -> None:
    """One x86-64 and one aarch64 file for Linux; the file for macOS is also in the lock of the CUDA build."""
    text = (ROOT / "infra/torch-cpu.lock").read_text()
    linux, mac = (part.split("--hash=sha256:")[1:] for part in text.split("torch==2.13.0")[1:])
    assert (len(linux), len(mac)) == (2, 1)
    assert mac[0].strip() in (ROOT / "infra/locks/cuda.lock").read_text()
