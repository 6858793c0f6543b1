"""Check the needs of the stages on an NVIDIA card: driver, CUDA build of PyTorch, C compiler, Python headers, vLLM."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ground.io import DataError
from infra.doctor.finding import Finding
from pathfinder.models import toolchain
from pathfinder.models.cards import GIB, Device, gpus
from pathfinder.planning import gpu_plan
from pathfinder.planning.cards import card_of

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
    """The cards that nvidia-smi lists; none if it is missing. Raises ``DataError`` with its first line if it fails."""
    if shutil.which("nvidia-smi") is None:
        return []
    query = "--query-gpu=name,driver_version,memory.total,compute_cap"
    done = subprocess.run(
        ["nvidia-smi", query, "--format=csv,noheader,nounits"], capture_output=True, text=True, check=False
    )
    if done.returncode:
        line = (done.stdout + done.stderr).strip().partition("\n")[0] or f"status {done.returncode}"
        raise DataError(f"nvidia-smi fails: {line}")
    return list(read_cards(done.stdout))


def read_cards(text: str) -> Iterable[Card]:
    """Read nvidia-smi's lines of name, driver, memory in MiB and compute capability."""
    for line in text.splitlines():
        name, driver, memory, capability = (cell.strip() for cell in line.split(","))
        yield Card(name, driver, int(memory) if memory.isdigit() else 0, _number(capability))


def _number(cell: str) -> float:
    return float(cell) if re.fullmatch(r"\d+(\.\d+)?", cell) else 0.0


def card_findings(found: Iterable[Card]) -> list[Finding]:
    """One finding per card and requirement."""
    findings = []
    for card in found:
        old = int(card.driver.partition(".")[0]) < DRIVER
        remedy = f"install driver {DRIVER} or newer: the CUDA 13 wheels do not start with an older one" if old else ""
        findings.append(Finding("driver", card.driver, remedy))
        weak = f"the profiles need compute capability {CAPABILITY} or higher" if card.capability < CAPABILITY else ""
        description = f"{card.name}, {card.memory / 1024:.0f} GiB, compute capability {card.capability}"
        if card.memory and not weak:
            description += f", planned as {card_of(gpus(card.memory / 1024, 1, card.name)).name}"
        findings.append(Finding("card", description, weak))
    return findings


def torch_finding() -> Finding:
    """Check the build of PyTorch, and that it can use a card."""
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


def profile_finding(root: Path, found: Sequence[Card]) -> Finding | None:
    """The memory that the active profile lacks here, in the words of `pathfinder plan --gpu`; None if it lacks nothing.

    Also None without a valid params.yaml, which the disk check reports.
    """
    try:
        plan = gpu_plan.plan_of(root)
        if found and all(card.memory for card in found):  # all of the memory, for any installed build of PyTorch
            plan = replace(plan, device=gpus(min(card.memory for card in found) / 1024, len(found), found[0].name))
        wanted, profile = plan.gpus_needed, plan.params.profile
        small = [stage for stage, each in plan.verdicts.items() if each and not each.fits]
    except DataError:
        return None
    other = "write a profile for this machine (`pathfinder profile` lists them)"
    if wanted and plan.device.kind == "cpu":
        needed = f"profile {profile} needs {_gpus(wanted)}, and there is none"
        return Finding("card", needed, f"use a machine with such cards (there: make BUILD=cuda env), or {other}")
    if small and plan.device.kind == "cuda":
        lacking = f"profile {profile} does not fit on {_gpus(plan.device)}: {', '.join(small)}"
        return Finding("profile", lacking, f"change the settings that `pathfinder plan --gpu` names, or {other}")
    return None


def _gpus(device: Device) -> str:
    each = f"{device.total / GIB:.0f} GiB"
    return f"{device.cards} NVIDIA cards of {each}" if device.cards > 1 else f"an NVIDIA card of {each}"


def findings(root: Path) -> list[Finding]:
    """The checks of a machine with a card; for a machine without one, wrong only if the profile needs one."""
    try:
        found = cards()
    except DataError as error:
        return _without_cards(root, str(error), "repair or update the driver")
    if not found:
        return _without_cards(root, "no NVIDIA card")
    lacking = profile_finding(root, found)
    return [*card_findings(found), *([lacking] if lacking else []), torch_finding(), compiler_finding(), vllm_finding()]


def _without_cards(root: Path, why: str, remedy: str = "") -> list[Finding]:
    if lacking := profile_finding(root, []):
        return [Finding("card", why, remedy), lacking] if remedy else [lacking]
    return [Finding("card", f"{why}; only the profiles for the CPU run on this machine")]
