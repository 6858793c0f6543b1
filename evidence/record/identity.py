"""The code that determines a stage's result, as listed in dvc.yaml: one definition for DVC and for saved progress.

Unfinished work is stored under the digest of this code, so an interrupted run never resumes with different code.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path, PurePosixPath

from evidence.dvc.pipeline import read_pipelines
from evidence.settings import SETTINGS
from ground.hashing import digest_path
from ground.io import DataError, digest_of

PROJECT = Path(__file__).resolve().parents[2]
LOCKS = SETTINGS.locks
"""The folder of the hash-locked packages."""


def is_code(path: str) -> bool:
    """True if a dependency in dvc.yaml is code or a lock file rather than data."""
    return path == LOCKS or PurePosixPath(path).parts[0] in SETTINGS.code


@cache
def code_digest(stage: str, root: Path = PROJECT) -> str:
    """sha256 of the code that ``dvc.yaml`` lists for a stage, named with or without its variant (``train``).

    Raises ``DataError`` if ``root`` has no such stage or a listed file does not exist.
    """
    stages = read_pipelines(root).values()
    found = next((entry for entry in stages if stage in (entry.name, entry.name.partition("@")[0])), None)
    if found is None:
        raise DataError(f"{root / 'dvc.yaml'}: no stage {stage}; change to a clone of the project")
    try:
        return digest_of({path: digest_path(root / path).sha256 for path in found.deps if is_code(path)})
    except FileNotFoundError as error:
        raise DataError(
            f"dvc.yaml: {stage} lists {error.filename}, which does not exist; {SETTINGS.remedies.deps}"
        ) from error
