"""Shared fixtures. One thread per process: small models are much slower with more on shared cores."""

from __future__ import annotations

import gc
import importlib
import os
import resource
import shutil
import signal
import subprocess
import tempfile
import uuid
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.support import scratch
from tests.support.signals import heed_interrupts

heed_interrupts()
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("DO_NOT_TRACK", "1")
os.environ.setdefault("PATHFINDER_SIGNING_KEY", f"{tempfile.gettempdir()}/pathfinder-tests-{os.getuid()}/signing.pem")

_COMPILER = "TORCHINDUCTOR_CACHE_DIR"
ROOT = Path(__file__).resolve().parent.parent
ON_REQUEST = ("benchmarks", "campaign", "faults", "rehearsal", "team")
"""The markers of tests that take minutes or hours: they run if ``-m`` is given, or if the test is named (``::``)."""
FIRST = (
    "flows/test_deploy.py",
    "flows/test_reproduce.py",
    "training/test_processes.py",
    "test_how_to.py",
    "evidence/test_any_project.py",
    "stages/test_search.py",
    "stages/test_spread.py",
    "prm/test_served_scoring.py",
    "engines/test_vllm_server.py",
    "flows/test_s3.py",
)
"""The modules with slow tests, in the order in which `make test` starts them, so none of them runs last by itself.

Three of them run Prefect servers, which disturb each other on few cores. So the third starts long after the others.
"""


_FORKS: list[int] = []
"""The processes of this run."""


def pytest_configure(config: pytest.Config) -> None:
    """Give a run with several processes its name now: its server of warm processes has it too.

    Its temporary files are in memory, where there is room.
    """
    if getattr(config.option, "numprocesses", None) and not hasattr(config, "workerinput"):
        config.option.testrunuid = config.option.testrunuid or uuid.uuid4().hex
        if folder := scratch.use_memory():
            config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes(config: pytest.Config) -> None:
    """Let the processes of a run be forks: each would import the libraries first."""
    from tests.support import warm

    os.environ["PYTEST_XDIST_TESTRUNUID"] = config.option.testrunuid
    subprocess.Popen = warm.Popen  # type: ignore[assignment,misc]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_newgateway(gateway: Any) -> None:
    _FORKS.append(gateway._io.popen.pid)


def pytest_keyboard_interrupt() -> None:
    """Interrupt the forks too: a terminal does not, because each leads a process group of its own."""
    for pid in _FORKS:
        with suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGINT)


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """Look for no garbage meanwhile: nearly all objects of modules and tests stay.

    Each process of a run first imports the tests of its share, so that no two of them compile the same module.
    """
    gc.disable()
    try:
        if worker := getattr(session.config, "workerinput", None):
            _import_share(int(worker["workerid"][2:]), int(worker["workercount"]), session.config.args)
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def _import_share(number: int, count: int, folders: list[str]) -> None:
    """Import one of ``count`` shares of the test modules in ``folders``; pytest reports a module that cannot be."""
    modules = sorted(path for folder in folders for path in Path(folder).resolve().rglob("test_*.py"))
    for path in modules[number::count]:
        with suppress(Exception, pytest.skip.Exception):
            importlib.import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave ``ON_REQUEST`` out unless it is asked for.

    In a run with several processes, put ``FIRST`` before the other modules, of which those with most tests lead.
    """
    if not config.getoption("markexpr"):
        named = {arg.rpartition("::")[2].partition("[")[0] for arg in config.args if "::" in arg}
        left_out = [item for item in items if _waits(item, named)]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]
    if not hasattr(config, "workerinput"):
        return
    places = {ROOT / "tests" / name: place for place, name in enumerate(FIRST)}
    if missing := [path for path in places if not path.exists()]:
        raise pytest.UsageError(f"{missing[0]} does not exist; correct FIRST in tests/conftest.py")
    sizes = Counter(item.path for item in items)
    items.sort(key=lambda item: (places.get(item.path, len(places)), -sizes[item.path]))


def _waits(item: pytest.Item, named: set[str]) -> bool:
    markers = {marker.name for marker in item.iter_markers()}
    return is_left_out(getattr(item, "originalname", item.name), markers, named)


def is_left_out(name: str, markers: set[str], named: set[str]) -> bool:
    """True if a test has a marker of ``ON_REQUEST`` and is not among those ``named`` on the command line."""
    return name not in named and not markers.isdisjoint(ON_REQUEST)


@pytest.fixture(autouse=True)
def no_compiler_folder() -> Iterator[None]:
    """PyTorch's compiler sets a variable, which the records of later tests in this process would hold."""
    before = os.environ.get(_COMPILER)
    yield
    if before is None:
        os.environ.pop(_COMPILER, None)


@pytest.fixture(scope="session")
def root() -> Path:
    """The project's root folder."""
    return ROOT


@pytest.fixture(scope="session")
def mirror() -> Path:
    """The folder with real benchmark files; tests that need it are skipped where it does not exist."""
    folder = Path(os.environ.get("PATHFINDER_MIRROR", ROOT.parent / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(f"no mirror of the real files at {folder}; set PATHFINDER_MIRROR to a folder that holds them")
    return folder


@pytest.fixture(scope="session")
def world() -> Path:
    """The shipped small world (``data/``)."""
    folder = ROOT / "data"
    if not (folder / "world.json").exists():
        pytest.skip("data/ has no world; fetch it with `dvc pull`")
    return folder


FullDisk = Callable[[], AbstractContextManager[None]]


@pytest.fixture
def full_disk() -> FullDisk:
    """A block in which no file of this process can grow: a write fails with ``EFBIG``."""

    @contextmanager
    def block() -> Iterator[None]:
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)

    return block


@pytest.fixture
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """The client of OpenAI-compatible servers repeats a failed call after hundredths of a second."""
    monkeypatch.setattr("pathfinder.engines.openai_client._FIRST_WAIT_S", 0.01)


@pytest.fixture
def exact_norms(monkeypatch: pytest.MonkeyPatch) -> None:
    """See ``exact_rms_norms``."""
    from tests.support.models import exact_rms_norms  # takes seconds

    exact_rms_norms(monkeypatch)


@pytest.fixture
def warm_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands of this interpreter that the test starts, and their own, are forks of a process with the libraries."""
    from tests.support import warm  # the workers of a stage import this module

    monkeypatch.setattr("subprocess.Popen", warm.Popen)
    for name, value in warm.inherited().items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def vllm_python() -> str:
    """The interpreter of an environment with vLLM; tests that need it are skipped if none is named."""
    python = os.environ.get("PATHFINDER_VLLM")
    if not python:
        pytest.skip("set PATHFINDER_VLLM to the python of an environment with vLLM")
    return python
