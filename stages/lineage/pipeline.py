"""The stage graph as dvc.yaml states it, read without DVC."""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from stages.core.io import DataError

_ITEM = re.compile(r"\$\{item\.([a-z_]+)\}")


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage after expansion of its matrix; ``params`` are the dotted keys of params.yaml that it reads."""

    name: str
    cmd: str
    desc: str
    deps: tuple[str, ...]
    outs: tuple[str, ...]
    params: tuple[str, ...]
    metrics: tuple[str, ...] = ()

    @property
    def all_outs(self) -> tuple[str, ...]:
        """Outs and metrics."""
        return self.outs + self.metrics


def read_pipeline(root: Path = Path(".")) -> dict[str, Stage]:
    """Every stage of ``dvc.yaml`` by name (``train@full``), in the file's order; raises ``DataError``."""
    path = root / "dvc.yaml"
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, yaml.YAMLError) as error:
        raise DataError(f"{path}: cannot read the stage graph ({error}); run from the project's root") from error
    stages: dict[str, Stage] = {}
    for name, body in content["stages"].items():
        for suffix, items in _matrix(body.get("matrix", {})):
            stages[name + suffix] = _stage(name + suffix, body, items)
    return stages


def _matrix(matrix: dict[str, list[str]]) -> list[tuple[str, dict[str, str]]]:
    if not matrix:
        return [("", {})]
    return [
        ("@" + "-".join(values), dict(zip(matrix, values, strict=True)))
        for values in itertools.product(*matrix.values())
    ]


def _stage(name: str, body: dict[str, Any], items: dict[str, str]) -> Stage:
    def fill(text: str) -> str:
        return _ITEM.sub(lambda match: items[match[1]], text)

    def names(key: str) -> tuple[str, ...]:
        return tuple(fill(next(iter(entry)) if isinstance(entry, dict) else entry) for entry in body.get(key, []))

    return Stage(
        name,
        fill(body["cmd"]),
        body.get("desc", ""),
        names("deps"),
        names("outs"),
        names("params"),
        names("metrics"),
    )
