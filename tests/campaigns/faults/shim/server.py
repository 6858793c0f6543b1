"""Forks a process per run, in which the shim disturbs one call: python -m tests.campaigns.faults.shim.server TASK …

The modules of the tasks are imported once. Standard input has one request per line, as JSON; each is answered by one
line. ``forks.Forks`` is the other end.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import json
import mmap
import os
import signal
import subprocess
import sys
import traceback
from importlib import import_module
from pathlib import Path
from typing import Any

from ground.text import errors_without_traceback
from tests.campaigns.faults.shim.library import State

_SHOWN = 20_000


def main() -> None:
    """Answer requests until standard input ends."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")  # tasks may print
    os.dup2(2, 1)
    for name in sys.argv[1:]:
        import_module(name)
    subprocess._USE_VFORK = False  # type: ignore[misc]  # a child of vfork loses the handler before its exec
    gc.collect()
    gc.freeze()
    print("ready", file=answers, flush=True)
    for line in sys.stdin:
        print(json.dumps(answered(json.loads(line))), file=answers, flush=True)


def answered(request: dict[str, Any]) -> dict[str, Any]:
    """Run one request in a forked process and say what happened."""
    path = Path(request["state"])
    fault = State(at=request["at"], kind=request["kind"], log=request["log"], root=os.fsencode(request["folder"]))
    path.write_bytes(bytes(fault))
    output = path.with_suffix(".out")
    pid = os.fork()
    if pid == 0:
        _child(request, path, output)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)  # what the run has left
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as shared:
        fault = State.from_buffer_copy(shared)
    for name in modules.read_text().split() if (modules := path.with_suffix(".modules")).exists() else ():
        with contextlib.suppress(Exception):
            import_module(name)  # the next runs need not import what this one did
    modules.unlink(missing_ok=True)
    printed = output.read_text(encoding="utf-8", errors="replace")[-_SHOWN:]
    found = {"count": fault.count, "hit": bool(fault.hit), "call": os.fsdecode(fault.call)}
    return {"status": status, "output": printed, **found}


def _child(request: dict[str, Any], path: Path, output: Path) -> None:
    """Run the task as ``python -m`` would and end."""
    status, known = 1, {*sys.modules}
    try:
        os.setsid()
        signal.alarm(request["limit_s"])
        os.chdir(request["folder"])
        file = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        for descriptor in (1, 2):
            os.dup2(file, descriptor)
        os.environ["FAULTS_STATE"] = str(path)
        module, _, name = request["task"].partition(":")
        work = getattr(import_module(module), name)
        if request["armed"] and ctypes.CDLL(os.environ["LD_PRELOAD"]).faults_arm(os.fsencode(path)):
            raise OSError("the shim cannot be armed: seccomp is not allowed here")
        with errors_without_traceback():
            work(request["argv"])
        status = 0
        if not request["at"]:
            path.with_suffix(".modules").write_text("\n".join(sorted({*sys.modules} - known)), encoding="utf-8")
    except SystemExit as error:
        status = error.code if isinstance(error.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)


if __name__ == "__main__":
    main()
