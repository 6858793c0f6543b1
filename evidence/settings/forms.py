"""The parts that the forms of documents share, and their strict reader, which names the first wrong key."""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from ground.io import DataError, parse_json
from ground.text import first_problem

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
