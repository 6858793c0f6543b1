"""YAML files that a program edits: comments, quotes and the order of keys are kept."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from ground.settings import RESTORE, read_yaml


def load_commented(path: Path, remedy: str = RESTORE) -> dict[str, Any]:
    """The mapping in a YAML file, with its comments; raises ``DataError`` as ``read_yaml`` does."""
    return read_yaml(path, remedy, _parse)


def dump_commented(content: dict[str, Any], width: int) -> str:
    """The text of a mapping from ``load_commented``; lines longer than ``width`` are wrapped where YAML allows it."""
    buffer = io.StringIO()
    yaml = _yaml()
    yaml.width = width
    yaml.dump(content, buffer)
    return buffer.getvalue()


def _parse(text: str) -> Any:
    try:
        return _yaml().load(text)
    except YAMLError as error:
        raise ValueError(str(error)) from error


def _yaml() -> YAML:
    yaml = YAML(typ="rt")  # "round trip": keeps comments and, like a safe loader, builds no objects from tags
    yaml.preserve_quotes = True
    # Write `null` instead of nothing.
    yaml.representer.add_representer(
        type(None), lambda dump, _: dump.represent_scalar("tag:yaml.org,2002:null", "null")
    )
    return yaml
