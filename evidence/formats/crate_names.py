"""How a Provenance Run Crate names its entities."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from evidence.formats.artefacts import Artefact
from evidence.formats.identifiers import uri
from evidence.formats.lineage import Run
from ground.io import digest_of


def data_id(artefact: Artefact) -> str:
    """The identifier of a file or folder: its path, with a ``/`` behind a folder."""
    return quote(artefact.path) + ("/" if artefact.is_folder else "")


def named(key: str, value: Any) -> str:
    """A parameter with one of its values: two runs can have read different ones."""
    return f"{key}/{digest_of(value)[:12]}"


def value_id(key: str, value: Any) -> str:
    """The identifier of a parameter's value."""
    return f"#value/{quote(named(key, value))}"


def parameter_id(owner: str, name: str) -> str:
    """The identifier of a formal parameter."""
    return f"#{quote(owner)}/{quote(name)}"


def tool_id(run: Run) -> str:
    """The identifier of the tool that the stage runs."""
    return uri("stage", run.name)


def step_id(run: Run) -> str:
    """The identifier of the step of the workflow."""
    return f"#step/{quote(run.name)}"


def action_id(run: Run) -> str:
    """The identifier of the run."""
    return f"#run/{quote(run.name)}"


def control_id(run: Run) -> str:
    """The identifier of the execution of the step."""
    return f"#control/{quote(run.name)}"
