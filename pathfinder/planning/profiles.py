"""Profiles: ``infra/profiles/paper.yaml`` is complete, and every other file there overrides some of its values.

``params.yaml`` is always written completely, with the comments of the base, so a reader needs no other file.

Sections are merged; single values and lists are replaced. A list of named entries, such as the sources, can instead be
overridden by a mapping from names: keys replace the keys of the entry, a new entry is appended, and null removes one.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any

from ground.io import DataError, atomic_file
from ground.settings import check_settings, parse_yaml
from ground.text import meant, printable
from pathfinder.core.commented_yaml import dump_commented, load_commented
from pathfinder.core.params import PARAMS_FILE, Params, load_params
from pathfinder.models.cards import Device
from pathfinder.planning import cards

FOLDER = Path("infra/profiles")
BASE = "paper"
_HEAD = """\
# Written by `pathfinder profile {name}` from {folder}/. You can edit it: only --force replaces an edited file.
# A comment names the source of the paper's number: a table, a section or a published script. If this profile has
# another value, the comment starts with the paper's number.
"""
_NOTE_GAP = re.compile(r"(?<=\S) +# ")
_MACHINE = re.compile(r"(\d+) x (.+) \d+ GB(?: \(\w+ machines of (\d+)\))?")
_WIDTH = 4096  # no line is wrapped


def names(root: Path) -> list[str]:
    """The names of all profiles."""
    return sorted(path.stem for path in (root / FOLDER).glob("*.yaml"))


def render(root: Path, name: str) -> str:
    """The complete ``params.yaml`` of a profile; raises ``DataError`` if it does not exist or is not valid."""
    if name not in (known := names(root)):
        expected = ", ".join(known) or "none in infra/profiles"
        raise DataError(f"{name}: no such profile; {meant(name, known)}expected one of {expected}")
    if name == BASE:
        return (root / FOLDER / f"{BASE}.yaml").read_text(encoding="utf-8")
    content = _load(root, BASE)
    for overlay in _overlays(root, name):
        _merge(content, overlay, f"{FOLDER}/{name}.yaml")
    if content.get("profile") != name:
        found = printable(str(content.get("profile")))[:80]
        raise DataError(f"{FOLDER}/{name}.yaml: profile is {found}; write `profile: {name}`")
    text = dump_commented(content, _WIDTH)
    lines = [line for line in text.splitlines(keepends=True) if not line.startswith("#")]
    body = "".join(_NOTE_GAP.sub("  # ", line, count=1) for line in lines)
    return _HEAD.format(name=name, folder=FOLDER) + body.lstrip("\n")


def write(root: Path, name: str, force: bool = False) -> bool:
    """Write ``params.yaml`` for a profile; false if it is already there.

    Raises ``DataError`` if the result is not valid, or if the current file was edited by hand, unless ``force``.
    """
    path = root / PARAMS_FILE
    text = render(root, name)
    if path.exists():
        current = path.read_text(encoding="utf-8")
        if current == text:
            return False
        if not force and all(current != render(root, other) for other in names(root)):
            raise DataError(f"{PARAMS_FILE}: edited by hand; keep a copy and repeat with --force to replace it")
    with atomic_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
        try:
            load_params(temporary)
        except DataError as error:
            raise DataError(f"{FOLDER}/{name}.yaml: {str(error).removeprefix(f'{temporary}: ')}") from error
    return True


@dataclass(frozen=True, slots=True)
class Summary:
    """The purpose and the machine that the comment at the head of a profile's file names."""

    purpose: str
    machine: str


def summary(root: Path, name: str) -> Summary:
    """The first sentence of a profile's head and its line ``# machine: …``; empty if there is no such line."""
    text = (root / FOLDER / f"{name}.yaml").read_text(encoding="utf-8")
    head = [line[1:].strip() for line in takewhile(lambda line: line.startswith("#"), text.splitlines())]
    machine = next((line.partition(":")[2].strip() for line in head if line.startswith("machine:")), "")
    return Summary(" ".join(head).partition(". ")[0].rstrip("."), machine)


def load(root: Path, name: str) -> Params:
    """The parameters of a profile, without writing them; raises ``DataError`` if a value is not valid."""
    content = parse_yaml(render(root, name))
    return check_settings(Params, content, FOLDER / f"{name}.yaml", f"see {FOLDER}/paper.yaml")


def machine_for(root: Path, name: str) -> Device | None:
    """The GPUs that the head of a profile's file names; ``None`` if it names none or there is no such profile."""
    found = _MACHINE.match(summary(root, name).machine) if name in names(root) else None
    return cards.machine(found[2], int(found[3] or found[1])) if found else None


def machine_of(root: Path, name: str) -> Device:
    """The GPUs that the head of a profile's file names; raises ``DataError`` if it names none."""
    if (found := machine_for(root, name)) is None:
        raise DataError(f"{name}: its head names no GPUs; ask about a machine with --card and --gpus")
    return found


def listed(root: Path) -> Iterator[dict[str, Any]]:
    """Every profile with its summary, and whether params.yaml holds it."""
    active = ""
    with contextlib.suppress(DataError):
        active = load_params(root / PARAMS_FILE).profile
    for name in names(root):
        yield {"profile": name, "active": name == active, **asdict(summary(root, name))}


def _overlays(root: Path, name: str) -> list[Any]:
    """The overlays of a profile, the most general first."""
    overlays: list[Any] = []
    seen = {BASE}
    while name not in seen:
        seen.add(name)
        overlay = _load(root, name)
        below = overlay.pop("extends", BASE)
        overlays.insert(0, overlay)
        if below not in names(root) or below in seen - {BASE}:
            found = printable(str(below))[:80]
            others = ", ".join(names(root))
            raise DataError(f"{FOLDER}/{name}.yaml: cannot extend {found}; expected one of {others}")
        name = below
    return overlays


def _load(root: Path, name: str) -> dict[str, Any]:
    return load_commented(root / FOLDER / f"{name}.yaml", f"see {FOLDER}/{BASE}.yaml")


def _merge(base: Any, overlay: Mapping[str, Any], where: str) -> None:
    for key, value in overlay.items():
        if key not in base:
            unknown = printable(str(key))[:80]
            raise DataError(f"{where}: {unknown} is not a key of {FOLDER}/{BASE}.yaml; correct or remove it")
        if isinstance(value, dict) and isinstance(base[key], dict):
            _merge(base[key], value, where)
        elif isinstance(value, dict) and isinstance(base[key], list):
            _merge_named(base[key], value, f"{where}: {key}")
        elif base[key] != value:
            _keep_number(base, key)
            base[key] = value


def _merge_named(entries: Any, overlay: Mapping[str, Any], where: str) -> None:
    """Merge ``overlay``, which maps names to changes, into a list of mappings with a ``name``; null removes one."""
    for name, changes in overlay.items():
        place = next((place for place, entry in enumerate(entries) if entry["name"] == name), None)
        if place is None:
            if changes is None:
                raise DataError(f"{where}: {name} cannot be removed, {FOLDER}/{BASE}.yaml has no such entry")
            entries.append({"name": name, **changes})
        elif changes is None:
            del entries[place]
        else:
            if unknown := sorted(changes.keys() - entries[place].keys()):
                raise DataError(f"{where}, {name}: {unknown[0]} is not a key of such an entry")
            entries[place].update(changes)


def _keep_number(base: Any, key: str) -> None:
    """Put the paper's value into the comment that names its source."""
    note = base.ca.items.get(key, [None] * 3)[2]
    value = base[key]
    if note is not None and note.value.startswith("#") and not isinstance(value, list):
        text = str(value).lower() if isinstance(value, bool) else str(value)
        line, newline, rest = note.value.partition("\n")
        comment = line.lstrip("# ")
        if not comment.startswith("paper: "):
            note.value = f"# paper: {text}; {comment}{newline}{rest}"
