"""A pytest plugin: try the mutants of a module, each in a fork of this process, which has collected the tests once.

A fork ends at the first test that fails. The test that failed last runs first, then the fastest files, so most mutants
end after milliseconds.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from tests.campaigns.mutation.verdicts import Mutants, Verdict

_DURATIONS, _FAILED = Path("durations.json"), Path("failed.txt")
_CPU_SLACK_S, _SLACK_S, _FACTOR = 5, 30, 8
"""A test has this many seconds of CPU and of time, and in addition this many times what it takes without a mutant."""
_MEMORY_BYTES = 2 << 30


def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Try the mutants without a verdict; if the tests fail without a mutant, pytest runs them as usual and reports."""
    items = session.items
    _FAILED.unlink(missing_ok=True)
    session.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined] # one folder for all forks
    if not items or _fork(lambda: _measured(items)) != "survived":
        return None
    seconds: dict[str, float] = json.loads(_DURATIONS.read_text(encoding="utf-8"))
    of_file: defaultdict[str, float] = defaultdict(float)
    for item in items:
        of_file[item.nodeid.partition("::")[0]] += seconds[item.nodeid]
    items.sort(key=lambda item: (of_file[item.nodeid.partition("::")[0]], seconds[item.nodeid]))
    mutants = Mutants.read()
    assert mutants is not None
    for name in [name for name, verdict in mutants.verdicts.items() if verdict is None]:
        os.environ["MUTANT_UNDER_TEST"] = f"{mutants.module.removesuffix('.py').replace('/', '.')}.{name}"
        mutants.verdicts[name] = _fork(lambda: _all_pass(items, seconds))
        mutants.write()
        if mutants.verdicts[name] == "killed" and _FAILED.exists():
            failed = _FAILED.read_text(encoding="utf-8")
            items.sort(key=lambda item: item.nodeid != failed)
    return True


def _fork(passes: Callable[[], bool]) -> Verdict:
    """The fate of a fork that runs tests: it survives if all pass."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            os.setsid()
            resource.setrlimit(resource.RLIMIT_DATA, (_MEMORY_BYTES, _MEMORY_BYTES))
            status = 0 if passes() else 1
        finally:
            os._exit(status)
    _, status = os.waitpid(pid, 0)
    with suppress(ProcessLookupError):  # processes that the tests started
        os.killpg(pid, signal.SIGKILL)
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) in (signal.SIGALRM, signal.SIGPROF):
        return "timed out"
    return "killed" if status else "survived"


def _measured(items: list[pytest.Item]) -> bool:
    seconds = {}
    for item, following in zip(items, [*items[1:], None], strict=True):
        start = time.monotonic()
        item.ihook.pytest_runtest_protocol(item=item, nextitem=following)
        seconds[item.nodeid] = time.monotonic() - start
    _DURATIONS.write_text(json.dumps(seconds), encoding="utf-8")
    return not items[0].session.testsfailed


def _all_pass(items: list[pytest.Item], seconds: dict[str, float]) -> bool:
    for item, following in zip(items, [*items[1:], None], strict=True):
        signal.setitimer(signal.ITIMER_PROF, _CPU_SLACK_S + _FACTOR * seconds[item.nodeid])
        signal.setitimer(signal.ITIMER_REAL, _SLACK_S + _FACTOR * seconds[item.nodeid])
        item.ihook.pytest_runtest_protocol(item=item, nextitem=following)
        if item.session.testsfailed:
            _FAILED.write_text(item.nodeid, encoding="utf-8")
            return False
    return True
