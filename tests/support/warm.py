"""Python commands in forks of one process, which has imported the libraries and serves a whole test run.

The imports of torch, transformers and Great Expectations take longer than most commands. ``Popen`` and ``run`` are
those of ``subprocess``, but a command of this interpreter becomes a fork. The forks import the project's code
themselves, from their folder or ``PYTHONPATH``. Other commands start as usual.

Run     python -m tests.support.warm SOCKET     (the first command starts it; it ends with the last of its users)
"""

from __future__ import annotations

import asyncio
import atexit
import ctypes
import fcntl
import gc
import importlib
import json
import os
import re
import runpy
import selectors
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

from tests.support import lighter

LIBRARIES = (
    *("torch._dynamo", "torch.distributed.run", "accelerate", "peft", "polars", "pydantic", "typer"),
    *("transformers.models.auto.tokenization_auto", "transformers.models.auto.modeling_auto"),
    *("transformers.models.qwen2.modeling_qwen2", "great_expectations", "networkx", "configobj", "rich.status"),
    *("dvc.cli.parser", "dvc.cachemgr", "dvc.data_cloud", "dvc.rwlock", "dvc.utils.strictyaml", "dvc_data.index.push"),
    *(f"dvc.repo.{name}" for name in ("artifacts", "brancher", "datasets", "graph", "index", "init", "metrics")),
    *(f"dvc.repo.{name}" for name in ("open_repo", "params", "plots", "stage", "trie", "worktree")),
    *("dvc_data.hashfile.db.local", "dvc_data.hashfile.status", "scmrepo.git.backend.pygit2.filter"),
    *(f"dulwich.{name}" for name in ("ignore", "index", "worktree")),
    *("prefect.flows", "prefect.tasks", "prefect.events", "prefect.artifacts", "prefect.assets", "prefect.futures"),
    *("prefect.server.api.server", "prefect.workers.process", "prefect.deployments.runner"),
    *("prefect.cli._server_utils", "cyclopts", "anyio._backends._asyncio"),
    *("openai", "math_verify", "moto.server", "moto.s3.responses", "hypothesis", "openlineage.client.event_v2"),
)
"""Imported once; none of them may import the project."""
_SOCKET = "TESTS_WARM_SOCKET"
_PLAIN = re.compile(r"python -m [\w./= -]+")
_WITHOUT_PREFECT = ("dvc", "flows.local.guardian")
"""Programs that need neither the settings of Prefect nor the loggers that these set up."""
NO_BLOCKS = {"PREFECT_API_BLOCKS_REGISTER_ON_START": "false"}
"""For servers without the catalogue of Prefect's blocks, which only notices use: to write it takes half of a start."""
_FIRST_S = 60.0
"""The server ends if nothing connects within this many seconds."""
_THREADS = "OMP_NUM_THREADS"
_SPARE = 200
"""Received descriptors first move to numbers from here, away from the numbers that a command asks for."""
_SIZE = 8
"""Bytes of each number on the socket."""
_ROOM = "-" * 16_000
"""Room in the arguments and variables of the server. A fork writes its own into it, so that /proc shows them."""


_COLD = subprocess.Popen


class Popen(subprocess.Popen[Any]):
    """A process as of ``subprocess.Popen``: a fork, if its command is this interpreter with -m or -c."""

    def __init__(self, args: Any, **options: Any) -> None:
        self._server: socket.socket | None = None
        if options.get("shell") and isinstance(args, str) and _PLAIN.fullmatch(args):  # as DVC starts a stage
            args, options = [sys.executable, *shlex.split(args)[1:]], {**options, "shell": False, "executable": None}
        cold = options.get("preexec_fn") or options.get("shell")
        self._words = None if cold else _words(args)
        super().__init__(args, **options)

    def _execute_child(self, *given: Any) -> None:
        _, _, _, _, passed, folder, environment, _, _, _, *ends, _, _, _, _, _, is_leader, _ = given
        environment = dict(os.environ if environment is None else environment)
        if self._words is None or environment.get(_THREADS, "1") != "1":
            super()._execute_child(*given)  # type: ignore[misc]
            return
        theirs = [end if end != -1 else number for number, end in enumerate((ends[0], ends[3], ends[5]))]
        job = {
            "words": self._words,
            "folder": os.fspath(folder or Path.cwd()),
            "environment": environment,
            "is_leader": is_leader,
            "numbers": [0, 1, 2, *sorted(passed)],
        }
        message = json.dumps(job).encode()
        self._server = _connect(_path())
        socket.send_fds(self._server, [len(message).to_bytes(_SIZE, "big")], [*theirs, *sorted(passed)])
        self._server.sendall(message)
        self.pid = int.from_bytes(self._server.recv(_SIZE, socket.MSG_WAITALL), "big")
        self._child_created = True
        self._close_pipe_fds(*ends)  # type: ignore[attr-defined]

    def _try_wait(self, wait_flags: int) -> tuple[int, int]:
        if self._server is None:
            return super()._try_wait(wait_flags)  # type: ignore[misc,no-any-return]
        if self._server.fileno() < 0:  # closed with this object, which nobody had any more
            return self.pid, 0
        flags = socket.MSG_DONTWAIT if wait_flags & os.WNOHANG else socket.MSG_WAITALL
        with suppress(BlockingIOError):
            status = self._server.recv(_SIZE, flags)
            self._server.close()
            return self.pid, int.from_bytes(status, "big") if status else signal.SIGKILL
        return 0, 0

    def _internal_poll(self, *given: Any, **options: Any) -> int | None:
        if self._server is None:
            return super()._internal_poll(*given, **options)  # type: ignore[misc,no-any-return]
        if self.returncode is None and self._waitpid_lock.acquire(False):  # type: ignore[attr-defined]
            try:
                pid, status = self._try_wait(os.WNOHANG)
                if pid:
                    self._handle_exitstatus(status)  # type: ignore[attr-defined]
            finally:
                self._waitpid_lock.release()  # type: ignore[attr-defined]
        return self.returncode


def run(command: Sequence[str], timeout: float | None = None, **options: Any) -> subprocess.CompletedProcess[Any]:
    """``subprocess.run`` with the ``Popen`` above, without ``input``."""
    if options.pop("capture_output", False):
        options |= {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    is_checked = options.pop("check", False)
    with Popen(command, **options) as process:
        try:
            out, err = process.communicate(timeout=timeout)
        finally:
            if process.poll() is None:
                process.kill()
    done = subprocess.CompletedProcess(command, process.returncode, out, err)
    if is_checked:
        done.check_returncode()
    return done


@contextmanager
def starts() -> Iterator[None]:
    """Commands that this process starts during the block are forks."""
    before, subprocess.Popen = subprocess.Popen, Popen  # type: ignore[assignment,misc]
    try:
        yield
    finally:
        subprocess.Popen = before  # type: ignore[misc]


def inherited() -> dict[str, str]:
    """Variables with which the commands that a fork starts with ``subprocess`` are forks as well."""
    return {_SOCKET: str(_path())}


def _words(args: Any) -> list[str] | None:
    """The arguments of this interpreter in a command that can be a fork."""
    if not isinstance(args, Sequence) or isinstance(args, str | bytes) or os.fspath(args[0]) != sys.executable:
        return None
    words = [os.fspath(word) for word in args[1:]]
    words = words[words[:1] == ["-u"] :]
    return words if words[:1] in (["-m"], ["-c"]) else None


class _Watcher(asyncio.ThreadedChildWatcher):
    """Lets asyncio wait for a fork, which is no child of its process."""

    def _do_waitpid(self, loop: Any, expected_pid: int, callback: Any, args: Any) -> None:
        process = args[0].get_extra_info("subprocess")
        if getattr(process, "_server", None) is None:
            super()._do_waitpid(loop, expected_pid, callback, args)  # type: ignore[misc]
            return
        status = process.wait()
        with suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(callback, expected_pid, status, *args)
        self._threads.pop(expected_pid)  # type: ignore[attr-defined]


asyncio.set_child_watcher(_Watcher())


@cache
def _path() -> Path:
    """The socket of this test run's server, which runs from now on and until this process has ended."""
    if told := os.environ.get(_SOCKET):
        return Path(told)
    folder = Path(tempfile.gettempdir(), f"pathfinder-tests-{os.getuid()}")
    folder.mkdir(mode=0o700, exist_ok=True)
    path = folder / f"warm-{os.environ.get('PYTEST_XDIST_TESTRUNUID', os.getpid())}"
    with (folder / "warm.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            kept = _connect(path)
        except OSError:
            path.unlink(missing_ok=True)
            command = [sys.executable, "-m", "tests.support.warm", str(path), _ROOM]
            variables = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
            environment = variables | {_THREADS: "1", "PYTHONPATH": str(Path(__file__).parents[2]), "ROOM": _ROOM}
            server = _COLD(command, stdin=subprocess.DEVNULL, env=environment, start_new_session=True)
            while not path.exists():
                assert server.poll() is None, "the server of warm processes has ended"
                time.sleep(0.05)
            kept = _connect(path)
            atexit.register(_leave, server)
    _KEPT.append(kept)
    return path


def _leave(server: subprocess.Popen[bytes]) -> None:
    """Let the server end and wait for it: its CPU time, and its forks', then counts as this process's."""
    while _KEPT:
        _KEPT.pop().close()
    with suppress(subprocess.TimeoutExpired):
        server.wait(10)


_KEPT: list[socket.socket] = []
"""The connection that keeps the server running."""


def _connect(path: Path) -> socket.socket:
    server = socket.socket(socket.AF_UNIX)
    server.connect(str(path))
    return server


def main(path: Path) -> None:
    """Serve until nobody is connected."""
    gc.disable()
    for library in LIBRARIES:
        importlib.import_module(library)
    bundle = path.with_suffix(".pem")
    lighter.lighten(bundle)
    gc.freeze()
    gc.enable()
    assert threading.active_count() == 1, "a fork has none of the other threads"
    new = path.with_suffix(".new")
    with socket.socket(socket.AF_UNIX) as listening, selectors.DefaultSelector() as selector:
        listening.bind(str(new))
        listening.listen(64)
        new.rename(path)
        selector.register(listening, selectors.EVENT_READ)
        while (ready := selector.select(_FIRST_S)) or len(selector.get_map()) > 1:
            for key, _ in ready:
                if key.fileobj is listening:
                    selector.register(listening.accept()[0], selectors.EVENT_READ)
                elif isinstance(key.fileobj, socket.socket):
                    _answer(selector, key.fileobj)
                else:
                    _report(selector, key)
            if len(selector.get_map()) == 1:
                break
        path.unlink(missing_ok=True)
        bundle.unlink(missing_ok=True)


def _answer(selector: selectors.BaseSelector, client: socket.socket) -> None:
    """Start the job that a client sends; a client that leaves is forgotten."""
    size, received, _, _ = socket.recv_fds(client, _SIZE, 64)
    selector.unregister(client)
    if not size:
        client.close()
        return
    job = json.loads(client.recv(int.from_bytes(size, "big"), socket.MSG_WAITALL))
    child = os.fork()
    if child == 0:
        _become(received, **job)
    for number in received:
        os.close(number)
    selector.register(os.pidfd_open(child), selectors.EVENT_READ, (child, client))
    with suppress(OSError):
        client.sendall(child.to_bytes(_SIZE, "big"))


def _report(selector: selectors.BaseSelector, key: selectors.SelectorKey) -> None:
    """Tell the client the status of its process, which has ended."""
    child, client = key.data
    selector.unregister(key.fileobj)
    os.close(key.fd)
    status = os.waitpid(child, 0)[1]
    with suppress(OSError), client:
        client.sendall(status.to_bytes(_SIZE, "big"))


def _become(
    received: list[int],
    words: list[str],
    folder: str,
    environment: dict[str, str],
    is_leader: bool,
    numbers: list[int],
) -> None:
    """Behave as a new interpreter in ``folder``; never returns."""
    status = 1
    try:
        (os.setsid if is_leader else os.setpgrp)()
        spare = [fcntl.fcntl(number, fcntl.F_DUPFD, _SPARE) for number in received]
        os.closerange(3, _SPARE)
        for number, descriptor in zip(numbers, spare, strict=True):
            os.dup2(descriptor, number)
        os.closerange(_SPARE, 2 * _SPARE)
        before = _prefect_variables()
        os.environ.clear()
        os.environ.update(environment)
        _show([sys.executable, *words], environment)
        if _SOCKET in environment:
            subprocess.Popen = Popen  # type: ignore[assignment,misc]
        tempfile.tempdir = None  # TMPDIR decides again
        os.chdir(folder)
        sys.modules.pop("prefect.main", None)  # it sets up logging, by variables that the project sets at its import
        kind, program, *rest = words
        if program not in _WITHOUT_PREFECT and before != _prefect_variables():
            _read_settings()
        sys.argv = ["-c" if kind == "-c" else program, *rest]
        paths = [path for path in environment.get("PYTHONPATH", "").split(os.pathsep) if path]
        mine = str(Path(__file__).parents[2])
        sys.path[:] = [folder if kind == "-m" else "", *paths, *(path for path in sys.path[1:] if path != mine)]
        for name in (
            "tests",
            "tests.support",
            lighter.__name__,
        ):  # a look at all modules would copy the memory of their names
            del sys.modules[name]
        status = _execute(kind, program)
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(status)


def _show(words: list[str], environment: dict[str, str]) -> None:
    """Let /proc show these arguments and variables, as it does for a process that was started with them."""
    bounds = [int(field) for field in Path("/proc/self/stat").read_text().rpartition(")")[2].split()[45:49]]
    shown = (words, [f"{name}={value}" for name, value in environment.items()])
    for texts, start, end in zip(shown, bounds[::2], bounds[1::2], strict=True):
        content = b"".join(os.fsencode(text) + b"\0" for text in texts)
        assert len(content) <= end - start, "too long for the room in the server's arguments and variables"
        ctypes.memmove(start, content.ljust(end - start, b"\0"), end - start)


def _prefect_variables() -> dict[str, str]:
    """The variables that change the settings. Only a server reads ``NO_BLOCKS``, and it has others too."""
    found = {name: value for name, value in os.environ.items() if name.startswith("PREFECT_") or name == "HOME"}
    return {name: value for name, value in found.items() if name not in NO_BLOCKS}


def _read_settings() -> None:
    """Prefect reads its settings when it is imported; to read them again takes a fifth of a second."""
    from prefect import context
    from prefect.logging import configuration

    context.refresh_global_settings_context()
    configuration.setup_logging(incremental=False)


def _execute(kind: str, program: str) -> int:
    """Run a module or a text as the interpreter does; returns the status."""
    try:
        if kind == "-m":
            runpy.run_module(program, run_name="__main__", alter_sys=True)
        else:
            space = {"__name__": "__main__", "__builtins__": __builtins__}
            sys.modules["__main__"].__dict__.update(space)
            exec(compile(program, "<string>", "exec"), sys.modules["__main__"].__dict__)  # noqa: S102 (what -c does)
    except SystemExit as error:
        if isinstance(error.code, int | None):
            return int(error.code or 0)
        print(error.code, file=sys.stderr)
        return 1
    except BaseException as error:
        traceback.print_exception(error)
        return 1
    return 0


if __name__ == "__main__":
    main(Path(sys.argv[1]))
