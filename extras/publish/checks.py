"""Checks of a folder before it is uploaded. Each returns a sentence, or raises ``DataError``."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from evidence.audit.pointers import value_at
from extras.publish.client import card_figures, read_card
from extras.publish.folder import Repository
from ground.io import DataError, read_json
from ground.show import counted
from pathfinder.core.hub import CARD

WEIGHTS = ".safetensors"
ALLOWED = {
    "model": (WEIGHTS, ".json", ".jinja", ".md", ".model", ".pem", ".sig", ".txt"),
    "dataset": (".json", ".md", ".parquet"),
}
"""The endings of files that hold only data. A file with any other ending could run code when it is loaded."""
_PICKLE = (b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05", b"PK\x03\x04")
"""The first bytes of a pickle, and of PyTorch's archive of a pickle."""
_SECRETS = re.compile(
    rb"hf_[A-Za-z0-9]{20,}|sk-[A-Za-z0-9_-]{20,}|gh[pousr]_[A-Za-z0-9]{30,}|AKIA[0-9A-Z]{16}"
    rb"|-----BEGIN [A-Z ]*PRIVATE KEY-----"
)
_SECRET_VARIABLE = re.compile(r"TOKEN|SECRET|PASSWORD|CREDENTIAL|API_?KEY|ACCESS_?KEY")
_SHORTEST_SECRET = 8
_BINARY = (WEIGHTS, ".parquet")


def check_repository(repository: Repository, root: Path) -> list[str]:
    """The sentences of all checks of a folder; raises ``DataError`` for the first that fails."""
    checks: list[Callable[[Repository], str]] = [only_data, no_secrets, card_is_valid]
    if repository.kind == "model":
        checks += [weights_open, lambda found: figures_are_traced(found, root)]
    return [f"{repository.kind}: {check(repository)}" for check in checks]


def only_data(repository: Repository) -> str:
    """Raises ``DataError`` for a link, a file that is not data, and a pickle with a different ending."""
    allowed = ALLOWED[repository.kind]
    for path in repository.paths():
        if path.is_symlink() or path.suffix not in allowed:
            raise DataError(f"{path}: only {', '.join(allowed)} files are published; remove it from the model")
        with path.open("rb") as handle:
            if handle.read(4).startswith(_PICKLE):
                raise DataError(f"{path}: begins like a pickle, which can run code; remove it from the model")
    return f"{len(repository.paths())} files, all of them data without code"


def no_secrets(repository: Repository) -> str:
    """Raises ``DataError`` for a text with a token, a private key, or the value of a secret variable."""
    values = {
        value.encode(): name
        for name, value in os.environ.items()
        if _SECRET_VARIABLE.search(name.upper()) and len(value) >= _SHORTEST_SECRET
    }
    for path in (path for path in repository.paths() if path.suffix not in _BINARY):
        content = path.read_bytes()
        if (found := _SECRETS.search(content)) is not None:
            line = content[: found.start()].count(b"\n") + 1
            raise DataError(f"{path}:{line}: has what looks like a token or a private key; remove it and run again")
        if named := [name for value, name in values.items() if value in content]:
            raise DataError(f"{path}: holds the value of the variable {named[0]}; remove it and run again")
    return "no token, private key or secret variable in any text"


def card_is_valid(repository: Repository) -> str:
    """The classes of huggingface_hub read the card; raises ``DataError`` if they refuse it."""
    data = read_card(repository.folder / CARD, repository.kind)
    results = len(card_figures(repository.folder / CARD)) if repository.kind == "model" else 0
    return f"the card is valid, licence {data['license']}" + (f", {results} results" if results else "")


def weights_open(repository: Repository) -> str:
    """Raises ``DataError`` for a safetensors file whose header does not agree with its size, or if there is none."""
    from safetensors import SafetensorError, safe_open

    tensors = 0
    files = [path for path in repository.paths() if path.suffix == WEIGHTS]
    for path in files:
        try:
            with safe_open(path, framework="numpy") as opened:
                tensors += len(list(opened.keys()))
        except (SafetensorError, OSError) as error:
            raise DataError(f"{path}: not a complete safetensors file ({error}); train the model again") from error
    if not tensors:
        raise DataError(f"{repository.folder}: has no weights; train the model again")
    return f"{counted(tensors, 'tensor')} in {counted(len(files), 'safetensors file')}"


def figures_are_traced(repository: Repository, root: Path) -> str:
    """Raises ``DataError`` for a result that is not the value at its place in a metric file of the same run."""
    run = repository.folder.parent.name
    figures = card_figures(repository.folder / CARD)
    for name, value, place in figures:
        file, pointer = str(place.get("file")), str(place.get("pointer"))
        if not re.fullmatch(r"metrics/[a-z_]+/" + re.escape(run) + r"\.json", file):
            raise DataError(f"{CARD}: {name} names {file}, which is not a metric file of {run}; run the stage report")
        measured: Any = value_at(read_json(root / file), pointer, file)
        if measured != value:
            raise DataError(f"{CARD}: {name} is {value}, but {file}#{pointer} is {measured}; run the stage report")
    return f"{len(figures)} figures equal the metric files of {run}"
