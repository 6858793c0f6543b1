"""YAML files: one reader of mappings, and one check of settings against a model that names every wrong key."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from pathfinder.core.io import DataError

RESTORE = "restore it with `git checkout`"


class Section(BaseModel):
    """A strict, frozen part of a settings file: unknown, missing and ill-typed keys are refused."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


Settings = TypeVar("Settings", bound=Section)


def read_yaml(path: Path, remedy: str = RESTORE, parse: Callable[[str], Any] = yaml.safe_load) -> dict[str, Any]:
    """The mapping in a YAML file; raises ``DataError`` with ``remedy`` if the file does not exist or contain one."""
    try:
        content = parse(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise DataError(f"{path}: no such file; run this in the project's root folder, or {remedy}") from error
    except (yaml.YAMLError, ValueError) as error:
        raise DataError(f"{path}: not valid YAML ({error}); {remedy}") from error
    if not isinstance(content, dict):
        raise DataError(f"{path}: expected a mapping; {remedy}")
    return content


def read_settings(model: type[Settings], path: Path, remedy: str = RESTORE) -> Settings:
    """Read ``path`` and check it; raises ``DataError`` with the dotted name of every wrong key."""
    content = read_yaml(path, remedy)
    try:
        return model.model_validate(content)
    except ValidationError as error:
        problems = "\n".join(f"  {_dotted(item['loc'])}: {item['msg']}" for item in error.errors())
        raise DataError(f"{path}: wrong parameters:\n{problems}\nCorrect these keys, or {remedy}.") from error


def _dotted(location: tuple[int | str, ...]) -> str:
    return ".".join(map(str, location)) or "(the whole file)"
