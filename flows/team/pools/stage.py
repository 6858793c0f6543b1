"""The worker's side of a stage on another machine: a flow that runs one stage of one commit in a clone of its own.

The clones are in the folder ``PATHFINDER_CLONES`` of the worker's environment (default: ``~/.cache/pathfinder/clones``)
and stay, with their caches, journals and checkpoints. Each run takes the first clone that no other run uses.
"""

from __future__ import annotations

import contextlib
import os
import platform
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

from prefect import flow
from prefect.client.schemas.objects import State
from prefect.logging.handlers import APILogHandler
from prefect.runtime import flow_run
from prefect.states import Completed, Failed
from pydantic import Field

from evidence.record.environment import FLOW_RUN, git, installed_packages
from evidence.record.identity import LOCKS
from evidence.record.materials import other_versions, unlocked_packages
from evidence.record.signing import own_public_keys
from flows import server, storage
from flows.dvc import Dvc
from flows.guard.lock import held
from flows.tasks import class_of
from flows.team.deployment.branch import Clone
from flows.team.notices.hooks import tell
from flows.team.pools.inputs import Outs, place
from flows.team.pools.leases import Leases
from flows.team.pools.run import run_part, run_stage
from flows.team.pools.table import needs
from flows.terminal import flow_output
from ground.io import DataError, PathfinderError, write_text
from pathfinder.core.params import PARAMS_FILE

CLONES = "PATHFINDER_CLONES"
_DEFAULT = Path(".cache/pathfinder/clones")
_MOST_CLONES = 64


def run_name() -> str:
    """The name of the run of a stage: the stage, its part and the commit."""
    parameters = flow_run.get_parameters()
    part = f" part {parameters['part']}" if parameters.get("part") else ""
    return f"{parameters.get('name')}{part} at {str(parameters.get('commit'))[:8]}"


@flow(name="stage", flow_run_name=run_name, persist_result=False, on_crashed=[tell])
def stage(
    name: Annotated[str, Field(description="The stage, as `pathfinder plan` names it")],
    commit: Annotated[str, Field(pattern="^[0-9a-f]{40}$|^[0-9a-f]{64}$")],
    params: str = "",
    inputs: dict[str, Outs] | None = None,
    force: bool = False,
    remote: str = "",
    parent: str = "",
    part: str = "",
) -> State[Any]:
    """Run one stage of a commit with inputs from the remote, push what it makes, and state the result in its lease.

    The flow `reproduce` starts this for the stages that infra/resources.yaml sends to a pool.

    Args:
        name: The stage.
        commit: The commit whose code runs; git's origin has it.
        params: The text of params.yaml; empty for the commit's own.
        inputs: The outs of the stages before it, as the lock has them, by stage.
        force: Run the stage even if its result for these inputs is known.
        remote: Where the flow stores results; the worker must use the same place.
        parent: The flow run that waits for the stage.
        part: Only this part of the stage's work, for example 2/3; the flow that waits runs the stage itself.
    """
    say = flow_output(name)
    try:
        _require_same(remote)
        own_public_keys()  # the record of the stage is signed here
        with _clone(_origin(), commit) as folder:
            say(f"{name} runs on {platform.node()} in clone {folder}, commit {commit[:12]}")
            if params:
                write_text(folder / PARAMS_FILE, params)
            need = needs(folder, [name])[name]
            storage.configure(folder)
            need.require_packages(name, other_versions(unlocked_packages(installed_packages(), folder / LOCKS)))
            dvc = Dvc(folder, {FLOW_RUN: parent or flow_run.get_id() or ""})
            leases = Leases(dvc)
            try:
                objects = place(dvc, name, inputs or {})
                say(f"{objects} objects of inputs are in place")
                if part:
                    run_part(dvc, name, part, say, need)
                    return Completed(message=f"part {part} of {name} computed on {platform.node()}")
                with leases.held(name, force, need, say) as is_writer:
                    state = run_stage(dvc, name, force, say, need, is_writer)
                dvc.push(name)
                leases.sent(name, state=state)
            finally:
                dvc.stop()
                leases.close()
    except PathfinderError as error:
        say(str(error))
        return Failed(name=class_of(error).capitalize(), message=str(error))
    finally:
        APILogHandler().flush()  # the run that waits reads the lines once this one has ended
    return Completed(message=f"{name} {state} on {platform.node()}")


def _require_same(remote: str) -> None:
    storage.require_remote()
    own = os.environ.get(storage.REMOTE, "").strip()
    if remote and remote != own:
        raise DataError(
            f"the run stores results in {remote}, this worker in {own}; give both the same {storage.REMOTE}"
        )


def _origin() -> str:
    """The repository that this flow's own code comes from."""
    return (git("remote", "get-url", "origin") or "").strip() or str(Path.cwd())


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
