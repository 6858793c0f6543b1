"""Submit a job of the active profile to Slurm: a stage, a stage in parts, or the whole pipeline.

Run: python -m infra.slurm JOB [--parts COUNT] [--print]

JOB is a stage of dvc.yaml, such as ``label`` or ``train@full``, or ``run``. With ``--parts``, an array computes the
parts of label, prepare or build, and a job after it merges them. If several machines train together, ``run`` becomes a
job on one machine, a job on all machines for each training, and a last job for the rest.
"""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from ground.io import DataError
from infra.slurm.sizes import RUN, Sizes, sizes
from pathfinder.core.params import PARAMS_FILE, load_params
from pathfinder.core.runs import parse_runs

LAST = "LAST_JOB"
_AFTER = f"--dependency=afterok:{LAST}"
_SCRIPT = "infra/slurm/job.sbatch"
_PARTS = ("label", "prepare", "build")
_READY = "validate_train"
"""The last stage before training."""


def main(
    job: Annotated[str, typer.Argument(help="A stage of dvc.yaml, such as label or train@full, or run.")],
    parts: Annotated[int, typer.Option(help="Compute the stage in this many parts.", min=1)] = 1,
    only_print: Annotated[bool, typer.Option("--print", help="Print the commands, and submit nothing.")] = False,
) -> None:
    """Submit a job with the sizes of the active profile."""
    last = ""
    for command in commands(Path.cwd(), job, parts):
        if only_print:
            typer.echo(shlex.join(command))
        else:
            last = _submit([word.replace(LAST, last) for word in command])
            typer.echo(last)


def commands(root: Path, job: str, parts: int = 1) -> list[list[str]]:
    """The commands that submit ``job``. Each waits for the job before, whose number replaces ``LAST``.

    Raises ``DataError`` if the job is unknown, has no parts, or does not fit the profile's machine.
    """
    found = sizes(root, job)
    if parts > 1:
        if job not in _PARTS:
            raise DataError(f"{job} has no parts; {', '.join(_PARTS)} have (docs/data.md#parts-on-several-machines)")
        return [_command(found, [job], f"--array=1-{parts}"), _command(replace(found, gpus=0), [job], _AFTER)]
    if job != RUN or found.nodes == 1:
        return [_command(found, [job])]
    before = _command(sizes(root, RUN, [_READY]), [RUN, _READY])
    trains = [f"train@{run.name}" for run in parse_runs(load_params(root / PARAMS_FILE).runs)]
    others = [_command(sizes(root, train), [train], _AFTER) for train in trains]
    return [before, *others, _command(replace(found, nodes=1), [RUN], _AFTER)]


def _command(found: Sizes, job: Sequence[str], *options: str) -> list[str]:
    name = f"--job-name=pathfinder-{job[0].replace('@', '-')}"
    return ["sbatch", "--parsable", name, *found.options(), *options, _SCRIPT, *job]


def _submit(command: list[str]) -> str:
    """The number of the submitted job; raises ``DataError`` with the message of sbatch."""
    Path(".pathfinder").mkdir(exist_ok=True)  # Slurm writes the log there
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        raise DataError("sbatch: not found; run this where Slurm is, or add --print") from error
    if done.returncode:
        raise DataError(f"sbatch: {done.stderr.strip()}; change the sizes with --print and a command of your own")
    return done.stdout.strip().partition(";")[0]


if __name__ == "__main__":
    try:
        typer.run(main)
    except DataError as error:
        raise SystemExit(str(error)) from None
