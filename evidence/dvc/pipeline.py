"""The stage graph of dvc.yaml, with ``matrix`` and ``foreach`` expanded under DVC's names, read without DVC.

As in DVC, a matrix axis and a ``foreach`` can refer to a list in params.yaml (``${runs}``), and a path to a value
(``${download.world}``).
"""

from __future__ import annotations

import itertools
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from evidence.settings import SETTINGS
from ground.io import DataError
from ground.settings import read_yaml

PIPELINES = tuple(map(Path, SETTINGS.pipelines))
"""The pipelines of the project and of shipped data. Their stage names differ; all paths are relative to the root."""
MAIN = PIPELINES[0]
_KEEPING = {"persist": True, "push": False}
"""The statements about an out that change how DVC keeps it."""
_ITEM = re.compile(r"\$\{\s*([^}]*?)\s*\}")
_WORD = re.compile(r"[A-Za-z0-9_]+([.-][A-Za-z0-9_]+)*")
_PATH = re.compile(rf"{_WORD.pattern}(/{_WORD.pattern})*")


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage after expansion; ``params`` are the dotted keys of ``params_file`` that it reads.

    ``flags`` are the statements that DVC acts on although no record has them.
    """

    name: str
    cmd: str
    deps: tuple[str, ...]
    outs: tuple[str, ...]
    params: tuple[str, ...]
    metrics: tuple[str, ...] = ()
    file: str = "dvc.yaml"
    params_file: str = "params.yaml"
    flags: tuple[str, ...] = ()
    desc: str = ""

    @property
    def all_outs(self) -> tuple[str, ...]:
        """Outs and metrics."""
        return self.outs + self.metrics


def read_pipelines(root: Path = Path(".")) -> dict[str, Stage]:
    """The stages of all pipelines by name; only the first must exist. Raises ``DataError`` if one is invalid."""
    found = read_pipeline(root)
    for file in PIPELINES[1:]:
        found |= read_pipeline(root, file) if (root / file).exists() else {}
    return found


def read_pipeline(root: Path = Path("."), file: Path = MAIN) -> dict[str, Stage]:
    """Every stage of a ``dvc.yaml`` by name (``train@full``), in the file's order.

    Raises ``DataError`` if the file or the parameters that it refers to cannot be read or are not as expected.
    """
    content = read_yaml(root / file)
    expander = _Expander(root, file, "vars" in content)
    bodies = content.get("stages") or {}
    try:
        return {stage.name: stage for name, body in bodies.items() for stage in expander.stages(_text(name), body)}
    except (AttributeError, LookupError, TypeError) as error:
        raise DataError(f"{file}: a stage is not as DVC expects ({error!r}); `dvc status` names the place") from error


def value_at(content: Any, key: str, default: Any = None) -> Any:
    """The value under a dotted key of nested mappings, or ``default``."""
    for part in key.split("."):
        if not isinstance(content, Mapping) or part not in content:
            return default
        content = content[part]
    return content


def params_of(root: Path, stage: Stage) -> dict[str, Any]:
    """The values of a stage's parameters; raises ``DataError`` if one cannot be read, or cannot be in a record."""
    content = read_yaml(root / stage.params_file) if stage.params else {}
    missing = object()
    values = {key: value_at(content, key, missing) for key in stage.params}
    if absent := [key for key, value in values.items() if value is missing]:
        remedy = SETTINGS.remedies.params if stage.file == str(MAIN) else "restore it with git"
        raise DataError(f"{stage.params_file}: no key {absent[0]}, which {stage.file} lists; {remedy}")
    for key, value in values.items():
        try:
            json.dumps(value, sort_keys=True, allow_nan=False)
        except (TypeError, ValueError) as error:  # a date, an infinite number, keys of several kinds
            raise DataError(f"{stage.params_file}: {key}: cannot be in a record ({error}); put it in quotes") from error
    return values


def leaves(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """The values of nested mappings with their dotted keys; a list is one value."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from leaves(inner, f"{name}.{key}" if name else str(key))
    else:
        yield name, value


class _Expander:
    """Expands the stages of one dvc.yaml, with the parameters next to it."""

    def __init__(self, root: Path, file: Path, has_vars: bool) -> None:
        self._folder, self._has_vars = file.parent, has_vars
        self._file, self._params_file = file.as_posix(), file.with_name("params.yaml").as_posix()
        path = root / self._params_file
        self._params = read_yaml(path) if path.exists() else {}

    def stages(self, name: str, body: Mapping[str, Any]) -> Iterator[Stage]:
        pairs: Iterable[tuple[Any, Any]]
        if "matrix" in body:
            axes = {axis: self._axis(values) for axis, values in body["matrix"].items()}
            items = [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]
            pairs = [("-".join(_label(axes, *entry) for entry in item.items()), item) for item in items]
        elif "foreach" in body:
            given, body = body["foreach"], body["do"]
            pairs = given.items() if isinstance(given, dict) else _keyed(self._axis(given))
        else:
            yield self._stage(name, body, {})
            return
        for key, item in pairs:
            yield self._stage(f"{name}@{_text(key)}", body, {"item": item, "key": key})

    def _axis(self, values: Any) -> list[Any]:
        """The values of an axis or ``foreach``: from params.yaml plain words only, as they enter commands and paths."""
        if not isinstance(values, str):
            return list(values)
        key = match[1] if (match := _ITEM.fullmatch(values)) else values
        found = value_at(self._params, key)
        if not isinstance(found, list):
            raise DataError(f"{self._params_file}: no list `{key}`, which dvc.yaml expands into stages; add it")
        wrong = [value for value in found if isinstance(value, (dict, list)) or not _WORD.fullmatch(_text(value))]
        if wrong:
            raise DataError(
                f"{self._params_file}: `{key}` holds {wrong[0]!r}; expected words of letters, digits, _, - and ."
            )
        return found

    def _stage(self, name: str, body: Mapping[str, Any], items: Mapping[str, Any]) -> Stage:
        def fill(text: str, params: Mapping[str, Any] | None = None) -> str:
            return _ITEM.sub(lambda match: _value(name, match[1], items, params), text)

        def paths(*keys: str) -> tuple[str, ...]:
            entries = [entry for key in keys for entry in body.get(key, ())]
            names: Iterable[Any] = (next(iter(entry), None) if isinstance(entry, dict) else entry for entry in entries)
            return tuple(PurePosixPath(fill(name, self._params)).as_posix() for name in names)

        if os.path.normpath(self._folder / body.get("wdir", "")) != ".":
            raise DataError(f"{self._file}: {name}: wdir must be the project's folder, which all paths are read from")
        keys: list[str] = []
        for entry in body.get("params", ()):  # a key of params.yaml, or a file with its keys
            for file, names in (entry if isinstance(entry, dict) else {"params.yaml": [entry]}).items():
                if file != self._params_file or not names:
                    raise DataError(f"{self._file}: {name}: params: expected keys of {self._params_file}, not {file}")
                keys += names
        cmd = body["cmd"]
        return Stage(
            name,
            fill("\n".join(cmd) if isinstance(cmd, list) else cmd),
            deps=paths("deps"),
            outs=paths("outs", "plots"),
            params=tuple(map(fill, keys)),
            metrics=paths("metrics"),
            file=self._file,
            params_file=self._params_file,
            flags=tuple(self._flags(body)),
            desc=str(body.get("desc") or ""),
        )

    def _flags(self, body: Mapping[str, Any]) -> Iterator[str]:
        """The statements that change what DVC runs or keeps, and that neither a lock nor a record has."""
        yield from (f"`{key}: true`" for key in ("frozen", "always_changed") if body.get(key))
        yield from ("`vars`" for _ in range(self._has_vars or "vars" in body))
        for entry in itertools.chain(*(body.get(key, ()) for key in ("outs", "metrics", "plots"))):
            for path, facts in entry.items() if isinstance(entry, dict) else ():
                facts = facts if isinstance(facts, dict) else {}
                yield from (f"`{k}: {str(v).lower()}` for {path}" for k, v in _KEEPING.items() if facts.get(k) is v)


def _keyed(values: list[Any]) -> list[tuple[Any, Any]]:
    """The values of a ``foreach`` with their keys: themselves or, as in DVC, numbers if one value is not a scalar."""
    are_numbered = any(isinstance(each, (dict, list)) for each in values)
    return [(number if are_numbered else value, value) for number, value in enumerate(values)]


def _label(axes: Mapping[str, list[Any]], axis: str, value: Any) -> str:
    """The part of a stage's name; DVC numbers the values of an axis that are not scalars."""
    return f"{axis}{axes[axis].index(value)}" if isinstance(value, (dict, list)) else _text(value)


def _value(stage: str, expression: str, items: Mapping[str, Any], params: Mapping[str, Any] | None) -> str:
    value = value_at(items, expression)
    if value is None:
        # Never fill a command from params.yaml: the shell would execute the value.
        value = value_at(params, expression)
        if not isinstance(value, str) or not _PATH.fullmatch(value):
            raise DataError(
                f"dvc.yaml: {stage} uses ${{{expression}}}; expected an item of matrix or foreach, or, in a path, "
                "a value of params.yaml that is a plain path"
            )
    return _text(value)


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
