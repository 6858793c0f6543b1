"""The stage graph as dvc.yaml states it, ``matrix`` and ``foreach`` expanded under DVC's names, read without DVC.

A matrix axis may name a list of params.yaml (``${runs}``), a path a value of it (``${download.world}``), as DVC reads
them. There are two pipelines: the project's, and the one that makes what data/ ships.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from pathfinder.core.io import DataError

MAIN, PRETRAINING = Path("dvc.yaml"), Path("infra/pretraining/dvc.yaml")
PIPELINES = (MAIN, PRETRAINING)
"""Stage names differ between the two; every path in them is relative to the project's root."""
_ITEM = re.compile(r"\$\{\s*([^}]*?)\s*\}")
_PATH = re.compile(r"[a-z0-9_-]+(/[a-z0-9_-]+)*")
_WORD = re.compile(r"[a-z0-9_]+(-[a-z0-9_]+)*")


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage after expansion; ``params`` are the dotted keys of ``params_file`` that it reads."""

    name: str
    cmd: str
    desc: str
    deps: tuple[str, ...]
    outs: tuple[str, ...]
    params: tuple[str, ...]
    metrics: tuple[str, ...] = ()
    file: str = "dvc.yaml"
    params_file: str = "params.yaml"

    @property
    def all_outs(self) -> tuple[str, ...]:
        """Outs and metrics."""
        return self.outs + self.metrics


def read_pipelines(root: Path = Path(".")) -> dict[str, Stage]:
    """The stages of both pipelines by name; the second may be missing. Raises ``DataError``."""
    found = [file for file in PIPELINES if file == MAIN or (root / file).exists()]
    return {name: stage for file in found for name, stage in read_pipeline(root, file).items()}


def read_pipeline(root: Path = Path("."), file: Path = MAIN) -> dict[str, Stage]:
    """Every stage of a ``dvc.yaml`` by name (``train@full``), in the file's order; raises ``DataError``."""
    path = root / file
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, yaml.YAMLError) as error:
        raise DataError(f"{path}: cannot read the stage graph ({error}); run from the project's root") from error
    bodies = (content or {}).get("stages", {})
    params = file.with_name("params.yaml")
    lists = _Params(root / params)
    stages = [stage for name, body in bodies.items() for stage in _expand(name, body, lists)]
    return {stage.name: replace(stage, file=file.as_posix(), params_file=params.as_posix()) for stage in stages}


class _Params:
    """What of params.yaml axes and paths name; the file is read when one does."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._content: Any = None

    def __call__(self, axis: Any) -> list[Any]:
        """The values of an axis; those of params.yaml are plain words, for they become part of commands and paths."""
        if not isinstance(axis, str):
            return list(axis)
        key = found[1] if (found := _ITEM.fullmatch(axis)) else axis
        values = self.value(key)
        if not isinstance(values, list):
            raise DataError(f"{self._path}: dvc.yaml makes stages of its list `{key}`, which is not there")
        wrong = [value for value in values if not isinstance(value, str) or not _WORD.fullmatch(value)]
        if wrong:
            raise DataError(f"{self._path}: `{key}` holds {wrong[0]!r}; expected names of a-z, 0-9, _ and -")
        return values

    def value(self, key: str) -> Any:
        """The value under a dotted key, or ``None``."""
        if self._content is None:
            try:
                self._content = yaml.safe_load(self._path.read_text(encoding="utf-8"))
            except (FileNotFoundError, yaml.YAMLError) as error:
                raise DataError(
                    f"{self._path}: dvc.yaml takes `{key}` from it, and it cannot be read: {error}"
                ) from error
        values = self._content
        for part in key.split("."):
            values = values.get(part) if isinstance(values, dict) else None
        return values


def _expand(name: str, body: Mapping[str, Any], lists: _Params) -> Iterator[Stage]:
    if "matrix" in body:
        axes = {axis: lists(values) for axis, values in body["matrix"].items()}
        for values in itertools.product(*axes.values()):
            item = dict(zip(axes, values, strict=True))
            # DVC numbers the values of an axis that are no plain scalars.
            key = "-".join(
                f"{axis}{axes[axis].index(value)}" if isinstance(value, (dict, list)) else _text(value)
                for axis, value in item.items()
            )
            yield _stage(f"{name}@{key}", body, {"item": item, "key": key}, lists)
    elif "foreach" in body:
        items = body["foreach"]
        pairs = items.items() if isinstance(items, dict) else ((_text(item), item) for item in items)
        for key, item in pairs:
            yield _stage(f"{name}@{key}", body["do"], {"item": item, "key": key}, lists)
    else:
        yield _stage(name, body, {}, lists)


def _stage(name: str, body: Mapping[str, Any], items: Mapping[str, Any], params: _Params) -> Stage:
    def fill(text: str, given: _Params | None = None) -> str:
        return _ITEM.sub(lambda match: _value(name, match[1], items, given), text)

    def names(*keys: str) -> tuple[str, ...]:
        entries = [entry for key in keys for entry in body.get(key, ())]
        return tuple(fill(str(next(iter(entry)) if isinstance(entry, dict) else entry), params) for entry in entries)

    def keys_read() -> Iterator[str]:
        for entry in body.get("params", ()):  # a key of params.yaml, or a file with its keys
            yield from map(
                fill, (key for keys in entry.values() for key in keys) if isinstance(entry, dict) else [entry]
            )

    cmd = body["cmd"]
    return Stage(
        name,
        fill("\n".join(cmd) if isinstance(cmd, list) else cmd),
        body.get("desc", ""),
        names("deps"),
        names("outs", "plots"),
        tuple(keys_read()),
        names("metrics"),
    )


def _value(stage: str, expression: str, items: Mapping[str, Any], params: _Params | None) -> str:
    value: Any = items
    for part in expression.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    if value is None:
        value = params.value(expression) if params else None  # never in a command: the shell would run it
        if not isinstance(value, str) or not _PATH.fullmatch(value):
            raise DataError(
                f"dvc.yaml: {stage} uses ${{{expression}}}; only items of matrix and foreach, and in paths names "
                "that params.yaml gives, are understood"
            )
    return _text(value)


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
