"""Record a stage that runs any program: ``python -m evidence record -- COMMAND`` is its command in dvc.yaml."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from evidence.dvc.pipeline import MAIN, Stage, read_pipelines
from evidence.record.identity import WRAPPER
from evidence.record.record import recorded
from ground.io import DataError, sha256_file
from ground.recording import note

_DVC_STAGE = "DVC_STAGE"
"""The stage that DVC runs, in the environment of its command."""


def record_command(words: Sequence[str]) -> None:
    """Run a command and record it under its stage of dvc.yaml, with the sha256 of the program.

    A command that fails leaves no record, and ``SystemExit`` with its exit status is raised. Raises ``DataError`` if
    there is no such program, and as ``recorded`` does.
    """
    if (program := shutil.which(words[0])) is None:
        raise DataError(f"{words[0]}: no such program; install it, or correct the command in {MAIN}")
    with recorded(WRAPPER + shlex.join(words), _stage_of(words)):
        note("program", {"name": Path(program).name, "sha256": sha256_file(Path(program).resolve())})
        if status := subprocess.run([program, *words[1:]], check=False).returncode:
            raise SystemExit(status if status > 0 else 128 - status)


def _stage_of(words: Sequence[str]) -> Stage | None:
    """The stage whose command is this one: the stage that DVC says it runs, or the stage with the same words."""
    stages = read_pipelines() if MAIN.exists() else {}
    if (running := stages.get(os.environ.get(_DVC_STAGE, ""))) and running.cmd.startswith(WRAPPER):
        return running
    return next((each for each in stages.values() if shlex.split(each.cmd) == [*WRAPPER.split(), *words]), None)
