"""The CPU kernels that PyTorch and NumPy use: by default the kernels for AVX2, on every processor with AVX2.

By themselves, the libraries choose the processor's newest instructions (AVX-512, AMX). These add in a different order,
so trained weights differ from machine to machine. ``PATHFINDER_KERNELS`` selects the kernels:

- ``avx2`` (default): equal bytes on all Intel processors with AVX2. Training takes about a fifth longer than with
  AVX-512. MKL ignores its setting on AMD processors, which give equal bytes among themselves.
- ``compatible``: equal bytes on Intel and AMD, but training takes almost twice as long.
- ``native``: the libraries choose.

docs/audit.md has the measurements. The number of threads matters too: see ``pathfinder.models.model.load_model``.
"""

from __future__ import annotations

import os
import platform
import sys
from pathlib import Path

from ground.io import DataError

VARIABLE = "PATHFINDER_KERNELS"
_AVX2 = {
    "ATEN_CPU_CAPABILITY": "avx2",
    "MKL_CBWR": "AVX2",
    "ONEDNN_MAX_CPU_ISA": "AVX2",
    "OPENBLAS_CORETYPE": "Haswell",
    "OPENBLAS_NUM_THREADS": "1",
    "NPY_DISABLE_CPU_FEATURES": "X86_V4 AVX512_ICL AVX512_SPR",
}
KERNELS = {"avx2": _AVX2, "compatible": _AVX2 | {"MKL_CBWR": "COMPATIBLE"}, "native": {}}
"""The variables that each choice sets. The libraries read them when they are imported or used for the first time."""


def pin_kernels() -> None:
    """Set the variables of the chosen kernels for this process and its children, except those already set.

    It does nothing on a processor without AVX2, where the pinned kernels would crash, and once a library is loaded.
    Raises ``DataError`` for an unknown choice.
    """
    chosen = os.environ.get(VARIABLE, "avx2")
    if chosen not in KERNELS:
        raise DataError(f"{VARIABLE} is {chosen!r}; expected {', '.join(KERNELS)}")
    if {"numpy", "torch"} & sys.modules.keys() or not _has_avx2():
        return
    for name, value in KERNELS[chosen].items():
        os.environ.setdefault(name, value)


def _has_avx2(cpuinfo: Path = Path("/proc/cpuinfo")) -> bool:
    if platform.machine() != "x86_64" or not cpuinfo.is_file():
        return False
    flags = next((line for line in cpuinfo.read_text(encoding="utf-8").splitlines() if line.startswith("flags")), "")
    return {"avx2", "fma"} <= set(flags.split())
