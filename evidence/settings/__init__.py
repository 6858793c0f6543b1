"""The facts that a project tells the audit, in ``evidence.toml``. Without the file every key has a neutral default.

The file is the only place that names folders and commands of one project. It is read once, when this module is
imported: from the current folder or, if that is not a project of DVC, from the folder above this package. The strict
base of all documents, and their reader, are here too.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from ground.io import DataError, parse_json
from ground.text import first_problem

FILE = Path("evidence.toml")
Md5 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{32}(\.dir)?$")]
Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
Count = Annotated[int, Field(ge=0)]


class Form(BaseModel):
    """A strict, frozen part of a document."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, defer_build=True)


Document = TypeVar("Document", bound=BaseModel)


def validated(model: type[Document], value: Any, name: str) -> Document:
    """``value`` as a document; raises ``DataError`` in one line that names ``name`` and the first wrong key."""
    try:
        return model.model_validate(value)
    except ValidationError as error:
        raise DataError(f"{name}: {first_problem(error)}; not the expected form") from error


def parsed(model: type[Document], content: bytes, name: str) -> Document:
    """The document in a JSON text; raises ``DataError`` as ``parse_json`` and ``validated`` do."""
    return validated(model, parse_json(content, name), name)


class Shipped(Form):
    """Data in git that an earlier pipeline made: ``data`` is a copy of the outs below ``copied``.

    ``made`` holds all outs of that pipeline, and ``level`` the outs of the variant that ``data`` is a copy of.
    """

    data: str = ""
    made: str = ""
    level: str = ""
    copied: str = ""


class Lines(Form):
    """A Parquet table with the ``file`` and ``line`` of the sources that each row was made from, for the page.

    ``id`` and ``text`` are the columns that the page shows of a row, ``noun`` says what the rows are, and ``command``
    is the command that shows the history of a row.
    """

    table: str = ""
    id: str = "id"
    text: str = "text"
    noun: str = "rows"
    command: str = ""


class Remedies(Form):
    """The advice in messages, which a project with its own commands replaces."""

    run: str = "run the pipeline with `dvc repro`"
    missing: str = "get them with `dvc pull`, or run the pipeline with `dvc repro`"
    params: str = "restore it with git"
    shipped: str = "run the pipeline that makes them"
    deps: str = "correct the deps of the stage"
    cards: str = "write the card"
    trust: str = "commit its public key to the folder of trusted keys if you trust it"


class Settings(Form):
    """The keys of ``evidence.toml``.

    ``name`` names the folder for the state of this machine (``.name``), the folder in a remote, the key's folder
    below the user's configuration, and the variables (``NAME_SIGNING_KEY``); ``vendor`` (default: ``name``) the
    types of signed documents; ``command`` the command in messages. Exports describe the project with its ``title``
    (default: ``name``), its SPDX ``licence``, the ``namespace`` of its identifiers and the ``task`` of its models.
    The first of ``pipelines`` is the project's; the others made shipped data once. The project's Python
    ``packages`` belong to the code of a stage that imports them. Dependencies in the folders ``code`` are code.
    ``locks`` holds pinned packages (``*.lock``), ``keys`` the public keys that the project trusts, ``models`` the outs
    that get a separate signature. ``sources`` is a manifest of downloaded files (``ground.manifest``). ``tables`` is a
    JSON file with results by ``system`` and ``metrics`` the beginning of the paths of JSON files
    with figures, which ``diff`` compares. ``cards`` is the folder with a card of each model, ``NAME.md``, and
    ``description`` the Croissant description of an exported data set.
    """

    name: Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9]*$")] = "evidence"
    vendor: str = ""
    command: str = "python -m evidence"
    title: str = ""
    licence: str = ""
    namespace: str = ""
    task: str = ""
    pipelines: Annotated[tuple[str, ...], Field(min_length=1, strict=False)] = ("dvc.yaml",)
    packages: Annotated[tuple[str, ...], Field(strict=False)] = ()
    code: Annotated[tuple[str, ...], Field(strict=False)] = ()
    locks: str = "locks"
    keys: str = "keys"
    models: str = "models/"
    sources: str = ""
    tables: str = ""
    metrics: str = ""
    cards: str = ""
    description: str = ""
    lines: Lines = Field(default_factory=Lines)
    shipped: Shipped = Field(default_factory=Shipped)
    remedies: Remedies = Field(default_factory=Remedies)


def read_settings(*folders: Path) -> Settings:
    """The settings in the first of the folders with the file; raises ``DataError`` if a key is unknown or wrong."""
    for file in (folder / FILE for folder in folders):
        if file.is_file():
            try:
                return Settings.model_validate(tomllib.loads(file.read_text(encoding="utf-8")))
            except (ValidationError, ValueError) as error:
                problem = first_problem(error) if isinstance(error, ValidationError) else str(error)
                raise DataError(f"{file}: {problem}; restore it with git") from error
    return Settings()


SETTINGS = read_settings(Path(), *([] if Path("dvc.yaml").exists() else [Path(__file__).resolve().parents[2]]))
STATE = Path(f".{SETTINGS.name}")
"""The folder for records and for what this machine remembers."""
PREFIX = f"{SETTINGS.name.upper()}_"
"""The beginning of the names of environment variables."""
VENDOR = SETTINGS.vendor or SETTINGS.name
