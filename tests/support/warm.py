"""Commands of a copy of the project, each in a fork of one process that has imported the libraries.

The imports of torch, transformers and Great Expectations take longer than most commands. The forks import the code of
the project themselves, from the copy.

Run     python -m tests.support.warm     (``Warm`` starts it)
"""

from __future__ import annotations

import atexit
import importlib
import json
import os
import runpy
import subprocess
import sys
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

LIBRARIES = ("torch", "transformers.models.auto.tokenization_auto", "polars", "pydantic", "typer", "great_expectations")
"""Imported once; none of them may import the project."""


class Warm:
    """The process that forks, ended by leaving the block."""

    def __enter__(self) -> Warm:
        pipe = subprocess.PIPE
        command = [sys.executable, "-m", "tests.support.warm"]
        self._server = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, bufsize=1)
        return self

    def __exit__(self, *_: object) -> None:
        self._server.communicate()

    def run(
        self, words: Sequence[str], folder: Path, environment: Mapping[str, str]
    ) -> subprocess.CompletedProcess[str]:
        """Run Python with ``words`` (``-m MODULE …`` or ``-c CODE …``) in ``folder`` and capture what it prints."""
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        with TemporaryDirectory() as scratch:
            out, err = Path(scratch, "out"), Path(scratch, "err")
            job = {"words": list(words), "folder": str(folder), "environment": dict(environment)}
            self._server.stdin.write(json.dumps(job | {"out": str(out), "err": str(err)}) + "\n")
            status = int(self._server.stdout.readline())
            return subprocess.CompletedProcess([*words], status, out.read_text(), err.read_text())


def main() -> None:
    """Read jobs as JSON lines and answer with the exit status of each."""
    for library in LIBRARIES:
        importlib.import_module(library)
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            _become(**json.loads(line))
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


def _become(words: list[str], folder: str, environment: dict[str, str], out: str, err: str) -> None:
    """Behave as a new interpreter in ``folder``; never returns."""
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    for number, file in ((0, os.devnull), (1, out), (2, err)):
        os.dup2(os.open(file, os.O_RDWR | os.O_CREAT), number)
    for name in [name for name in sys.modules if name.partition(".")[0] == "tests"]:
        del sys.modules[name]
    sys.path[0] = folder
    sys.path[1:1] = [path for path in environment.get("PYTHONPATH", "").split(os.pathsep) if path]
    kind, program, *rest = words
    sys.argv = ["-c" if kind == "-c" else program, *rest]
    status = 0
    try:
        if kind == "-m":
            runpy.run_module(program, run_name="__main__", alter_sys=True)
        else:
            exec(compile(program, "<string>", "exec"), {"__name__": "__main__"})  # noqa: S102 (what python -c does)
    except SystemExit as error:
        status = error.code if isinstance(error.code, int) else int(error.code is not None)
        if isinstance(error.code, str):
            print(error.code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
        status = 1
    finally:
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(status)


if __name__ == "__main__":
    main()
