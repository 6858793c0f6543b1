"""The verb ``why``."""

from __future__ import annotations

from typing import Annotated

import typer

from evidence.verbs.completion import runs
from ground.show import AsJson, show

app = typer.Typer()


@app.command()
def why(
    item: Annotated[str, typer.Argument(help="A ProcessBench item: ID or SUBSET/ID.")],
    run: Annotated[str, typer.Option(help="The run whose decision is explained.", autocompletion=runs)] = "full",
    step: Annotated[
        int | None, typer.Option(help="A step, from 0 (default: the step that decides the item's verdict).")
    ] = None,
    top: Annotated[int, typer.Option(min=1, help="Records to list on each side.")] = 10,
    prove: Annotated[
        bool, typer.Option("--prove", help="Train again without the records that support the decision most.")
    ] = False,
    anyway: Annotated[
        bool, typer.Option("--anyway", help="Compute the scores of a training that is too long for reliable ones.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show the training records that a decision depends on. This repeats the training: minutes for a tiny model.

    For a training that amplifies small changes too much, it lists similar training steps instead, in seconds.
    """
    from pathfinder.core.kernels import pin_kernels

    pin_kernels()  # as the train stage does, before PyTorch is imported, so that the weights are equal
    from extras.why import why as verb

    found = verb.why(item, run, step, top, prove, anyway)
    show(found, as_json, verb.lines_of(found))
