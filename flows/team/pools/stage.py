"""The side of the machine that computes a stage for a run elsewhere: one stage of one commit in a clone.

Prefect's deployments run the flow in flows/team/pools/flow.py. Any other launcher runs the same work as a command
without Prefect, with the order in a file or in its standard input:

    python -m flows.team.pools.stage --order FILE

The clones are in the folder ``PATHFINDER_CLONES`` of the worker's environment (default: ``~/.cache/pathfinder/clones``)
and stay, with their caches, journals and checkpoints. Each order takes the first clone that no other uses.
"""

from __future__ import annotations

import contextlib
import os
import platform
import select
import shutil
import signal
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from evidence.dvc.pipeline import read_pipeline
from evidence.record.environment import FLOW_RUN, installed_packages
from evidence.record.identity import LOCKS
from evidence.record.materials import other_versions, unlocked_packages
from evidence.record.signing import own_public_keys
from flows import server
from flows.local import storage
from flows.local.dvc import Dvc, OnLine
from flows.local.lock import held
from flows.places import class_of
from flows.team.deployment.git import Clone, origin_of
from flows.team.pools.leases import Elsewhere, Leases
from flows.team.pools.order import FAILED, place, verified
from flows.team.pools.table import needs
from ground.io import DataError, PathfinderError, write_text
from pathfinder.core.params import PARAMS_FILE
from pathfinder.core.parts import PARTS

CLONES = "PATHFINDER_CLONES"
_DEFAULT = Path(".cache/pathfinder/clones")
_MOST_CLONES = 64


def compute(text: str, say: OnLine, run: str = "") -> str:
    """Do what an order asks for in the flow run ``run``, if there is one, and report it.

    Raises ``PathfinderError`` if no trusted key signed the order, or it fails.
    """
    order = verified(text, Path.cwd())
    name = order.stage
    own = os.environ.get(storage.REMOTE, "").strip()
    if order.remote and order.remote != own:
        raise DataError(
            f"the run stores results in {order.remote}, this worker in {own or 'its own folder'}; give both the same "
            f"{storage.REMOTE}"
        )
    own_public_keys()  # the record of the stage is signed here
    with _clone(origin_of(Path.cwd()), order.commit, run) as folder:
        say(f"{name} runs on {platform.node()} in clone {folder}, commit {order.commit[:12]}")
        if order.params:
            write_text(folder / PARAMS_FILE, order.params)
        found = needs(folder, [name])[name]
        need = found if run else replace(found, slots={})  # whoever launched the command holds them
        storage.configure(folder)
        need.require_packages(name, other_versions(unlocked_packages(installed_packages(), folder / LOCKS)))
        dvc = Dvc(folder, {FLOW_RUN: order.parent or run}, warm=True, has_other_code=True)
        leases = Leases(dvc, run, stays=order.force)
        try:
            say(f"{place(dvc, name, order.inputs)} objects of inputs are in place")
            if order.part:
                _, _, module, *words = read_pipeline(folder)[name].cmd.split()  # python -m MODULE …
                with leases.at_work(name, say, need, part=order.part):
                    dvc.call(module, *words, "--part", order.part, on_line=say, limit_s=need.time_s)
                shutil.rmtree(folder / PARTS / name, ignore_errors=True)
                return f"part {order.part} of {name} computed on {platform.node()}"
            with leases.held(name, order.force, need, say) as is_writer, leases.at_work(name, say, need, is_writer):
                state = dvc.reproduce(name, order.force, say, need.time_s)
            dvc.push(name)
            leases.sent(name, state=state)
        except Elsewhere as error:
            return str(error)
        finally:
            dvc.stop()
            leases.close()
    return f"{name} {state} on {platform.node()}"


def main(order: Annotated[typer.FileText, typer.Option("--order", help="The file of a signed order, or -.")]) -> None:
    """Compute the stage of a signed order; the launcher of a pool starts this on a machine of its choice."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    threading.Thread(target=_end_without_reader, daemon=True).start()
    try:
        print(compute(order.read(), lambda line: print(line, flush=True)))
    except PathfinderError as error:
        kind = class_of(error)
        print(FAILED.format(kind, " ".join(str(error).split())))
        sys.exit(os.EX_TEMPFAIL if kind == "transient" else 1)


def _end_without_reader() -> None:
    """End this process once nobody can read its lines: sshd leaves the commands of a lost connection running."""
    output = select.poll()
    output.register(sys.stdout, 0)
    output.poll()
    os.kill(os.getpid(), signal.SIGTERM)


@contextlib.contextmanager
def _clone(repository: str, commit: str, run: str) -> Iterator[Path]:
    """The first clone that no other run uses, at a commit."""
    home = Path(os.environ.get(CLONES) or Path.home() / _DEFAULT).absolute()
    with contextlib.ExitStack() as stack:
        for number in range(1, _MOST_CLONES + 1):
            folder = home / str(number)
            folder.mkdir(parents=True, exist_ok=True)
            with contextlib.suppress(DataError):
                hold = stack.enter_context(held(folder))
                break
        else:
            raise DataError(f"{home}: all {_MOST_CLONES} clones are in use; start fewer runs at once on this worker")
        if run:
            hold.name_flow_run(run, *server.access())
        yield Clone.at(folder, repository, commit).folder


if __name__ == "__main__":
    typer.run(main)
