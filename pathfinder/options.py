"""Options that several verbs of the command share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from ground.io import DataError
from ground.show import offered
from ground.text import UsageError


def addresses(given: Any) -> Any:
    """The value of an option that takes addresses of servers; raises ``UsageError`` for an invalid address."""
    from ground.settings import require_address

    try:
        for address in [given] if isinstance(given, str) else given or ():
            require_address(address, "give one such as http://localhost:8000/v1")
    except DataError as error:
        raise UsageError(str(error)) from error
    return given


def _systems(incomplete: str) -> list[str]:
    from pathfinder.baselines.registry import NAMES

    return offered(incomplete, NAMES)


Data = Annotated[Path | None, typer.Option(help="The benchmark's folder (default: artifacts/raw/BENCHMARK).")]
Model = Annotated[
    str,
    typer.Option(
        help="Folder of the PRM, a repository of the Hub (ORG/NAME), or the name of a published PRM such as qwen-prm "
        "(docs/benchmarks.md)."
    ),
]
Revision = Annotated[str | None, typer.Option(help="Commit, branch or tag of the repository.")]
Precision = Annotated[
    Literal["auto", "float32", "bfloat16"], typer.Option(help="Precision of the model; auto: as in its files.")
]
System = Annotated[
    str | None, typer.Option(help="The published PRM in the folder (docs/benchmarks.md).", autocompletion=_systems)
]
Rules = Literal["repaired", "official"]
Prompt = Annotated[
    Literal["default", "official-processbench", "official-prmbench", "official-search"],
    typer.Option(
        metavar="PROMPT",
        help="The training prompt (default), or a published runner's: official-processbench, official-prmbench, "
        "official-search.",
    ),
]
Server = Annotated[
    str | None,
    typer.Option(help="A server (…/v1) that offers this model; only its tokenizer is read here.", callback=addresses),
]
PolicyServer = Annotated[
    str | None,
    typer.Option(help="A server (…/v1) that offers the policy, and no other model.", callback=addresses),
]
Split = Annotated[
    Literal["auto", "blank", "lines", "numbered"],
    typer.Option(
        metavar="WHERE",
        help="Where a step of a text begins: after a blank line (blank), at a line (lines), or at its number, as in "
        "Step 2: (numbered); auto: at numbers if there are several, else at blank lines, else at lines; in the fields "
        "solutions and candidates at blank lines.",
    ),
]
Columns = Annotated[
    str,
    typer.Option(
        help="The names of your fields: problem=FIELD,steps=FIELD (or solution=, solutions=)[,id=FIELD]. A list in "
        "a cell of CSV is JSON."
    ),
]
Problems = Annotated[str, typer.Option(help="The input file of a batch, if FILE holds its answers (custom_id).")]
Form = Annotated[
    Literal["scores", "processbench", "prmbench"],
    typer.Option(
        "--as",
        metavar="FORM",
        help="What to print: all scores (scores), or what `pathfinder grade` reads (processbench, prmbench).",
    ),
]
Pretty = Annotated[bool, typer.Option("--pretty", help="Draw each problem instead of printing JSON Lines.")]
