"""The types of parameters of several flows, with the choices that Prefect's page offers.

Choices come from the folder of the code that is deployed. The server checks them; the command line also accepts outputs
as targets. They are not in the modules of the flows, because Prefect runs parts of those modules without ``__file__``.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from pydantic import Field

from evidence.dvc.pipeline import read_pipeline
from ground.io import DataError
from pathfinder.planning import profiles

_ROOT = Path(__file__).resolve().parents[1]


def _stages() -> list[str]:
    """The stages of dvc.yaml: first without variant, which selects all variants, then with it."""
    try:
        found = list(read_pipeline(_ROOT))
    except DataError:  # the flow says what is wrong when it runs
        return []
    return list(dict.fromkeys([*(name.partition("@")[0] for name in found), *found]))


Target = Annotated[str, Field(json_schema_extra={"enum": _stages()})]
Targets = Sequence[Target]
Profile = Annotated[str, Field(json_schema_extra={"enum": ["", *profiles.names(_ROOT)]})]
Override = Annotated[str, Field(json_schema_extra={"pattern": r"^[\w.]+=.+$"})]
Jobs = Annotated[int, Field(ge=0, le=1024)]
