"""A process that has imported DVC and PyTorch: each command of DVC, and each stage with PyTorch, is a fork of it.

A stage gets its own arguments, environment and folder, and imports the project's code itself: it is ``python -m
stages.NAME`` without the seconds that the imports of packages take. DVC does what it always does before and after a
stage, but it parses and formats only that stage's entry of dvc.lock instead of the whole file. The bytes are the same.

Run     python -m flows.local.forks     (``processes.Warm`` does, with a socket as the standard input)
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import json
import os
import re
import runpy
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

from evidence.dvc.history import MAIN_LOCK
from evidence.dvc.lock import blocks_of, replace_blocks
from evidence.record import identity
from flows.local.processes import MARK, MOST_BYTES, ONLY_DVC
from ground.io import DataError, write_text
from ground.remote import kind_of
from pathfinder.core.kernels import pin_kernels

_DVC = (
    *("dvc.cli.parser", "dvc.data_cloud", "dvc.dvcfile", "dvc.lock", "dvc.scm", "dvc.utils.strictyaml", "ruamel.yaml"),
    *(f"dvc.repo.{name}" for name in ("artifacts", "datasets", "metrics", "open_repo", "params", "plots", "stage")),
    *("dvc.cachemgr", "dvc.dirs", "dvc.rwlock", "dvc_data.hashfile.db.local", "dvc_data.hashfile.status"),
    *("scmrepo.git.backend.dulwich", "dulwich.ignore", "dulwich.index", "dulwich.worktree", "configobj"),
)
"""The modules that ``dvc repro`` loads, found by comparing ``sys.modules`` before and after it."""
_STAGES = {"control", "label", "prmbench", "processbench", "sample", "search", "train"}
"""The stages that become forks, because they import PyTorch."""
_PLAIN = re.compile(r"python -m stages\.(\w+)((?: [\w.@-]+)*)")
_SHELLS = {"sh", "bash", "dash", "zsh"}
_OF_COMMAND = {MARK, "DVC_ROOT", "DVC_STAGE"}
"""The variables that may differ between the commands of a run. Libraries read all other variables on import."""
_OWN = {path.parent.name for path in Path(__file__).parents[2].glob("*/__init__.py")}
_IDENTITY = identity.__name__.replace(".", "/") + ".py"
_CARD = Path("/proc/driver/nvidia")
_inherited, _added = dict(os.environ), dict[str, str]()


def serve(control: socket.socket) -> None:
    """Fork a process for each request, until the other side of ``control`` is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the system forgets a command that has ended
    while True:
        message, files, _, _ = socket.recv_fds(control, MOST_BYTES, 2)
        if not message:
            return
        request = json.loads(message)
        _prepare(request["arguments"][-1].partition("@")[0], Path(request["root"]))
        if os.fork() == 0:
            control.close()
            _command(request, socket.socket(fileno=files[0]), files[1])
        for file in files:
            os.close(file)
        if "--single-item" in request["arguments"]:
            _prepare_push()


def _prepare(stage: str, root: Path) -> None:
    """Before a stage that needs PyTorch: import it, keep the variables that this sets, and parse the stage's code."""
    if stage in _STAGES and not _CARD.exists():
        pin_kernels()
        import_module("torch")
        _added.update((name, value) for name, value in os.environ.items() if name not in _inherited)
        with contextlib.suppress(DataError, OSError):  # the stage says what is wrong
            identity.import_closure(f"stages.{stage}", root)


def _prepare_push() -> None:
    """While a stage runs, import what ``dvc push`` needs to send its outs to a store."""
    from flows.local.storage import REMOTE

    if kind_of(os.environ.get(REMOTE, "")):
        with contextlib.suppress(ImportError):  # the push says so
            import_module("s3fs")


def _command(request: dict[str, Any], answer: socket.socket, out: int) -> NoReturn:
    """Run a command of DVC in this process."""

    def work() -> int:
        os.setsid()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for stream in (1, 2):
            os.dup2(out, stream)
        os.close(out)
        _take(request["environment"], request["root"], ["dvc", *request["arguments"]])
        answer.send(str(os.getpid()).encode())
        if "--single-item" in request["arguments"]:
            _FILE.Lockfile._load = load_lock
        return int(import_module("dvc.cli").main(request["arguments"]))

    _end(work, lambda code: answer.send(str(code).encode()))


def run_stage(executable: str, cmd: str, **options: Any) -> None:
    """In place of DVC's ``_run``: run a stage in a fork, or as DVC does if it needs a new process; raises like DVC."""
    plain = _PLAIN.fullmatch(cmd)
    others = {name for name, _ in options["env"].items() ^ _inherited.items()} - _OF_COMMAND
    is_prepared = plain and plain[1] in _STAGES and "torch" in sys.modules
    if not is_prepared or others or Path(executable).name not in _SHELLS or threading.active_count() > 1:
        _RUN(executable, cmd, **options)
        return
    sys.stdout.flush()
    sys.stderr.flush()
    if (child := os.fork()) == 0:
        _stage(*cmd.split()[2:], **options)
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    signal.signal(signal.SIGINT, before)
    if code:
        raise import_module("dvc.stage.exceptions").StageCmdFailedError(cmd, code)


def _stage(module: str, *words: str, env: dict[str, str], cwd: str, **_: Any) -> NoReturn:
    """Run a stage in this process."""

    def work() -> int:
        Path("/proc/self/comm").write_text(module)  # the name that `top` shows
        _take(_added | env, cwd, [module, *words])
        sys.path[0] = os.getcwd()
        for name in ["__mp_main__", *(name for name in sys.modules if name.partition(".")[0] in _OWN)]:
            sys.modules.pop(name, None)
        if Path(_IDENTITY).is_file():
            import_module(identity.__name__).PARSED.update(identity.PARSED)
        gc.freeze()
        runpy.run_module(module, run_name="__main__", alter_sys=True)
        return 0

    _end(work)


def _take(environment: dict[str, str], folder: str, arguments: list[str]) -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    sys.argv = arguments


def _end(work: Callable[[], int], tell: Callable[[int], object] = lambda _: None) -> NoReturn:
    """Do the work of a process and end it as the interpreter would; ``tell`` gets its exit status."""
    code = 1
    try:
        code = work()
    except SystemExit as error:
        if isinstance(error.code, str):
            print(error.code, file=sys.stderr)
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(Exception):
            threading._shutdown()  # type: ignore[attr-defined]  # waits for threads
            atexit._run_exitfuncs()
            sys.stdout.flush()
            sys.stderr.flush()
        with contextlib.suppress(OSError):  # the run was killed
            tell(code)
        os._exit(code & 255)


class Entries(dict[str, Any]):
    """The stages in the text of a lock, of which each is parsed when DVC gets it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self._waiting = blocks_of(text)

    def get(self, name: str, default: Any = None) -> Any:
        """The entry of a stage."""
        if name not in self and name in self._waiting:
            from dvc.utils import serialize  # type: ignore[import-untyped]

            self.update(serialize.parse_yaml(self._waiting.pop(name), MAIN_LOCK))
        return super().get(name, default)


def load_lock(lock: Any, **options: Any) -> tuple[dict[str, Any], str]:
    """In place of DVC's ``Lockfile._load`` for one stage; the comparison at a run's start checked the whole file."""
    file = Path(lock.path)
    text = file.read_text(encoding="utf-8") if file.name == MAIN_LOCK and file.exists() else ""
    return ({"schema": "2.0", "stages": Entries(text)}, text) if text else _LOAD(lock, **options)


@contextlib.contextmanager
def modify_lock(path: str, fs: Any = None) -> Iterator[dict[str, Any]]:
    """In place of DVC's ``modify_yaml`` for dvc.lock: yields the content, then writes the stages that were used."""
    from dvc.utils import serialize

    file = Path(path)
    text = file.read_text(encoding="utf-8") if file.name == MAIN_LOCK and file.exists() else ""
    if not blocks_of(text):
        with serialize.modify_yaml(path, fs=fs) as data:
            yield data
        return
    stages = Entries(text)
    yield {"schema": "2.0", "stages": stages}
    write_text(file, replace_blocks(text, serialize.dumps_yaml({"stages": dict(stages)})))


if __name__ == "__main__":
    if ONLY_DVC in sys.argv:
        _STAGES.clear()
    for _name in _DVC:
        import_module(_name)
    _running, _FILE = import_module("dvc.stage.run"), import_module("dvc.dvcfile")
    _RUN, _running.__dict__["_run"] = _running._run, run_stage
    _LOAD, _FILE.__dict__["modify_yaml"] = _FILE.Lockfile._load, modify_lock
    sys.modules["dvc.cli.parser"].get_main_parser()  # DVC keeps it
    import_module("tqdm").tqdm.monitor_interval = 0  # a bar starts no thread, which a stage would lack
    _control = socket.socket(fileno=os.dup(0))
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)  # commands have no input
    serve(_control)
