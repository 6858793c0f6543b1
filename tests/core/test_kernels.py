"""Results do not depend on the newer instructions of a processor, shown on an older one that the kernel imitates."""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ground.io import DataError
from pathfinder.core import kernels

ROOT = Path(__file__).resolve().parents[2]
PINNED = {name for variables in kernels.KERNELS.values() for name in variables}


@pytest.fixture(scope="module")
def older(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library that imitates older processors."""
    library = tmp_path_factory.mktemp("processor") / "older.so"
    if shutil.which("cc") is None or "avx512f" not in Path("/proc/cpuinfo").read_text(encoding="utf-8"):
        pytest.skip("needs a C compiler and a processor with AVX-512")
    source = ROOT / "tests/support/processor/older.c"
    subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", str(library), str(source)], check=True)
    done = subprocess.run(["true"], env={"LD_PRELOAD": str(library), "PROCESSOR": "haswell"}, check=False)
    if done.returncode == 77:
        pytest.skip("this kernel cannot imitate a processor")
    return library


def results(kernel: str, library: Path | None = None, processor: str = "haswell") -> dict[str, str]:
    """The digests of ``tests.support.processor.results`` in a new process."""
    environment = {name: value for name, value in os.environ.items() if name not in PINNED}
    environment |= {kernels.VARIABLE: kernel, "OMP_NUM_THREADS": "1"}
    environment |= {"LD_PRELOAD": str(library), "PROCESSOR": processor} if library else {}
    command = [sys.executable, "-m", "tests.support.processor.results"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    return dict(json.loads(done.stdout))


def test_pinned_kernels_give_equal_bytes_on_an_older_processor_and_native_ones_do_not(older: Path) -> None:
    pinned = results("avx2")
    assert pinned == results("avx2", older)
    native = results("native")
    assert native != pinned
    assert {name for name, digest in native.items() if digest == pinned[name]} < native.keys()


@pytest.mark.benchmarks
@pytest.mark.parametrize("kernel", kernels.KERNELS)
def test_which_results_agree_on_which_processors(older: Path, kernel: str) -> None:
    here = results(kernel)
    for processor in ("haswell", "zen2", "zen4"):
        there = results(kernel, older, processor)
        differ = [name for name, digest in here.items() if there[name] != digest]
        print(json.dumps({"kernels": kernel, "processor": processor, "differ": differ}))


def test_a_stage_pins_its_kernels_before_it_imports_pytorch_and_says_so_in_its_record() -> None:
    code = (
        "import json, stages, torch\nfrom evidence.record.environment import describe_environment\n"
        "from numpy._core._multiarray_umath import __cpu_features__ as features\n"
        "found = describe_environment()\n"
        "print(json.dumps([found['torch']['capability'], found['variables'], features['X86_V4']]))"
    )
    environment = {name: value for name, value in os.environ.items() if name not in PINNED}
    environment |= {"MKL_CBWR": "AUTO", kernels.VARIABLE: "avx2"}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    )
    capability, variables, has_avx512 = json.loads(done.stdout)
    assert capability == "AVX2" or not kernels._has_avx2()
    assert not has_avx512
    assert variables["ONEDNN_MAX_CPU_ISA"] == "AVX2" or not kernels._has_avx2()
    assert variables["MKL_CBWR"] == "AUTO"


def test_an_unknown_choice_is_refused_and_an_old_processor_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(kernels.VARIABLE, "avx3")
    with pytest.raises(DataError, match="PATHFINDER_KERNELS is 'avx3'; expected avx2, compatible, native"):
        kernels.pin_kernels()
    (tmp_path / "cpuinfo").write_text("processor : 0\nflags : fpu sse2 avx fma\nflags : avx2\n")
    assert not kernels._has_avx2(tmp_path / "cpuinfo")
    assert not kernels._has_avx2(tmp_path / "missing")
    (tmp_path / "cpuinfo").write_text("processor : 0\nflags : fpu fma avx2\n")
    assert kernels._has_avx2(tmp_path / "cpuinfo") == (platform.machine() == "x86_64")
