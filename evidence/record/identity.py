"""The code that determines a stage's result, as listed in dvc.yaml: one definition for DVC and for saved progress.

A stage depends on its own module, on the rooms of ``pathfinder`` that it imports and on the locked packages. Two parts
cannot change a result: ``evidence/record`` only reads inputs and outputs, ``pathfinder/__init__.py`` only names
modules. Unfinished work is stored under the same digest, so an interrupted run never resumes with other code.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path, PurePosixPath

from evidence.dvc.pipeline import read_pipelines
from evidence.record.closure import import_closure, module_of
from ground.hashing import digest_path
from ground.io import DataError, digest_of

PROJECT = Path(__file__).resolve().parents[2]
LOCKS = "infra/locks"
"""The hash-locked packages: a dependency of every stage."""


def is_code(path: str) -> bool:
    """Whether a dependency in dvc.yaml is code or a lock file rather than data."""
    return path == LOCKS or PurePosixPath(path).parts[0] in ("pathfinder", "stages", "ground", "world")


def code_deps(cmd: str, root: Path = Path(".")) -> list[str]:
    """The code dependencies that a stage with this command must list: its module, the rooms it imports, the locks.

    Raises ``DataError`` if ``root`` does not contain the module of the command.
    """
    module = module_of(cmd)
    if module is None:
        raise DataError(f"{cmd!r} runs no module of the project; write `python -m stages.NAME`")
    own = f"{module.replace('.', '/')}.py"
    rooms = sorted({room for file in import_closure(module, root) if (room := _room(file))})
    return [*([] if any(own.startswith(f"{room}/") for room in rooms) else [own]), *rooms, LOCKS]


def _room(file: str) -> str:
    """The folder that a stage lists for a file: a room of ``pathfinder``, or a wing; empty for other files."""
    top, *below = PurePosixPath(file).parts
    return f"{top}/{below[0]}" if top == "pathfinder" and len(below) > 1 else top if top in ("ground", "world") else ""


@cache
def code_digest(stage: str, root: Path = PROJECT) -> str:
    """sha256 of the code that ``dvc.yaml`` lists for a stage, named with or without its variant (``train``).

    Raises ``DataError`` if ``root`` has no such stage or a listed file does not exist.
    """
    stages = read_pipelines(root).values()
    found = next((entry for entry in stages if stage in (entry.name, entry.name.partition("@")[0])), None)
    if found is None:
        raise DataError(f"{root / 'dvc.yaml'}: no stage {stage}; run from a clone of the project")
    try:
        return digest_of({path: digest_path(root / path).sha256 for path in found.deps if is_code(path)})
    except FileNotFoundError as error:
        raise DataError(
            f"dvc.yaml: {stage} lists {error.filename}, which does not exist; run `python -m infra.deps --write`"
        ) from error
