"""A manifest of downloaded sources: the origin, the licence and the files of each."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, TypeAdapter, ValidationError

from ground.io import DataError, read_json
from ground.text import first_problem


def _writable(text: str) -> str:
    text.encode()  # raises ValueError for a lone surrogate
    return text


_Text = Annotated[str, AfterValidator(_writable)]


class _File(BaseModel):
    model_config = ConfigDict(strict=True)
    sha256: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
    bytes: Annotated[int, Field(ge=0, lt=2**63)]


class _Source(BaseModel):
    model_config = ConfigDict(strict=True)
    kind: _Text
    location: _Text
    licence: _Text
    revision: _Text | None
    files: dict[str, _File]


_FORM = TypeAdapter(dict[str, _Source])


def read_manifest(path: Path) -> dict[str, dict[str, Any]]:
    """Kind, location, revision, licence and files by source name; raises ``DataError`` if it is not such a manifest."""
    content = read_json(path)
    try:
        _FORM.validate_python(content)
    except ValidationError as error:
        raise DataError(
            f"{path}: not a manifest of sources: {first_problem(error)}; make it again with `dvc repro -f download`"
        ) from error
    return dict(content)
