"""Check the needs of the stages on an NVIDIA card: driver, CUDA build of PyTorch, C compiler, Python headers, vLLM."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from infra.doctor.finding import Finding
from pathfinder.models import toolchain

DRIVER = 580
"""The oldest driver branch that runs CUDA 13, the version of the wheels in the locks (NVIDIA's compatibility table)."""
CAPABILITY = 8.0
"""The oldest compute capability with bfloat16 in hardware, which the profiles for a GPU use (Ampere: A100, RTX 30)."""
VLLM = Path(".venv-vllm/bin/vllm")


@dataclass(frozen=True, slots=True)
class Card:
    """A card as nvidia-smi lists it; memory in MiB, 0 if the card shares the memory of the machine."""

    name: str
    driver: str
    memory: int
    capability: float


def cards() -> list[Card]:
    """The cards that nvidia-smi lists; none if it is missing or fails."""
    if shutil.which("nvidia-smi") is None:
        return []
    query = "--query-gpu=name,driver_version,memory.total,compute_cap"
    done = subprocess.run(
        ["nvidia-smi", query, "--format=csv,noheader,nounits"], capture_output=True, text=True, check=False
    )
    return list(read_cards(done.stdout)) if done.returncode == 0 else []


def read_cards(text: str) -> Iterable[Card]:
    """Read nvidia-smi's lines of name, driver, memory in MiB and compute capability."""
    for line in text.splitlines():
        name, driver, memory, capability = (cell.strip() for cell in line.split(","))
        yield Card(name, driver, int(memory) if memory.isdigit() else 0, float(capability))


def card_findings(found: Iterable[Card]) -> list[Finding]:
    """One finding per card and requirement."""
    findings = []
    for card in found:
        old = int(card.driver.partition(".")[0]) < DRIVER
        remedy = f"install driver {DRIVER} or newer: the CUDA 13 wheels do not start with an older one" if old else ""
        findings.append(Finding("driver", card.driver, remedy))
        weak = f"the profiles need compute capability {CAPABILITY} or higher" if card.capability < CAPABILITY else ""
        description = f"{card.name}, {card.memory / 1024:.0f} GiB, compute capability {card.capability}"
        findings.append(Finding("card", description, weak))
    return findings


def torch_finding() -> Finding:
    """The build of PyTorch, and whether it can use a card."""
    import torch

    if torch.version.cuda is None:
        return Finding("PyTorch", f"{torch.__version__}, CPU build", "make BUILD=cuda env")
    remedy = "" if torch.cuda.is_available() else "PyTorch sees no card; see the driver and CUDA_VISIBLE_DEVICES"
    return Finding("PyTorch", f"{torch.__version__}, CUDA {torch.version.cuda}", remedy)


def compiler_finding() -> Finding:
    """The C compiler and Python's headers."""
    problem = toolchain.compile_problem(toolchain.compiler(), toolchain.headers())
    found = problem or f"{toolchain.compiler()}, {toolchain.headers()}"
    return Finding("C compiler", found, toolchain.packages() if problem else "")


def vllm_finding() -> Finding:
    """The environment of the servers that stages start."""
    if VLLM.exists():
        return Finding("vLLM", str(VLLM))
    return Finding("vLLM", f"no {VLLM}", "stages that start a server need it: make vllm", optional=True)


def findings() -> list[Finding]:
    """The checks of a machine with a card; one line without a remedy for a machine without a card."""
    found = cards()
    if not found:
        return [Finding("card", "no NVIDIA card; only the profiles for the CPU run on this machine")]
    return [*card_findings(found), torch_finding(), compiler_finding(), vllm_finding()]
