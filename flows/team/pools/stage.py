"""The side of the machine that computes a stage for a run elsewhere: one stage of one commit in a clone of its own.

Prefect's deployments run the flow. Any other launcher runs the same work as a command, with the order in a file or in
its standard input:

    python -m flows.team.pools.stage --order FILE

The clones are in the folder ``PATHFINDER_CLONES`` of the worker's environment (default: ``~/.cache/pathfinder/clones``)
and stay, with their caches, journals and checkpoints. Each order takes the first clone that no other uses.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import shutil
import signal
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from prefect import flow
from prefect.client.schemas.objects import State
from prefect.logging.handlers import APILogHandler
from prefect.runtime import flow_run
from prefect.states import Completed, Failed

from evidence.dvc.pipeline import read_pipeline
from evidence.record.environment import FLOW_RUN, installed_packages
from evidence.record.identity import LOCKS
from evidence.record.materials import other_versions, unlocked_packages
from evidence.record.signing import own_public_keys
from flows import server, storage
from flows.dvc import Dvc, OnLine
from flows.guard.lock import held
from flows.tasks import class_of
from flows.team.deployment.branch import Clone, origin_of
from flows.team.notices.hooks import tell
from flows.team.pools.inputs import place
from flows.team.pools.leases import Leases
from flows.team.pools.order import FAILED, verified
from flows.team.pools.table import needs
from flows.terminal import flow_output
from ground.io import DataError, PathfinderError, write_text
from pathfinder.core.params import PARAMS_FILE
from pathfinder.core.parts import PARTS

CLONES = "PATHFINDER_CLONES"
_DEFAULT = Path(".cache/pathfinder/clones")
_MOST_CLONES = 64


@flow(name="stage", persist_result=False, on_crashed=[tell])
def stage(order: dict[str, Any]) -> State[Any]:
    """Compute the stage of a signed order, push what it makes, and state the result in its lease.

    The flow `reproduce` starts this for the stages that infra/resources.yaml sends to a pool.

    Args:
        order: The envelope with the order; a key that this machine trusts must have signed it.
    """
    say = flow_output("stage")
    try:
        return Completed(message=compute(json.dumps(order), say))
    except PathfinderError as error:
        say(str(error))
        return Failed(name=class_of(error).capitalize(), message=str(error))
    finally:
        APILogHandler().flush()  # the run that waits reads the lines once this one has ended


def compute(text: str, say: OnLine) -> str:
    """Do what an order asks for, and say so; raises ``PathfinderError`` if no trusted key signed it, or it fails."""
    order, run = verified(text, Path.cwd()), flow_run.get_id() or ""
    name = order.stage
    storage.require_remote()
    own = os.environ.get(storage.REMOTE, "").strip()
    if order.remote and order.remote != own:
        raise DataError(
            f"the run stores results in {order.remote}, this worker in {own}; give both the same {storage.REMOTE}"
        )
    own_public_keys()  # the record of the stage is signed here
    with _clone(origin_of(Path.cwd()), order.commit) as folder:
        say(f"{name} runs on {platform.node()} in clone {folder}, commit {order.commit[:12]}")
        if order.params:
            write_text(folder / PARAMS_FILE, order.params)
        found = needs(folder, [name])[name]
        need = found if run else replace(found, slots={})  # whoever launched the command holds them
        storage.configure(folder)
        need.require_packages(name, other_versions(unlocked_packages(installed_packages(), folder / LOCKS)))
        dvc = Dvc(folder, {FLOW_RUN: order.parent or run})
        leases = Leases(dvc)
        try:
            say(f"{place(dvc, name, order.inputs)} objects of inputs are in place")
            if order.part:
                with leases.at_work(name, say, need, part=order.part):
                    dvc.part(read_pipeline(folder)[name].cmd, order.part, say, need.time_s)
                shutil.rmtree(folder / PARTS / name, ignore_errors=True)
                return f"part {order.part} of {name} computed on {platform.node()}"
            with leases.held(name, order.force, need, say) as is_writer, leases.at_work(name, say, need, is_writer):
                state = dvc.reproduce(name, order.force, say, need.time_s)
            dvc.push(name)
            leases.sent(name, state=state)
        finally:
            dvc.stop()
            leases.close()
    return f"{name} {state} on {platform.node()}"


def main(order: Annotated[typer.FileText, typer.Option("--order", help="The file of a signed order, or -.")]) -> None:
    """Compute the stage of a signed order; the launcher of a pool starts this on a machine of its choice."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    try:
        print(compute(order.read(), lambda line: print(line, flush=True)))
    except PathfinderError as error:
        kind = class_of(error)
        print(FAILED.format(kind, " ".join(str(error).split())))
        sys.exit(os.EX_TEMPFAIL if kind == "transient" else 1)


@contextlib.contextmanager
def _clone(repository: str, commit: str) -> Iterator[Path]:
    """The first clone that no other run uses, at a commit."""
    home = Path(os.environ.get(CLONES) or Path.home() / _DEFAULT).absolute()
    with contextlib.ExitStack() as stack:
        for number in range(1, _MOST_CLONES + 1):
            folder = home / str(number)
            folder.mkdir(parents=True, exist_ok=True)
            with contextlib.suppress(DataError):
                hold = stack.enter_context(held(folder))
                hold.name_flow_run(flow_run.get_id() or "", *server.access())
                break
        else:
            raise DataError(f"{home}: all {_MOST_CLONES} clones are in use; start fewer runs at once on this worker")
        yield Clone.at(folder, repository, commit).folder


if __name__ == "__main__":
    typer.run(main)
