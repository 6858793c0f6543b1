"""Profiles: ``infra/profiles/paper.yaml`` is complete, every other file there is laid over it.

``params.yaml`` is written whole, with the comments of the base, so that a reader needs no other file.
"""

from __future__ import annotations

import io
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from pathfinder.core.io import DataError, write_text
from pathfinder.core.params import PARAMS_FILE, load_params

FOLDER = Path("infra/profiles")
BASE = "paper"
_HEAD = """\
# Written by `pathfinder profile {name}` from {folder}/. Edit freely: an edited file is replaced only with --force.
# A comment gives the paper's table or section, or the published script, that the paper's number comes from; where this
# profile has another value, that number stands in front of it.
"""
_NOTE_GAP = re.compile(r"(?<=\S) +# ")


def names(root: Path) -> list[str]:
    """Every profile, by name."""
    return sorted(path.stem for path in (root / FOLDER).glob("*.yaml"))


def render(root: Path, name: str) -> str:
    """The complete ``params.yaml`` of a profile."""
    if name not in names(root):
        raise DataError(f"{name}: no such profile; there are {', '.join(names(root)) or 'none in infra/profiles'}")
    if name == BASE:
        return (root / FOLDER / f"{BASE}.yaml").read_text(encoding="utf-8")
    yaml = _yaml()
    content = _load(root, BASE)
    for layer in _layers(root, name):
        _overlay(content, layer, f"{FOLDER}/{name}.yaml")
    buffer = io.StringIO()
    yaml.dump(content, buffer)
    body = "".join(
        _NOTE_GAP.sub("  # ", line, count=1)
        for line in buffer.getvalue().splitlines(keepends=True)
        if not line.startswith("#")
    )
    return _HEAD.format(name=name, folder=FOLDER) + body.lstrip("\n")


def write(root: Path, name: str, force: bool = False) -> bool:
    """Write ``params.yaml`` for a profile; False where it stands there already.

    Refuses to replace a file that no profile wrote, unless ``force``; raises ``DataError`` where the result is wrong.
    """
    path = root / PARAMS_FILE
    text = render(root, name)
    if path.exists():
        current = path.read_text(encoding="utf-8")
        if current == text:
            return False
        if not force and all(current != render(root, other) for other in names(root)):
            raise DataError(f"{PARAMS_FILE}: edited by hand; keep a copy and repeat with --force to replace it")
    candidate = path.with_name(f".{path.name}.candidate")
    try:
        candidate.write_text(text, encoding="utf-8")
        load_params(candidate)
    finally:
        candidate.unlink(missing_ok=True)
    write_text(path, text)
    return True


def _layers(root: Path, name: str) -> list[Any]:
    """A profile's overlays, the most general first."""
    layers: list[Any] = []
    seen = {BASE}
    while name not in seen:
        seen.add(name)
        layer = _load(root, name)
        below = layer.pop("extends", BASE)
        layers.insert(0, layer)
        if below not in names(root):
            raise DataError(f"{FOLDER}/{name}.yaml: extends {below}, which is no profile")
        name = below
    return layers


def _load(root: Path, name: str) -> Any:
    path = root / FOLDER / f"{name}.yaml"
    try:
        content = _yaml().load(path.read_text(encoding="utf-8"))
    except YAMLError as error:
        raise DataError(f"{path}: not valid YAML: {error}") from error
    if not isinstance(content, dict):
        raise DataError(f"{path}: holds no sections")
    return content


def _overlay(base: Any, layer: Mapping[str, Any], where: str) -> None:
    for key, value in layer.items():
        if key not in base:
            raise DataError(f"{where}: {key} is no key of {FOLDER}/{BASE}.yaml")
        # A list or a catalogue of files is replaced whole; a section is merged.
        if isinstance(value, dict) and isinstance(base[key], dict):
            _overlay(base[key], value, where)
        elif base[key] != value:
            _keep_number(base, key)
            base[key] = value


def _keep_number(base: Any, key: str) -> None:
    """Put the paper's value into the comment that gives its source; the new value stands beside it."""
    note = base.ca.items.get(key, [None] * 3)[2]
    value = base[key]
    if note is not None and note.value.startswith("#") and not isinstance(value, list):
        text = str(value).lower() if isinstance(value, bool) else str(value)
        newline = note.value.index("\n") if "\n" in note.value else len(note.value)
        comment = note.value[:newline].lstrip("# ")
        if not comment.startswith("paper: "):
            note.value = f"# paper: {text}; {comment}{note.value[newline:]}"


def _yaml() -> YAML:
    yaml = YAML()
    yaml.width = 4096
    yaml.preserve_quotes = True
    yaml.indent(mapping=2, sequence=2, offset=0)
    # `null` in words, as the files write it.
    yaml.representer.add_representer(
        type(None), lambda dump, _: dump.represent_scalar("tag:yaml.org,2002:null", "null")
    )
    return yaml
