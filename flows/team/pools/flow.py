"""The flow of Prefect's deployments of stages: it computes a signed order as the command of a launcher does."""

from __future__ import annotations

import json
from typing import Any

from prefect import flow
from prefect.client.schemas.objects import State
from prefect.logging.handlers import APILogHandler
from prefect.runtime import flow_run
from prefect.states import Completed, Failed

from flows.local import storage
from flows.places import class_of
from flows.team.notices.hooks import tell
from flows.team.pools.stage import compute
from flows.terminal import flow_output
from ground.io import PathfinderError


@flow(name="stage", persist_result=False, on_crashed=[tell])
def stage(order: dict[str, Any]) -> State[Any]:
    """Compute the stage of a signed order, push what it makes, and state the result in its lease.

    The flow `reproduce` starts this for the stages that infra/resources.yaml sends to a pool.

    Args:
        order: The envelope with the order; a key that this machine trusts must have signed it.
    """
    say = flow_output("stage")
    try:
        storage.require_remote()
        return Completed(message=compute(json.dumps(order), say, flow_run.get_id() or ""))
    except PathfinderError as error:
        say(str(error))
        return Failed(name=class_of(error).capitalize(), message=str(error))
    finally:
        APILogHandler().flush()  # the run that waits reads the lines once this one has ended
